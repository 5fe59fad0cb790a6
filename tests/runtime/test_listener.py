"""`/metrics`, `/healthz`, `/readyz`, asked over HTTP; and the board whose queries they must answer."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.runtime.views import TABLE, view_of
from truecut.config.secret import Secret
from truecut.errors import ExitCode, TruecutError
from truecut.listen_address import Address
from truecut.serving.listener import Told, listening

LOCAL = Address("127.0.0.1", 0)
BOARD = Path(__file__).parent.parent.parent / "docs" / "grafana.json"
TOKEN = "canary-token-77aa"

Samples = dict[str, list[tuple[dict[str, str], float]]]


def _get(address: Address, path: str, token: str | None = None) -> tuple[int, str]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"http://{address}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def _samples(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def _told(folder: Path) -> Told:
    told = Told("tiny")
    view = view_of(folder, {"a": {"rows": 7}, '[/"x': {"state": "failed", "status": "held", "lag_ms": 1500}})
    view.unrouted = {TABLE: 3}
    view.retained_bytes = 4096
    view.certified_lag_ms = {(TABLE, "a"): 2500}
    told.update(view)
    return told


def test_metrics_have_the_names_and_units_of_the_interface(tmp_path: Path) -> None:
    """Base units, `_total` on counters, labels pipeline, sink, table; any name a sink may have."""
    with listening(LOCAL, _told(tmp_path), token=None) as address:
        status, text = _get(address, "/metrics")
    samples = _samples(text)
    assert status == 200
    lags = {labels["sink"]: value for labels, value in samples["truecut_sink_lag_seconds"]}
    assert lags == {"a": 0, '[/"x': 1.5}
    rows = {tuple(sorted(labels)): value for labels, value in samples["truecut_rows_applied_total"]}
    assert set(rows) == {("pipeline", "sink", "table")}
    assert samples["truecut_rows_unrouted_total"] == [({"pipeline": "tiny", "table": TABLE}, 3)]
    copy = {"pipeline": "tiny", "sink": "a", "table": TABLE}
    assert samples["truecut_certified_lag_seconds"] == [(copy, 2.5)]
    assert samples["truecut_source_retained_bytes"] == [({"pipeline": "tiny"}, 4096)]
    assert samples["truecut_copies_held"] == [({"pipeline": "tiny", "table": TABLE}, 1)]
    states = {labels["state"]: value for labels, value in samples["truecut_sinks"]}
    assert states == {"current": 1, "failed": 1, "behind": 0, "backfilling": 0, "paused": 0}


def test_every_query_of_the_board_is_answered(tmp_path: Path) -> None:
    """Each selector of each panel finds a sample, and each label that is grouped by is there."""
    with listening(LOCAL, _told(tmp_path), token=None) as address:
        samples = _samples(_get(address, "/metrics")[1])
    panels = json.loads(BOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(queries) >= 10
    for query in queries:
        selectors = re.findall(r'(truecut_\w+)\{pipeline="\$pipeline"\}', query)
        assert selectors, query
        for name in selectors:
            labels = [labels for labels, _ in samples[name] if labels["pipeline"] == "tiny"]
            assert labels, query
            grouped = re.findall(r"by \(([a-z, ]+)\)", query)
            assert all(label in labels[0] for names in grouped for label in names.split(", ")), query


def test_health_is_one_word_and_readiness_names_what_stands_still(tmp_path: Path) -> None:
    """A probe needs the status alone; who looks closer is told which sink it is."""
    with listening(LOCAL, _told(tmp_path), token=None) as address:
        assert _get(address, "/healthz") == (200, '{"status": "ok"}\n')
        status, text = _get(address, "/readyz")
        assert (status, json.loads(text)["stuck"]) == (503, ['sink [/"x'])
        assert _get(address, "/")[0] == 404


def test_a_token_guards_names_and_numbers(tmp_path: Path) -> None:
    """Without it metrics are refused and health is one word."""
    with listening(LOCAL, _told(tmp_path), token=Secret(TOKEN)) as address:
        assert _get(address, "/metrics")[0] == 401
        assert _get(address, "/metrics", "wrong")[0] == 401
        assert _get(address, "/readyz") == (503, '{"status": "failing"}\n')
        assert _get(address, "/healthz")[0] == 200
        assert _get(address, "/metrics", TOKEN)[0] == 200
        assert "stuck" in _get(address, "/readyz", TOKEN)[1]


def test_a_port_that_is_taken_is_a_sentence(tmp_path: Path) -> None:
    """Exit 3, before anything else starts."""
    told = _told(tmp_path)
    with (
        listening(LOCAL, told, token=None) as address,
        pytest.raises(TruecutError, match="cannot listen on") as refused,
        listening(address, told, token=None),
    ):
        pass
    assert refused.value.exit_code is ExitCode.UNFIT_ENVIRONMENT
