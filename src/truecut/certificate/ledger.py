"""The row ledger of one copy: which rows it has, as digests that segments tell; never read from a sink.

A DuckDB file: key → row digest, digests of cells that later changes may leave out, the bucket sums, and up to
where all that holds, written in one transaction. An append table needs no rows, only sums. Whatever the
segments contradict makes the verdict unknown, with a reason, until the copy is made anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import duckdb
import numpy as np
import pyarrow as pa

from truecut.certificate.chain import NO_HEAD
from truecut.certificate.digest import BUCKETS, Buckets, as_blocks, as_limbs, carried
from truecut.certificate.segment import Segment, batches_of
from truecut.failpoint import failpoint
from truecut.model.change import DELETE, INSERT, READ, TRUNCATE, UPDATE
from truecut.model.table import Mode

Verdict = Literal["certified", "unknown"]
_TABLES = (
    'CREATE TABLE l.standing (edition BIGINT, "at" VARCHAR, evidence VARCHAR, columns VARCHAR, '
    "verdict VARCHAR, reason VARCHAR, sums BLOB, counts BLOB)",
    "CREATE TABLE l.rows (high UBIGINT, low UBIGINT, r0 UINTEGER, r1 UINTEGER, r2 UINTEGER, r3 UINTEGER)",
    "CREATE TABLE l.cells (high UBIGINT, low UBIGINT, col UINTEGER, digest BLOB)",
)
_EVENTS = (
    "CREATE OR REPLACE TEMP TABLE events (o BIGINT, epoch INTEGER, op UTINYINT, high UBIGINT, low UBIGINT, "
    "r0 UINTEGER, r1 UINTEGER, r2 UINTEGER, r3 UINTEGER, absent UINTEGER[], "
    'cells STRUCT("column" UINTEGER, digest BLOB)[])'
)
_ROW = ("r0", "r1", "r2", "r3")


@dataclass(frozen=True, slots=True)
class Standing:
    """What a ledger holds: the copy at `at`, or why nobody knows."""

    edition: int = 0
    at: str = ""
    evidence: str = NO_HEAD
    columns: str = ""
    verdict: Verdict = "unknown"
    reason: str = "nothing was folded yet"


class Contradiction(Exception):
    """The segments do not make a state; the text says why."""


class Ledger:
    """One copy's, opened to be read or, by `fold`, to be written."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, mode: Mode) -> None:
        self._connection = connection
        self._mode = mode
        self._overlaid: Buckets | None = None  # the state is that of further segments

    @classmethod
    @contextmanager
    def open(cls, path: Path, mode: Mode = "mirror", *, read_only: bool = True) -> Iterator[Ledger]:
        """The file must be there to be read; otherwise it is made."""
        with duckdb.connect(config={"threads": 2, "memory_limit": "512MB"}) as connection:
            told = str(path).replace("'", "''")
            new = not path.exists()
            connection.execute(f"ATTACH '{told}' AS l{' (READ_ONLY)' if read_only else ''}")
            if new:
                for table in _TABLES:
                    connection.execute(table)
            yield cls(connection, mode)

    @property
    def standing(self) -> Standing:
        """What it holds, of the file itself."""
        found = self._connection.execute(
            'SELECT edition, "at", evidence, columns, verdict, reason FROM l.standing'
        ).fetchone()
        return Standing() if found is None else Standing(*found)

    def buckets(self) -> Buckets:
        """The sums, and how many rows each counts."""
        if self._overlaid is not None:
            return self._overlaid
        found = self._connection.execute("SELECT sums, counts FROM l.standing").fetchone()
        if found is None:
            return Buckets.empty()
        sums = np.frombuffer(found[0], np.uint64).reshape(BUCKETS, 4).copy()
        return Buckets(sums, np.frombuffer(found[1], np.int64).copy())

    def rows(self, first_bucket: int, last_bucket: int) -> pa.Table:
        """The rows of some buckets, both ends included: `key` and `row`, 16 bytes each, ordered by key."""
        where = f"WHERE high >> 52 BETWEEN {first_bucket} AND {last_bucket}"
        columns = f"high, low, {', '.join(_ROW)}"
        if self._overlaid is None:
            rows = f"SELECT {columns} FROM l.rows {where}"
        else:
            rows = (
                f"SELECT {columns} FROM l.rows ANTI JOIN touched USING (high, low) {where} AND NOT "
                f"(SELECT emptied FROM how) UNION ALL SELECT {columns} FROM final {where} AND op <> {DELETE}"
            )
        found = self._connection.execute(f"SELECT * FROM ({rows}) ORDER BY high, low").to_arrow_table()
        return _told(found)

    def extended(self, segments: Sequence[Segment], upto: int) -> Ledger:
        """The state at a later place, of these segments that follow, without changing the file; raises
        Contradiction."""
        buckets = self.buckets()
        if self._mode == "append":
            _add_all(buckets, segments, upto)
        else:
            self._stage(segments, upto)
            self._resolve()
            self._sum_up(buckets)
        self._overlaid = buckets
        return self

    # --- folding ------------------------------------------------------------------------------------------

    def fold(self, segments: Sequence[Segment], to: Standing) -> None:
        """Take these segments in, which lead to `to`; a base among them begins anew."""
        begin = max((n for n, one in enumerate(segments) if begins(one, self._mode)), default=-1)
        buckets = Buckets.empty() if begin >= 0 else self.buckets()
        self._connection.execute("BEGIN")
        if self._mode == "append":
            _add_all(buckets, segments[max(begin, 0) :], None)
        else:
            if begin >= 0:
                self._replace(segments[begin], buckets)
            self._take(segments[begin + 1 :], buckets)
        self._stand(to, buckets)
        self._connection.execute("COMMIT")
        failpoint("ledger_folded")

    def doubt(self, reason: str, to: Standing) -> None:
        """Nobody knows, from now on until the copy is made anew."""
        with suppress(duckdb.TransactionException):
            self._connection.execute("ROLLBACK")
        self._connection.execute("BEGIN")
        self._connection.execute("DELETE FROM l.rows")
        self._connection.execute("DELETE FROM l.cells")
        self._stand(replace(to, verdict="unknown", reason=reason), Buckets.empty())
        self._connection.execute("COMMIT")

    def _stand(self, to: Standing, buckets: Buckets) -> None:
        self._connection.execute("DELETE FROM l.standing")
        self._connection.execute(
            "INSERT INTO l.standing VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                to.edition,
                to.at,
                to.evidence,
                to.columns,
                to.verdict,
                to.reason,
                buckets.sums.astype(np.uint64).tobytes(),
                buckets.counts.astype(np.int64).tobytes(),
            ],
        )

    def _replace(self, base: Segment, buckets: Buckets) -> None:
        """The whole content."""
        self._connection.execute("DELETE FROM l.rows")
        self._connection.execute("DELETE FROM l.cells")
        self._stage([base], None)
        if self._one(f"SELECT count(*) FROM events WHERE op <> {READ} OR len(absent) > 0"):
            raise Contradiction("a base holds something else than whole rows")
        if self._one("SELECT count(*) - count(DISTINCT (high, low)) FROM events"):
            raise Contradiction("a key stands twice in a base")
        self._connection.execute(f"INSERT INTO l.rows SELECT high, low, {', '.join(_ROW)} FROM events")
        self._connection.execute(
            "INSERT INTO l.cells SELECT high, low, c.column, c.digest "
            "FROM (SELECT high, low, unnest(cells) AS c FROM events)"
        )
        buckets.merge(self._sums("events"))

    def _take(self, segments: Sequence[Segment], buckets: Buckets) -> None:
        """Changes."""
        if not segments:
            return
        self._stage(segments, None)
        self._resolve()
        self._sum_up(buckets)
        run = self._connection.execute
        for table in ("rows", "cells"):
            run(f"DELETE FROM l.{table} WHERE (SELECT emptied FROM how)")
            run(f"DELETE FROM l.{table} t USING touched k WHERE t.high = k.high AND t.low = k.low")
        run(f"INSERT INTO l.rows SELECT high, low, {', '.join(_ROW)} FROM final WHERE op <> {DELETE}")
        run("INSERT INTO l.cells SELECT * FROM final_cells")

    def _stage(self, segments: Sequence[Segment], upto: int | None) -> None:
        """Their events, numbered in their order."""
        self._connection.execute(_EVENTS)
        number, epoch = 0, 0
        for segment in segments:
            for batch in batches_of(segment):
                if upto is not None:
                    batch = batch.filter(pa.array(batch.column("place").to_numpy() <= np.uint64(upto)))
                staged, epoch = _staged(batch, number, epoch)
                self._connection.register("arriving", staged)
                self._connection.execute("INSERT INTO events SELECT * FROM arriving")
                self._connection.unregister("arriving")
                number += batch.num_rows
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE how AS SELECT {epoch > 0} AS emptied, {epoch} AS last"
        )

    def _resolve(self) -> None:
        """`final`: the last event of each key that was touched, whole; `touched`: the keys; `final_cells`."""
        contradictions = self._one(
            f"""SELECT count(*) FROM (
                SELECT op, CASE WHEN before IS NULL THEN there AND epoch = 0 ELSE before <> {DELETE} END live
                FROM (SELECT e.op, e.epoch, r.high IS NOT NULL AS there,
                             lag(e.op) OVER (PARTITION BY e.epoch, e.high, e.low ORDER BY e.o) AS before
                      FROM events e LEFT JOIN l.rows r ON e.high = r.high AND e.low = r.low
                      WHERE e.op <> {TRUNCATE}))
            WHERE (op IN ({INSERT}, {READ})) = live"""
        )
        if contradictions:
            raise Contradiction(f"{contradictions} changes contradict what was there before them")
        run = self._connection.execute
        run(
            f"CREATE OR REPLACE TEMP TABLE numbered AS SELECT *, "
            "row_number() OVER (PARTITION BY high, low ORDER BY o) AS i, "
            "count(*) OVER (PARTITION BY high, low) AS j FROM events "
            f"WHERE op <> {TRUNCATE} AND epoch = (SELECT last FROM how)"
        )
        run("CREATE OR REPLACE TEMP TABLE final AS SELECT * EXCLUDE (o, epoch, i) FROM numbered WHERE i = j")
        run("CREATE OR REPLACE TEMP TABLE touched AS SELECT high, low FROM final")
        run(
            "CREATE OR REPLACE TEMP TABLE final_cells AS SELECT high, low, c.column AS col, c.digest "
            "FROM (SELECT high, low, unnest(cells) AS c FROM final)"
        )
        if self._one("SELECT count(*) FROM events WHERE len(absent) > 0"):
            self._complete()

    def _complete(self) -> None:
        """Values that the last event of a key did not tell are those of the latest event before it that did,
        back to its insert, else of the ledger."""
        if self._one(f"SELECT count(*) FROM events WHERE len(absent) > 0 AND op <> {UPDATE}"):
            raise Contradiction("a row that moved was not told whole")
        self._connection.execute(
            f"""CREATE OR REPLACE TEMP TABLE taken AS
            WITH begun AS (SELECT high, low, max(i) AS s FROM numbered WHERE op IN ({INSERT}, {READ})
                          GROUP BY ALL),
            told AS (SELECT high, low, i, c.column AS col, c.digest AS digest
                     FROM (SELECT high, low, i, unnest(cells) AS c FROM numbered)),
            untold AS (SELECT high, low, i, j, unnest(absent) AS col FROM numbered),
            need AS (SELECT u.high, u.low, u.j, u.col, coalesce(b.s, 0) AS s
                     FROM untold u LEFT JOIN begun b USING (high, low) WHERE u.i = u.j),
            source AS (SELECT n.high, n.low, n.col, any_value(n.j) AS j, any_value(n.s) AS s,
                              coalesce(max(t.i), 0) AS i, arg_max(t.digest, t.i) AS digest
                       FROM need n LEFT JOIN told t ON n.high = t.high AND n.low = t.low AND n.col = t.col
                            AND t.i < n.j AND t.i >= n.s GROUP BY n.high, n.low, n.col)
            SELECT s.high, s.low, s.col,
                   CASE WHEN s.i > 0 THEN s.digest
                        WHEN s.s = 0 AND NOT (SELECT emptied FROM how) THEN c.digest
                   END AS digest,
                   s.j - s.i = (SELECT count(*) FROM untold u WHERE u.high = s.high AND u.low = s.low
                                AND u.col = s.col AND u.i > s.i) AS whole
            FROM source s LEFT JOIN l.cells c ON s.high = c.high AND s.low = c.low AND s.col = c.col"""
        )
        if self._one("SELECT count(*) FROM taken WHERE digest IS NULL OR NOT whole"):
            raise Contradiction("a value that was left out is not known from before")
        self._add_taken()
        self._connection.execute("INSERT INTO final_cells SELECT high, low, col, digest FROM taken")

    def _add_taken(self) -> None:
        found = self._connection.execute(
            f"SELECT f.high, f.low, {', '.join('f.' + r for r in _ROW)}, t.digest "
            "FROM final f JOIN taken t USING (high, low) ORDER BY f.high, f.low"
        ).to_arrow_table()
        if not found.num_rows:
            return
        keys = np.stack([found.column(name).to_numpy() for name in ("high", "low")], axis=1)
        first = np.concatenate(([True], (keys[1:] != keys[:-1]).any(axis=1)))
        sums = np.add.reduceat(as_limbs(_blocks_of(found.column("digest"))), np.nonzero(first)[0], axis=0)
        rows = np.stack([found.column(r).to_numpy().astype(np.uint64) for r in _ROW], axis=1)[first]
        whole = carried(sums + rows)
        columns = {"high": keys[first, 0], "low": keys[first, 1]}
        columns |= {f"w{n}": whole[:, n].astype(np.uint32) for n in range(4)}
        self._connection.register("arriving", pa.table(columns))
        # A table of its own: DuckDB cannot push a join's bounds of such numbers down into Arrow.
        self._connection.execute("CREATE OR REPLACE TEMP TABLE whole AS SELECT * FROM arriving")
        self._connection.unregister("arriving")
        assigned = ", ".join(f"r{n} = w.w{n}" for n in range(4))
        self._connection.execute(
            f"UPDATE final SET {assigned} FROM whole w WHERE final.high = w.high AND final.low = w.low"
        )

    def _sum_up(self, buckets: Buckets) -> None:
        if self._one("SELECT emptied FROM how"):
            empty = Buckets.empty()
            buckets.sums, buckets.counts = empty.sums, empty.counts
        else:
            buckets.take_off(self._sums("(SELECT r.* FROM l.rows r SEMI JOIN touched USING (high, low))"))
        buckets.merge(self._sums(f"(SELECT * FROM final WHERE op <> {DELETE})"))

    def _sums(self, rows: str) -> Buckets:
        totals = ", ".join(f"sum({r})::UBIGINT AS {r}" for r in _ROW)
        found = self._connection.execute(
            f"SELECT (high >> 52)::BIGINT AS bucket, count(*) AS n, {totals} FROM {rows} GROUP BY 1"
        ).to_arrow_table()
        summed = Buckets.empty()
        at = found.column("bucket").to_numpy()
        summed.counts[at] = found.column("n").to_numpy()
        for n, r in enumerate(_ROW):
            summed.sums[at, n] = found.column(r).to_numpy()
        summed.sums = carried(summed.sums)
        return summed

    def _one(self, sql: str) -> Any:
        found = self._connection.execute(sql).fetchone()
        assert found is not None
        return found[0]


def begins(segment: Segment, mode: Mode) -> bool:
    """Whether nothing counts that was before it. A seed of an append table may stand beside its rows."""
    return segment.header.kind == "base" and (mode == "mirror" or segment.previous == NO_HEAD)


def _staged(batch: pa.RecordBatch, number: int, epoch: int) -> tuple[pa.Table, int]:
    """Events in the form of the ledger, and the epoch after them: how many truncates there were."""
    ops = batch.column("op").to_numpy()
    epochs = epoch + np.cumsum(ops == TRUNCATE)
    keys = _blocks_of(batch.column("key")).reshape(-1).view(">u8").reshape(-1, 2)
    limbs = as_limbs(_blocks_of(batch.column("row"))).astype(np.uint32)
    columns: dict[str, Any] = {
        "o": np.arange(number, number + batch.num_rows),
        "epoch": epochs.astype(np.int32),
        "op": ops,
        "high": keys[:, 0].astype(np.uint64),
        "low": keys[:, 1].astype(np.uint64),
    }
    columns |= {name: np.ascontiguousarray(limbs[:, n]) for n, name in enumerate(_ROW)}
    columns |= {"absent": batch.column("absent"), "cells": batch.column("cells")}
    return pa.table(columns), int(epochs[-1]) if len(epochs) else epoch


def _blocks_of(column: pa.Array | pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Sixteen bytes each; zeros for NULL."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    array = array.cast(pa.binary(16)).fill_null(bytes(16))
    raw = np.frombuffer(array.buffers()[1], np.uint8)
    return raw[array.offset * 16 : (array.offset + len(array)) * 16].reshape(-1, 16)


def _add_all(buckets: Buckets, segments: Sequence[Segment], upto: int | None) -> None:
    """An append table: every event is a row."""
    for segment in segments:
        for batch in batches_of(segment):
            if upto is not None:
                batch = batch.filter(pa.array(batch.column("place").to_numpy() <= np.uint64(upto)))
            keys, limbs = _blocks_of(batch.column("key")), as_limbs(_blocks_of(batch.column("row")))
            at = (keys[:, 0].astype(np.int64) << 8 | keys[:, 1]) >> 4
            arrived = Buckets.empty()
            np.add.at(arrived.sums, at, limbs)
            np.add.at(arrived.counts, at, 1)
            arrived.sums = carried(arrived.sums)
            buckets.merge(arrived)


def _told(found: pa.Table) -> pa.Table:
    """Keys and rows as blocks."""
    keys = np.stack([found.column(name).to_numpy().astype(">u8") for name in ("high", "low")], axis=1)
    limbs = np.stack([found.column(r).to_numpy().astype(np.uint64) for r in _ROW], axis=1)
    data = (np.ascontiguousarray(keys).view(np.uint8).reshape(-1, 16), as_blocks(limbs))
    arrays = [
        pa.Array.from_buffers(pa.binary(16), found.num_rows, [None, pa.py_buffer(np.ascontiguousarray(one))])
        for one in data
    ]
    return pa.table(arrays, names=["key", "row"])
