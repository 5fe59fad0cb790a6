"""`certificate.witness`: a second slot of a source that is captured, and of no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from truecut.config.finding import ConfigError
from truecut.config.load import load
from truecut.config.settings import Pipeline, WitnessSettings

FILE = """\
apiVersion: truecut/v1
kind: Pipeline
metadata: {{name: shop}}
spec:
  source: {source}
  tables: [{{name: public.t, key: [id]}}]
  sinks: [{{name: x, type: ducklake, catalog: ./x.ducklake, data_path: ./x}}]
  certificate: {{{certificate}}}
"""
POSTGRES = "{type: postgres, dsn: 'postgresql://nowhere/shop', slot: mine}"
UNNAMED = "{type: postgres, dsn: 'postgresql://nowhere/shop'}"
LAKE = "{type: ducklake, catalog: ./source.ducklake}"


def loaded(folder: Path, source: str, certificate: str) -> Pipeline:
    file = folder / "pipeline.yaml"
    file.write_text(FILE.format(source=source, certificate=certificate))
    return load(file, environ={})


def test_a_witness_has_a_name_and_a_budget(tmp_path: Path) -> None:
    """Left out there is none; the budget has a default."""
    assert loaded(tmp_path, POSTGRES, "interval: 1s").source.witness is None
    named = loaded(tmp_path, POSTGRES, "witness: w_1").source.witness
    assert named == WitnessSettings("w_1", 4 << 30)
    bounded = loaded(tmp_path, POSTGRES, "witness: w_1, witness_bytes_max: 64MiB").source.witness
    assert bounded == WitnessSettings("w_1", 64 << 20)


@pytest.mark.parametrize(
    ("source", "name"),
    [(LAKE, "w"), (POSTGRES, "Not-A-Slot"), (POSTGRES, "mine"), (UNNAMED, "truecut_shop")],
)
def test_what_cannot_be_a_witness_is_refused(tmp_path: Path, source: str, name: str) -> None:
    """A source that keeps its history, a name that no slot has, the slot that changes are captured from."""
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, source, f"witness: {name}")
    (finding,) = refused.value.findings
    assert finding.rule.code == "TC1071"
    assert finding.path.endswith("certificate.witness")
