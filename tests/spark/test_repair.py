"""A repair without Spark: what its pieces tell, through the encoding of packets, to a real lake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.sinks.world import applied, cursor_of, order, packets, position, read, rows, seed, sink, tenant
from truecut.certificate.digest import Keyed
from truecut.certificate.scope import scope_of
from truecut.config.settings import SinkSettings
from truecut.errors import TruecutError
from truecut.lake import LakeAddress, parse_address
from truecut.model.change import READ
from truecut.model.order import Receipt
from truecut.model.table import TableName
from truecut.sinks.ducklake.pinned import pin
from truecut.sources.contract import Rows
from truecut.spark.comparison import Piece
from truecut.spark.contents import SinkPiece, SourcePiece
from truecut.spark.repair import Repair
from truecut.spark.wave import packet
from truecut.spark.wave.apply import run_attempts
from truecut.spark.wave.route import TableRoute
from truecut.testing.orders import ITEMS, repair

KEYED = Keyed(bytes(16))
SOURCE = [(n, f"value {n}") for n in range(50)]
T = TableName("main", "t")


@dataclass(frozen=True)
class Task:
    """The source's rows, some at a time; or none of the last ones."""

    fails: bool = False

    @property
    def tables(self) -> tuple[TableName, ...]:
        return (T,)

    def read(self) -> Iterator[Rows]:
        whole = rows([(READ, 4, *row) for row in SOURCE])
        for batch in whole.to_batches(max_chunksize=7):
            yield Rows(T, batch)
            if self.fails:
                raise TruecutError("TC2099", "gone", fix="None.")


@pytest.fixture
def lake(tmp_path: Path) -> LakeAddress:
    """Seeded with the source's rows, and tampered with."""
    address = parse_address("sqlite:lake.db", "lake", base=tmp_path)
    applied(sink(address).recover(epoch=1, token=1))
    seeded = packets(t=[(READ, 4, *row) for row in SOURCE])
    applied(sink(address).apply(order(None, 4, t=seed()), seeded))
    tenant(
        address,
        "UPDATE lake.main.t SET value = 'mine' WHERE id IN (3, 4)",
        "DELETE FROM lake.main.t WHERE id IN (5, 49)",
        "INSERT INTO lake.main.t FROM lake.main.t WHERE id = 6",
        "INSERT INTO lake.main.t FROM lake.main.t WHERE id = 6",
        "INSERT INTO lake.main.t VALUES (-1, 'new'), (-1, 'twice'), (70, NULL)",
    )
    return address


def carried_out(address: LakeAddress, touched: list[int], *, fails: bool = False) -> Receipt:
    """A repair of these keys."""
    settings = SinkSettings("acme", "ducklake", address, None, "refuse", {"main.t": "mirror"})
    scope = scope_of("source-1", "main.t", ITEMS.columns, key=("id",), mode="mirror")
    keys = pa.table({"id": pa.array(touched, pa.int64()), "value": pa.nulls(len(touched), pa.string())})
    wanted = frozenset(one.tobytes() for one in scope.digest(KEYED, keys).keys)
    routes = TableRoute(None, (0,), {}, all_wanted=True)
    with pin(settings, pipeline="tenants") as pinned:
        content = pinned.content("main.t", ITEMS.columns, key=("id",), mode="mirror", pieces=3)
        pieces: list[Piece] = [SourcePiece(Task(fails), scope, routes)]
        pieces += [SinkPiece(one, scope, 1) for one in content]
        wish = replace(order(4, 4, t=repair()), epoch=0)
        job = Repair("tenants", settings, wish, pieces, KEYED, frozenset({0, 1}), wanted, 60_000)
        told = [b for n in range(len(pieces)) for b in packet.to_batches(job.read(n), 1)]
        ordered = pa.Table.from_batches(told).sort_by([(name, "ascending") for name in packet.ORDER])
        parcels = packet.from_batches(ordered.to_batches())
        ((_, receipt),) = run_attempts([job.attempt(parcels)], threads=1, deadline_ms=60_000)
        return receipt


def test_the_rows_that_differ_are_those_of_the_source(lake: LakeAddress) -> None:
    """Changed, deleted, doubled and added rows, whatever piece they are in; a key that is not asked for stays
    as it is."""
    receipt = carried_out(lake, [3, 5, 49, 6, -1, 70])
    assert receipt.outcome == "applied", receipt.fault
    assert read(lake, "t") == [(n, "mine" if n == 4 else value) for n, value in SOURCE]
    assert cursor_of(lake) == (str(position(4)), 1)


def test_a_source_that_cannot_be_read_aborts_it(lake: LakeAddress) -> None:
    """After some of its rows: nothing is written, and the reason is told."""
    before = read(lake, "t")
    receipt = carried_out(lake, [3, 5], fails=True)
    assert (receipt.outcome, read(lake, "t")) == ("aborted", before)
    assert receipt.unread["main.t"].code == "TC2099"
