"""A seed of a lake that many have staged as files: exact, found by its values, beside the tenant's own."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.sinks.conftest import MakeLake
from tests.sinks.test_types import TABLES, assert_equal, table_of
from tests.sinks.world import (
    MAINTENANCE,
    applied,
    changes,
    copy_of,
    opened,
    order,
    order_of,
    packets,
    places_of,
    read,
    rows,
    seed,
    sink,
    tenant,
)
from truecut.failpoint import KILLED
from truecut.lake import LakeAddress, identifier
from truecut.model.change import COMMITTED_AT, DELETE, INSERT, OP, PLACE, READ, SEQ, UPDATE
from truecut.model.order import Order, Receipt
from truecut.model.table import Column, TableSchema
from truecut.sinks.contract import Packet
from truecut.sinks.ducklake import pieces
from truecut.sinks.ducklake.landing import takes_files
from truecut.sinks.parts import Part
from truecut.testing.orders import Change

WHOLE = [(READ, 4, n, f"v{n}") for n in range(1, 8)]
COPIED = [(n, f"v{n}") for n in range(1, 8)]


def stage(address: LakeAddress, wanted: Order, *shares: list[Packet]) -> list[Part]:
    landing = sink(address).landing(wanted)
    assert landing is not None
    return [
        sink(address).stage_part(wanted, landing, iter(share), piece=piece)
        for piece, share in enumerate(shares)
    ]


def copy(address: LakeAddress, wanted: Order, *shares: list[Change]) -> Receipt:
    """The table t by as many pieces."""
    parts = stage(address, wanted, *(list(packets(t=share)) for share in shares))
    return sink(address).apply_parts(wanted, parts, {}, pieces=len(parts))


@pytest.fixture
def lake(address: LakeAddress) -> LakeAddress:
    applied(sink(address).recover(epoch=1, token=1))
    return address


def files_of(address: LakeAddress) -> list[Path]:
    assert address.data_path is not None
    return sorted(Path(address.data_path).rglob("truecut-*.parquet"))


def test_all_types_come_back_and_are_found(lake: LakeAddress) -> None:
    """Bit for bit, from three files; and each value is found by its statistics and behind a compaction."""
    found = {name: table_of(kinds, rows=40) for name, kinds in TABLES.items()}
    wanted = order_of({name: seed(schema=schema) for name, (schema, _) in found.items()}, None, 1)
    shares = [
        [Packet(f"main.{name}", sent.slice(first, 15)) for name, (_, sent) in found.items()]
        for first in (0, 15, 30)
    ]
    parts = stage(lake, wanted, *shares)
    applied(sink(lake).apply_parts(wanted, parts, {}, pieces=3))
    for name, (schema, sent) in found.items():
        assert_equal(lake, name, schema, sent)
        if lake.kind == "sqlite":  # what is noted of a file is the same in all
            assert_found(lake, name, schema)
    tenant(lake, *MAINTENANCE)
    for name, (schema, sent) in found.items():
        assert_equal(lake, name, schema, sent)


def assert_found(address: LakeAddress, name: str, schema: TableSchema) -> None:
    """As many rows by a filter that DuckLake compares with its statistics as by one that it does not."""
    with opened(address) as connection:
        connection.execute(f"CREATE OR REPLACE TEMP TABLE plain AS FROM lake.main.{name}")
        for column in schema.columns:
            if column.kind != "scalar" or column.type == "JSON":
                continue
            quoted = identifier(column.name)
            for compared in ("=", ">"):
                sql = f"SELECT count(*) FROM {{}} WHERE {quoted} {compared} ?::{column.type}"
                values = connection.execute(
                    f"SELECT DISTINCT {quoted}::VARCHAR FROM plain WHERE {quoted} IS NOT NULL"
                ).fetchall()
                for (value,) in values:
                    at_lake, expected = (
                        connection.execute(sql.format(table), [value]).fetchone()
                        for table in (f"lake.main.{name}", "plain")
                    )
                    assert at_lake == expected, (column.type, compared, value)


def test_statistics_are_of_one_row_group(make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckLake puts those of several together as texts, and then years before our era are not found."""
    address = make_lake("sqlite")
    applied(sink(address).recover(epoch=1, token=1))
    monkeypatch.setattr(pieces, "FILE_BYTES_MAX", 8 << 20)
    schema = TableSchema("7", (Column(1, "id", "BIGINT"), Column(2, "value", "DATE")))
    sent = _dated(np.arange(400_000))
    wanted = order(None, 4, t=seed(schema=schema))
    parts = stage(address, wanted, [Packet("main.t", sent.slice(n * 40_000, 40_000)) for n in range(10)])
    assert max(place.rows for place in parts[0].tables["main.t"].places) > 122_880  # DuckDB's own size
    applied(sink(address).apply_parts(wanted, parts, {}, pieces=1))
    with opened(address) as connection:
        files = [str(path) for path in files_of(address)]
        groups = connection.execute("SELECT max(num_row_groups) FROM parquet_file_metadata(?)", [files])
        assert groups.fetchone() == (1,)
        for day in ("0001-01-01", "0150-06-01 (BC)", "0200-01-01 (BC)"):
            by_statistics, by_row = (
                connection.execute(
                    f"SELECT count(*) FROM lake.main.t WHERE {value} < DATE '{day}'"
                ).fetchone()
                for value in ("value", "value + 0")
            )
            assert by_statistics == by_row != (0,)


def _dated(numbers: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Table:
    """Rows of which some lie before our era."""
    days = (-800_000 + 10 * (numbers % 90_000)).astype(np.int32)
    return pa.table(
        {
            OP: pa.array(np.full(len(numbers), READ, np.uint8)),
            PLACE: pa.array(np.full(len(numbers), 4, np.uint64)),
            SEQ: pa.array(numbers),
            COMMITTED_AT: pa.nulls(len(numbers), pa.timestamp("us", "UTC")),
            "id": pa.array(numbers),
            "value": pa.array(days).view(pa.date32()),
        }
    )


def test_what_the_tenant_has_made_of_the_table_stays(lake: LakeAddress) -> None:
    """A partitioned table gets its rows by their values; the files that were staged are not kept."""
    applied(copy(lake, order(None, 4, t=seed()), WHOLE[:3], WHOLE[3:]))
    tenant(lake, "ALTER TABLE lake.main.t SET PARTITIONED BY (value)")
    whole = [(READ, 9, n, "ab"[n % 2]) for n in range(20)]  # more than a catalog keeps for itself
    applied(copy(lake, order(4, 9, t=seed()), whole[:7], whole[7:]))
    assert read(lake, "t") == [(n, "ab"[n % 2]) for n in range(20)]
    with opened(lake) as connection:
        found = connection.execute(
            "SELECT DISTINCT partition_value FROM __ducklake_metadata_lake.ducklake_file_partition_value"
        ).fetchall()
    assert sorted(found) == [("a",), ("b",)]


def test_a_column_that_may_not_be_null_is_looked_at(lake: LakeAddress) -> None:
    """Registering a file checks no constraint: its rows are inserted, and the table is held."""
    applied(copy(lake, order(None, 4, t=seed()), WHOLE))
    tenant(lake, "ALTER TABLE lake.main.t ALTER COLUMN value SET NOT NULL")
    receipt = applied(copy(lake, order(4, 9, t=seed()), [(READ, 9, 1, "a")], [(READ, 9, 2, None)]))
    hold = copy_of(receipt).hold
    assert hold is not None
    assert hold.code == "TC3029"
    assert read(lake, "t") == COPIED


def test_changes_and_columns_follow_a_staged_seed(lake: LakeAddress) -> None:
    """Rows of registered files are updated and deleted, columns added; maintenance changes nothing."""
    applied(copy(lake, order(None, 4, t=seed()), WHOLE[:4], WHOLE[4:]))
    window = [(UPDATE, 5, 1, "a"), (DELETE, 5, 7, "v7"), (INSERT, 5, 9, "n")]
    applied(sink(lake).apply(order(4, 5, t=changes()), packets(t=window)))
    more = TableSchema(
        "7", (Column(1, "id", "BIGINT"), Column(2, "value", "VARCHAR"), Column(3, "x", "BIGINT"))
    )
    later = rows([(UPDATE, 6, 2, "b", 7)], more)
    applied(sink(lake).apply(order(5, 6, t=changes(schema=more)), iter([Packet("main.t", later)])))
    kept = [(1, "a", None), (2, "b", 7), *((n, f"v{n}", None) for n in range(3, 7)), (9, "n", None)]
    assert read(lake, "t") == kept
    tenant(lake, *MAINTENANCE)
    assert read(lake, "t") == kept


def test_files_are_noted_relative_to_their_table(lake: LakeAddress) -> None:
    """A lake that is moved takes them along."""
    applied(copy(lake, order(None, 4, t=seed()), WHOLE[:4], WHOLE[4:]))
    with opened(lake) as connection:
        noted = connection.execute(
            "SELECT path, path_is_relative FROM __ducklake_metadata_lake.ducklake_data_file "
            "WHERE path LIKE '%truecut-%'"
        ).fetchall()
    assert sorted((path, bool(relative)) for path, relative in noted) == [
        (path.name, True) for path in files_of(lake)
    ]


def test_files_that_are_gone_fail_the_order(lake: LakeAddress) -> None:
    """Somebody cleaned up: nothing is written, and the seed is to be read again."""
    wanted = order(None, 4, t=seed())
    parts = stage(lake, wanted, list(packets(t=WHOLE[:3])), list(packets(t=WHOLE[3:])))
    files_of(lake)[0].unlink()
    receipt = sink(lake).apply_parts(wanted, parts, {}, pieces=2)
    assert (receipt.outcome, receipt.fault and receipt.fault.code) == ("failed", "TC4162")
    assert places_of(lake) == {}


def test_what_dead_runs_have_left_is_swept(lake: LakeAddress) -> None:
    """Of an older owner, and of another run of this seed; what a snapshot knows stays, and a later seed's."""
    first = order(None, 4, t=seed())
    stage(lake, first, list(packets(t=WHOLE)))
    applied(copy(lake, first, WHOLE))
    (registered,) = files_of(lake)
    applied(sink(lake).recover(epoch=1, token=5))
    later = order(4, 9, token=5, edition=7, t=seed())
    stage(lake, later, list(packets(t=WHOLE)))
    (of_later,) = set(files_of(lake)) - {registered}
    second = order(4, 9, token=5, t=seed())
    applied(copy(lake, second, [(READ, 9, 1, "z")]))
    assert {registered, of_later} < set(files_of(lake))
    assert len(files_of(lake)) == 3
    assert read(lake, "t") == [(1, "z")]


@pytest.mark.parametrize("point", ["after_piece_staged", "before_pieces_gathered", "after_sink_data"])
def test_a_process_that_dies_leaves_nothing_but_files(make_lake: MakeLake, point: str) -> None:
    """The same seed, staged again, has its effect; what was left is taken away."""
    address = make_lake("sqlite")
    applied(sink(address).recover(epoch=1, token=1))
    script = (
        "import pickle, sys; from tests.sinks.test_pieces import WHOLE, copy, order, seed\n"
        "copy(pickle.loads(sys.stdin.buffer.read()), order(None, 4, t=seed()), WHOLE[:3], WHOLE[3:])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script],
        input=pickle.dumps(address),
        env={**os.environ, "TRUECUT_FAILPOINT": point},
        check=False,
    )
    assert ended.returncode == KILLED
    left = files_of(address)
    assert left
    applied(copy(address, order(None, 4, t=seed()), WHOLE[:3], WHOLE[3:]))
    assert read(address, "t") == COPIED
    assert not set(left) & set(files_of(address))


def test_what_a_registered_file_may_hold() -> None:
    """Types whose copies are known to be exact; others are staged whole."""

    def taken(kind: str) -> bool:
        return takes_files(TableSchema("1", (Column(1, "c", kind),)))

    assert all(map(taken, ("BIGINT", "DECIMAL(38,10)", "MAP(VARCHAR, UUID[])", "STRUCT(a DATE)")))
    assert not any(
        map(taken, ("HUGEINT", "UHUGEINT", "INTERVAL", "INTEGER[3]", "STRUCT(a HUGEINT)[]", "<x>"))
    )


def test_an_altered_append_table_is_held(make_lake: MakeLake) -> None:
    """As where rows come one by one: the tenant took a column away, so the table stops."""
    lake = make_lake("sqlite")
    applied(sink(lake).recover(epoch=1, token=1))
    wanted = order(None, 4, t=seed("append"))
    before = copy_of(applied(copy(lake, wanted, WHOLE[:3], WHOLE[3:])))
    tenant(lake, "ALTER TABLE lake.main.t DROP COLUMN value")
    again = replace(
        wanted.tables["main.t"],
        expected=before.version,
        leaves=replace(before.version, edition=before.edition + 1),
    )
    after = copy_of(applied(copy(lake, replace(wanted, tables={"main.t": again}), WHOLE[:3], WHOLE[3:])))
    assert after.hold is not None
    assert after.hold.code == "TC3016"
    assert [row[0] for row in read(lake, "t", "id")] == [row[0] for row in COPIED]


def test_a_foreign_table_costs_no_files(make_lake: MakeLake) -> None:
    """Where the order will be refused, nothing is written for it beforehand, however often it is tried."""
    lake = make_lake("sqlite")
    applied(sink(lake).recover(epoch=1, token=1))
    tenant(lake, "CREATE TABLE lake.main.t (mine INTEGER)")
    assert sink(lake).landing(order(None, 4, t=seed())) is None
    assert sink(lake, existing="replace").landing(order(None, 4, t=seed())) is not None
    assert files_of(lake) == []


def test_a_seed_that_stopped_takes_nothing_from_the_next(make_lake: MakeLake) -> None:
    """Its number is given again: the run of it that comes late sweeps none of the new one's files."""
    lake = make_lake("sqlite")
    applied(sink(lake).recover(epoch=1, token=1))
    twice = [*WHOLE, WHOLE[0]]
    first = order(None, 4, t=seed())
    parts = stage(lake, first, list(packets(t=twice[:4])), list(packets(t=twice[4:])))
    stopped = copy_of(applied(sink(lake).apply_parts(first, parts, {}, pieces=2)))
    assert stopped.hold is not None
    resumed = replace(
        first.tables["main.t"],
        expected=stopped.version,
        leaves=replace(stopped.version, edition=stopped.edition + 1, hold=None, resumed=1),
    )
    second = replace(first, tables={"main.t": resumed})
    whole = stage(lake, second, list(packets(t=WHOLE[:3])), list(packets(t=WHOLE[3:])))
    late = stage(lake, first, list(packets(t=twice[:4])), list(packets(t=twice[4:])))
    assert sink(lake).apply_parts(first, late, {}, pieces=2).outcome == "already"
    assert copy_of(applied(sink(lake).apply_parts(second, whole, {}, pieces=2))).hold is None
    assert read(lake, "t") == COPIED
