"""From a live PostgreSQL to what a mirror would hold: captured, killed once, read back, decoded, replayed.

Every record is decoded with the schemas that the journal has for it and nothing else; what comes out of the
replay is compared with a SELECT, the text of every column, under the names that the columns have in the end.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.postgres_server import ON_BOTH, PostgresServer, postgres_server
from tests.sources.postgres.processes import Process, wait_until_captured
from tests.sources.postgres.shop import Shop
from truecut.failpoint import KILLED
from truecut.journal.reader import LocalReader
from truecut.journal.record import Kind, Record
from truecut.model import change
from truecut.sources.postgres.decode import Decoded, TableChanges, decode
from truecut.sources.postgres.relation import NUMBER_UNKNOWN, Relation, RelationColumn
from truecut.sources.postgres.stream import Open

SETTINGS = ("fsync=off", "wal_level=logical", "logical_decoding_work_mem=64kB")
BIG = "(SELECT string_agg(md5(n::text), '') FROM generate_series({0}, {0} + 200) n)"  # does not compress


@pytest.fixture(scope="module", params=ON_BOTH)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with postgres_server(version=request.param, settings=SETTINGS) as running:
        yield running


# --- what happens at the source ---------------------------------------------------------------------------


@dataclass
class Source:
    """Tables whose names and columns change while they are written to."""

    connection: psycopg.Connection[Any]
    rng: random.Random
    tables: dict[str, list[str]] = field(default_factory=dict)  # name → columns behind the key
    made: int = 0

    def create(self) -> None:
        for name in ("plain", "whole", '"Ünder b"'):
            self.connection.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, c0 text, c1 numeric)")
            self.tables[name] = ["c0", "c1"]
        self.connection.execute("ALTER TABLE whole REPLICA IDENTITY FULL")

    def transaction(self) -> None:
        with self.connection.transaction(force_rollback=self.rng.random() < 0.1):
            for _ in range(self.rng.randrange(1, 6)):
                with self.connection.transaction(force_rollback=self.rng.random() < 0.2):
                    self._write(self.rng.choice(list(self.tables)))

    def large(self) -> None:
        """In parts, with columns that change in its middle."""
        table = self.rng.choice(list(self.tables))
        with self.connection.transaction():
            self._many(table)
            self.connection.execute(f"ALTER TABLE {table} ADD COLUMN {self._new(table)} boolean")
            self._many(table)

    def _many(self, table: str) -> None:
        first = self.rng.randrange(10**6)
        names = ", ".join(["id", *self.tables[table][:1]])
        self.connection.execute(
            f"INSERT INTO {table} ({names}) SELECT i, md5(i::text) FROM generate_series(%s::int8, %s) i"
            " ON CONFLICT DO NOTHING",
            (first, first + 600),
        )

    def _write(self, table: str) -> None:
        key, other = self.rng.randrange(8), self.rng.randrange(10, 10**6)
        text = self.rng.choice(["NULL", "''", "'x'", BIG.format(other)])
        column = self.tables[table][0]
        statements = [
            f"INSERT INTO {table} (id, {column}) VALUES ({key}, {text}) ON CONFLICT DO NOTHING",
            f"UPDATE {table} SET {column} = {text} WHERE id = {key}",
            f"UPDATE {table} SET {column} = {column} WHERE id = {key}",
            f"UPDATE {table} SET id = {other} WHERE id = {key} AND {other} NOT IN (SELECT id FROM {table})",
            f"DELETE FROM {table} WHERE id = {key}",
            f"TRUNCATE {table}" if self.rng.random() < 0.1 else f"DELETE FROM {table} WHERE id > 900000",
        ]
        self.connection.execute(self.rng.choices(statements, weights=[6, 3, 3, 2, 1, 1])[0])

    def alter(self) -> None:
        """One change of a schema, and rows behind it."""
        table = self.rng.choice(list(self.tables))
        columns = self.tables[table]
        what = self.rng.randrange(4)
        if what == 0:
            self.connection.execute(f"ALTER TABLE {table} ADD COLUMN {self._new(table)} text")
        elif what == 1 and len(columns) > 1:
            self.connection.execute(f"ALTER TABLE {table} DROP COLUMN {columns.pop()}")
        elif what == 2:
            self.made += 1
            self.connection.execute(f"ALTER TABLE {table} RENAME {columns[0]} TO r{self.made}")
            columns[0] = f"r{self.made}"
        else:
            self.made += 1
            self.connection.execute(f"ALTER TABLE {table} RENAME TO t{self.made}")
            self.tables[f"t{self.made}"] = self.tables.pop(table)
        self.touch()

    def again(self) -> None:
        """A column is dropped, and another one of its name and type made: no row has a value in it."""
        for table, columns in self.tables.items():
            kind = self._one(
                f"SELECT pg_typeof({columns[-1]})::text FROM (SELECT) x LEFT JOIN {table} ON true"
            )
            self.connection.execute(f"ALTER TABLE {table} DROP COLUMN {columns[-1]}")
            self.connection.execute(f"ALTER TABLE {table} ADD COLUMN {columns[-1]} {kind}")
        self.touch()

    def touch(self) -> None:
        """A row of each table: the stream tells of a new schema with the first change behind it."""
        for table in self.tables:
            self.made += 1
            self.connection.execute(f"INSERT INTO {table} (id) VALUES ({2 * 10**6 + self.made})")

    def _new(self, table: str) -> str:
        self.made += 1
        self.tables[table].append(f"n{self.made}")
        return f"n{self.made}"

    def _one(self, query: str) -> Any:
        row = self.connection.execute(query).fetchone()
        assert row is not None
        return row[0]

    def held(self) -> dict[str, dict[str, dict[str, str | None]]]:
        """Table → key → column → text."""
        found = {}
        for table in self.tables:
            cursor = self.connection.execute(f"SELECT * FROM {table} LIMIT 0")
            names = [column.name for column in cursor.description or ()]
            texts = ", ".join(f'"{name}"::text' for name in names)
            rows = self.connection.execute(f"SELECT {texts} FROM {table}").fetchall()
            found[table.strip('"')] = {row[0]: dict(zip(names, row, strict=True)) for row in rows}
        return found


# --- what comes out of the journal ------------------------------------------------------------------------


def groups(folder: Path) -> Iterator[tuple[list[Record], Mapping[int, Relation]]]:
    """Records of changes between two markers, and the schemas that stand there."""
    changes: list[Record] = []
    schemas: dict[int, Relation] = {}
    for _, record in LocalReader(folder).read(after=None):
        if record.kind is Kind.CHANGES:
            changes.append(record)
        elif record.kind is Kind.SCHEMA:
            schemas[record.schemas[0]] = Relation.of(json.loads(record.payload))
        else:
            assert not changes or changes[-1].last, "nothing is void where there was no gap"
            yield changes, schemas
            changes, schemas = [], {}
    assert not changes, "a marker stands behind the last change"


def versions(records: Sequence[Record], schemas: Mapping[int, Relation]) -> dict[int, list[Relation]]:
    """As the heads name them."""
    found: dict[int, list[Relation]] = {}
    for id in dict.fromkeys(id for record in records for id in record.schemas):
        found.setdefault(schemas[id].oid, []).append(schemas[id])
    return found


def decoded_one_by_one(records: Sequence[Record], schemas: Mapping[int, Relation]) -> Iterator[Decoded]:
    opened: Open | None = None
    for record in records:
        one = decode([record.payload], versions([record], schemas), opened=opened)
        opened = one.open
        assert (opened is None) == record.last
        yield one


def events(found: Sequence[Decoded]) -> list[tuple[tuple[int, int], TableChanges, dict[str, Any]]]:
    """Of all tables, in the order of place and seq."""
    assert not any(one.unknown for one in found)
    tables = [table for one in found for table in one.tables]
    assert not any(table.stop for table in tables)
    rows = [(table, row) for table in tables for row in table.rows.to_pylist()]
    made = [((row[change.PLACE], row[change.SEQ]), table, row) for table, row in rows]
    return sorted(made, key=lambda one: one[0])


# --- a plain mirror ---------------------------------------------------------------------------------------


@dataclass
class Mirror:
    """One table: rows by their key's text, each a text for a column."""

    relation: Relation
    rows: dict[str, dict[str, str | None]] = field(default_factory=dict)
    taken: dict[str, str | None] = field(default_factory=dict)

    def turn(self, relation: Relation) -> None:
        """Other columns: one that keeps its number keeps its values."""
        sources = {column.name: self._source(column) for column in relation.columns}
        if relation != self.relation:
            for key, row in self.rows.items():
                self.rows[key] = {name: row[old] if old else None for name, old in sources.items()}
            self.relation = relation

    def _source(self, column: RelationColumn) -> str | None:
        for old in self.relation.columns:
            known = NUMBER_UNKNOWN not in (old.number, column.number)
            if old.number == column.number if known else old.name == column.name:
                return old.name
        return None

    def take(self, row: Mapping[str, Any]) -> None:
        before, after = _texts(row[change.BEFORE]), _texts(row[change.AFTER])
        if row[change.OP] == change.TRUNCATE:
            self.rows.clear()
        elif row[change.OP] == change.DELETE:
            self.taken = self.rows.pop(str(before["id"]))
        else:
            assert row[change.OP] == change.UPDATE or str(after["id"]) not in self.rows
            own = self.rows.get(str(after["id"]), self.taken)
            names = list(after)
            self.rows[str(after["id"])] = after | {
                names[n]: own[names[n]] for n in row[change.UNCHANGED] or ()
            }


def _texts(row: Mapping[str, Any] | None) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in (row or {}).items()}


def replayed(folder: Path) -> dict[str, dict[str, dict[str, str | None]]]:
    """What the tables are by the journal."""
    mirrors: dict[int, Mirror] = {}
    last = (0, -1)
    for records, schemas in groups(folder):
        found = events(list(decoded_one_by_one(records, schemas)))
        assert _same(found, events([decode([one.payload for one in records], versions(records, schemas))]))
        for place, table, row in found:
            assert place > last, "once, in the order of commits"
            last = place
            mirror = mirrors.setdefault(table.relation.oid, Mirror(table.relation))
            mirror.turn(table.relation)
            mirror.take(row)
    return {mirror.relation.name.table: mirror.rows for mirror in mirrors.values()}


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Record by record or all at once: the same events."""
    stripped = [
        [(place, table.relation, {**row, "_truecut_record": 0}) for place, table, row in found]
        for found in (one, other)
    ]
    return stripped[0] == stripped[1]


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_captured_and_decoded_is_what_the_tables_hold(
    server: PostgresServer, tmp_path: Path, seed: int
) -> None:
    """Random changes with savepoints, large values, changed keys, truncates and large transactions; columns
    that are added, dropped, renamed and made anew; tables that are renamed; one kill between the parts of a
    large transaction."""
    shop = Shop(server, f"seam{seed}")
    armed = tmp_path / "armed"
    armed.mkdir()
    running = Process(shop, tmp_path, TRUECUT_FAILPOINT=f"@{armed}")
    wait_until_captured(shop, tmp_path, running)
    with shop.connect() as connection:
        source = Source(connection, random.Random(seed))
        source.create()
        for step in range(12):
            for _ in range(8):
                source.transaction()
            wait_until_captured(shop, tmp_path, running)
            source.again() if step == 8 else source.alter()
            if step == 5:
                (armed / "capture_part_appended").touch()
                source.large()
                assert running.end() == KILLED
                source.transaction()
                running = Process(shop, tmp_path)
                wait_until_captured(shop, tmp_path, running)
        source.large()
        source.touch()
        wait_until_captured(shop, tmp_path, running)
        running.stop()
        expected = source.held()
    found = replayed(tmp_path / "journal")
    assert found.keys() == expected.keys()
    for table, rows in expected.items():
        assert found[table].keys() == rows.keys(), table
        assert [row for row in rows.values() if found[table][str(row["id"])] != row] == []
    assert all(len(rows) > 10 for rows in found.values())
