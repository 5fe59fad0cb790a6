"""Files that are right: what they mean."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import pytest

from tests.config.pipelines import MINIMAL, VALID, Folder, changed
from truecut.config.finding import ConfigError
from truecut.config.secret import Secret
from truecut.config.settings import (
    BatchSettings,
    JournalSettings,
    ListenSettings,
    Pipeline,
    SinkSettings,
    SourceSettings,
    SparkSettings,
    TableSettings,
)
from truecut.lake import LakeAddress
from truecut.model.table import Mode, TableName


def lake(base: Path, name: str, data: str | None) -> LakeAddress:
    return LakeAddress("duckdb", Secret(str(base / name)), None if data is None else str(base / data))


def test_every_setting_is_resolved(folder: Folder) -> None:
    """Defaults are filled in, paths are absolute, for_each lines are sinks in the order of the file."""
    base = folder.path
    tables = (TableSettings(TableName("main", "events"), ("id",), "tenant", False, "count", "backfill"),)
    journal = JournalSettings(base / ".truecut/tenants/journal", 20 << 30)
    source = lake(base, "source.ducklake", "source-data")
    modes: dict[str, Mode] = {"main.events": "mirror"}
    assert folder.load(VALID) == Pipeline(
        name="tenants",
        path=base / "p.yaml",
        source=SourceSettings(
            "ducklake", source, "tenants", journal, tables, base / ".truecut/tenants/units"
        ),
        tables=tables,
        sinks=tuple(
            SinkSettings(name, "ducklake", lake(base, catalog, data), route, "refuse", modes, 10 << 30)
            for name, catalog, data, route in (
                ("acme", "acme.ducklake", "acme-data", "acme"),
                ("t-globex", "lakes/globex.ducklake", "lakes/globex", "globex"),
                ("t-initech", "lakes/initech.ducklake", "lakes/initech", "initech"),
            )
        ),
        batch=BatchSettings(500_000, 64 << 20, 500, 30_000),
        lease_ms=10_000,
        control=Secret(str(base / ".truecut/tenants/control.db")),
        state=base / ".truecut/tenants",
        spark=SparkSettings(None, {}),
    )


def test_every_setting_can_be_given(folder: Folder) -> None:
    """What the file says replaces every default."""
    text = """\
apiVersion: truecut/v1
kind: Pipeline
metadata: {name: all_of-it1}
spec:
  source: {type: ducklake, catalog: "sqlite:/lakes/s.sqlite"}
  tables:
    - {name: main.a, key: [x, y], route_by: t, unrouted: stop, on_gap: stop}
    - {name: odd.b.c, key: [x], broadcast: true}
  sinks:
    - {name: one, type: ducklake, catalog: "postgres:dbname=one", existing: replace, mode: append, route: r}
    - {name: two, type: ducklake, catalog: two, tables: [{name: main.a, mode: append}, {name: odd.b.c}]}
  batch: {rows_max: 7, bytes_max: 1GiB, interval: 2s, deadline: 1h}
  lease: {duration: 3m}
  control: postgresql://host/db
  state: ./state
  spark: {master: "local[2]", conf: {spark.a: 1, spark.b: true, spark.c: x}}
  listen: 0.0.0.0:9464
  listen_token: geheim
"""
    pipeline = folder.load(text)
    assert pipeline.source.address == LakeAddress("sqlite", Secret("/lakes/s.sqlite"))
    assert pipeline.tables == (
        TableSettings(TableName("main", "a"), ("x", "y"), "t", False, "stop", "stop"),
        TableSettings(TableName("odd", "b.c"), ("x",), None, True, "count", "backfill"),
    )
    one, two = pipeline.sinks
    assert one.address == LakeAddress("postgres", Secret("dbname=one"))
    assert (one.existing, one.route) == ("replace", "r")
    assert one.modes == {"main.a": "append", "odd.b.c": "append"}
    assert two.modes == {"main.a": "append", "odd.b.c": "mirror"}
    assert pipeline.batch == BatchSettings(7, 1 << 30, 2000, 3_600_000)
    assert pipeline.lease_ms == 180_000
    assert pipeline.control == Secret("postgresql://host/db")
    assert pipeline.state == folder.path / "state"
    assert pipeline.spark == SparkSettings("local[2]", {"spark.a": "1", "spark.b": "true", "spark.c": "x"})
    assert pipeline.listen == ListenSettings("0.0.0.0:9464", Secret("geheim"))


@pytest.mark.parametrize(
    ("listen", "message"),
    [("9464", "expected HOST:PORT"), ("0.0.0.0:9464", "other machines can reach this address")],
)
def test_listening_is_for_this_machine_unless_a_token_is_asked_for(
    folder: Folder, listen: str, message: str
) -> None:
    """Names and counts of tenants are nobody else's business by a slip."""
    with pytest.raises(ConfigError, match=message):
        folder.load(f"{MINIMAL}  listen: {listen}\n")
    assert folder.load(f"{MINIMAL}  listen: 127.0.0.1:9464\n").listen == ListenSettings("127.0.0.1:9464")


def test_scalars_follow_yaml_1_2(folder: Folder) -> None:
    """`no`, `on` and a date are the text they look like: no tenant becomes `false` by a slip."""
    for word in ("no", "on", "Y", "2024-01-01", "1:30", "0x1F", "1_000"):
        sink = folder.load(changed(VALID, "route: acme", f"route: {word}")).sinks[0]
        assert sink.route == word


def test_aliases_work_within_reason(folder: Folder) -> None:
    """An anchor may be used again."""
    text = changed(VALID, "key: [id]", "key: &k [id]") + "    # end\n"
    text = changed(text, "  sinks:\n", "    - {name: main.other, key: *k, broadcast: true}\n  sinks:\n")
    assert [table.key for table in folder.load(text).tables] == [("id",), ("id",)]


def test_a_pipeline_travels_to_executors(folder: Folder) -> None:
    """Settings survive pickling, secrets included, and never print them."""
    pipeline = folder.load(changed(MINIMAL, "./copy.ducklake", '"postgres:password=geheim"'))
    assert pickle.loads(pickle.dumps(pipeline)) == pipeline
    assert "geheim" not in repr(pipeline)


def test_sinks_without_a_route_get_everything_beside_routed_ones(folder: Folder) -> None:
    """A sink without `route` is allowed beside `route_by`: it gets all rows."""
    sink = "    - {name: all, type: ducklake, catalog: ./all.ducklake}\n"
    assert [s.route for s in folder.load(VALID + sink).sinks] == ["acme", "globex", "initech", None]


def test_two_sinks_may_not_share_a_catalog_for_different_tables_either(folder: Folder) -> None:
    """They would have one cursor between them; one sink for the tables of both is the way."""
    text = changed(MINIMAL, "  sinks:\n", "    - {name: main.b, key: [id]}\n  sinks:\n")
    text = changed(text, "./copy.ducklake}", "./copy.ducklake, tables: [{name: main.b}]}")
    text += "    - {name: two, type: ducklake, catalog: ./copy.ducklake, tables: [{name: main.events}]}\n"
    assert folder.lines(text) == [
        'p.yaml:11  TC1041  sinks.two.name: writes into the same catalog as the sink "copy"; make one sink '
        "of both, with the `tables` of both"
    ]


def test_ten_thousand_sinks_load_within_three_seconds(folder: Folder) -> None:
    """Sinks number in the thousands: loading costs next to nothing for each."""
    folder.write("tenants.csv", "tenant\n" + "".join(f"tenant-{i}\n" for i in range(10_000)))
    start = time.process_time()
    pipeline = folder.load(VALID)
    assert time.process_time() - start < 3
    assert len({sink.name for sink in pipeline.sinks}) == 10_001
    assert pipeline.sinks[-1].address == lake(folder.path, "lakes/tenant-9999.ducklake", "lakes/tenant-9999")
