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
from truecut.certificate.event_file import GROUP_ROWS
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
        self._has_taken = False  # some values are those of before
        self._final = "final"  # the last event of each key that was touched, whole

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
                f"SELECT {columns} FROM l.rows ANTI JOIN {self._final} f USING (high, low) {where} "
                f"AND NOT (SELECT emptied FROM how) "
                f"UNION ALL SELECT {columns} FROM {self._final} {where} AND op <> {DELETE}"
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
        run = self._connection.execute
        run("DELETE FROM l.rows")
        run("DELETE FROM l.cells")
        for batch in batches_of(base):
            if (batch.column("op").to_numpy() != READ).any() or _is_any(batch.column("absent")):
                raise Contradiction("a base holds something else than whole rows")
            staged, _ = _staged(batch, 0, 0)
            self._connection.register("arriving", staged)
            run(f"INSERT INTO l.rows SELECT high, low, {', '.join(_ROW)} FROM arriving")
            if _is_any(batch.column("cells")):
                run(
                    "INSERT INTO l.cells SELECT high, low, c.column, c.digest "
                    "FROM (SELECT high, low, unnest(cells) AS c FROM arriving)"
                )
            self._connection.unregister("arriving")
            buckets.merge(_summed(staged))
        if self._one(f"SELECT count(*) FROM ({_twice('l.rows', 'high, low')})"):
            raise Contradiction("a key stands twice in a base")

    def _take(self, segments: Sequence[Segment], buckets: Buckets) -> None:
        """Changes."""
        if not segments:
            return
        self._stage(segments, None)
        self._resolve()
        self._sum_up(buckets)
        run = self._connection.execute
        if self._one("SELECT emptied FROM how"):
            run("DELETE FROM l.rows")
            run("DELETE FROM l.cells")
        else:
            run("DELETE FROM l.rows WHERE rowid IN (SELECT place FROM met WHERE place IS NOT NULL)")
            if self._one("SELECT count(*) FROM (FROM l.cells LIMIT 1)"):
                run(f"DELETE FROM l.cells t USING {self._final} k WHERE t.high = k.high AND t.low = k.low")
        run(f"INSERT INTO l.rows SELECT high, low, {', '.join(_ROW)} FROM {self._final} WHERE op <> {DELETE}")
        if self._has_taken or self._one(f"SELECT count(*) FROM {self._final} WHERE len(cells) > 0"):
            run(f"INSERT INTO l.cells SELECT * FROM ({self._final_cells()})")

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
        """`_final`: the last event of each key that was touched; `met`: the first, and the row that it met.

        Most keys have one event: only the others are put in order. Where values were left out, all are.
        """
        run = self._connection.execute
        changes = f"(SELECT * FROM events WHERE op <> {TRUNCATE})"
        left_out = bool(self._one("SELECT count(*) FROM events WHERE len(absent) > 0"))
        run(f"CREATE OR REPLACE TEMP TABLE many AS {_twice(changes, 'epoch, high, low')}")
        firsts = f"(SELECT op, epoch, high, low FROM {changes})"
        self._final = f"(SELECT * FROM {changes} WHERE epoch = (SELECT last FROM how))"
        if left_out or self._one("SELECT count(*) FROM many"):
            join = "" if left_out else "SEMI JOIN many USING (epoch, high, low)"
            run(
                "CREATE OR REPLACE TEMP TABLE numbered AS SELECT *, row_number() OVER keyed AS i, "
                "count(*) OVER (PARTITION BY epoch, high, low) AS j, lag(op) OVER keyed AS before "
                f"FROM {changes} {join} WINDOW keyed AS (PARTITION BY epoch, high, low ORDER BY o)"
            )
            alone = f"(SELECT * FROM {changes} ANTI JOIN numbered USING (epoch, high, low))"
            firsts = (
                f"(SELECT op, epoch, high, low FROM {alone} "
                "UNION ALL SELECT op, epoch, high, low FROM numbered WHERE i = 1)"
            )
            self._check_order()
            run(
                f"CREATE OR REPLACE TEMP TABLE final AS SELECT * FROM (SELECT * FROM {alone} UNION ALL "
                "SELECT * EXCLUDE (i, j, before) FROM numbered WHERE i = j) "
                "WHERE epoch = (SELECT last FROM how)"
            )
            self._final = "final"
        self._meet(firsts)
        if left_out:
            self._complete()

    def _check_order(self) -> None:
        wrong = self._one(
            f"SELECT count(*) FROM numbered WHERE i > 1 AND (op IN ({INSERT}, {READ})) = (before <> {DELETE})"
        )
        if wrong:
            raise _contradicting(wrong)

    def _meet(self, firsts: str) -> None:
        """The first event of each key beside the row that is there: none behind a truncate."""
        # The condition on the epoch is not the join's: DuckDB would compare every event with every row.
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE met AS SELECT f.op, f.high, r.rowid AS place, "
            f"{', '.join('r.' + r for r in _ROW)} FROM (SELECT * FROM {firsts} WHERE epoch = 0) f "
            "LEFT JOIN l.rows r ON f.high = r.high AND f.low = r.low"
        )
        begins = f"op IN ({INSERT}, {READ})"
        wrong = self._one(f"SELECT count(*) FROM met WHERE ({begins}) = (place IS NOT NULL)")
        wrong += self._one(f"SELECT count(*) FROM {firsts} WHERE epoch > 0 AND NOT {begins}")
        if wrong:
            raise _contradicting(wrong)

    def _final_cells(self) -> str:
        return (
            "SELECT high, low, c.column AS col, c.digest "
            f"FROM (SELECT high, low, unnest(cells) AS c FROM {self._final})"
            + (" UNION ALL SELECT high, low, col, digest FROM taken" if self._has_taken else "")
        )

    def _complete(self) -> None:
        """Values that the last event of a key did not tell are those of the latest event before it that did,
        back to its insert, else of the ledger."""
        if self._one(f"SELECT count(*) FROM events WHERE len(absent) > 0 AND op <> {UPDATE}"):
            raise Contradiction("a row that moved was not told whole")
        self._connection.execute(
            f"""CREATE OR REPLACE TEMP TABLE taken AS
            WITH latest AS (SELECT * FROM numbered WHERE epoch = (SELECT last FROM how)),
            begun AS (SELECT high, low, max(i) AS s FROM latest WHERE op IN ({INSERT}, {READ})
                          GROUP BY ALL),
            told AS (SELECT high, low, i, c.column AS col, c.digest AS digest
                     FROM (SELECT high, low, i, unnest(cells) AS c FROM latest)),
            untold AS (SELECT high, low, i, j, unnest(absent) AS col FROM latest),
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
        self._has_taken = True

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
            buckets.take_off(self._sums("met WHERE place IS NOT NULL"))
        buckets.merge(self._sums(f"{self._final} WHERE op <> {DELETE}"))

    def _sums(self, rows: str) -> Buckets:
        summed = Buckets.empty()
        found = self._connection.execute(f"SELECT high, {', '.join(_ROW)} FROM {rows}")
        for batch in found.to_arrow_reader(GROUP_ROWS):
            summed.merge(_summed(batch))
        return summed

    def _one(self, sql: str) -> Any:
        found = self._connection.execute(sql).fetchone()
        assert found is not None
        return found[0]


def begins(segment: Segment, mode: Mode) -> bool:
    """Whether nothing counts that was before it. A seed of an append table may stand beside its rows."""
    return segment.header.kind == "base" and (mode == "mirror" or segment.previous == NO_HEAD)


def _twice(rows: str, key: str) -> str:
    """The keys that stand there more than once."""
    return f"SELECT {key} FROM {rows} GROUP BY {key} HAVING count(*) > 1"


def _contradicting(changes: int) -> Contradiction:
    return Contradiction(f"{changes} changes contradict what was there before them")


def _is_any(lists: pa.Array) -> bool:
    """Whether one of them has something in it."""
    return bool(lists.null_count < len(lists)) and len(lists.flatten()) > 0


def _summed(rows: pa.Table | pa.RecordBatch) -> Buckets:
    """At most GROUP_ROWS of them: in so few, sums of 32 bits are whole numbers that a float holds."""
    at = (rows.column("high").to_numpy() >> np.uint64(52)).astype(np.int64)
    summed = Buckets.empty()
    summed.counts += np.bincount(at, minlength=BUCKETS)
    for n, name in enumerate(_ROW):
        limbs = np.bincount(at, rows.column(name).to_numpy(), BUCKETS)
        summed.sums[:, n] = limbs.astype(np.uint64)
    summed.sums = carried(summed.sums)
    return summed


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
            buckets.merge(_summed(_staged(batch, 0, 0)[0]))


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
