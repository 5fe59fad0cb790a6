"""Tables that change while they are copied: overlapping transactions with savepoints, rollbacks, changed
keys, large values and truncates, one step at a time, so that a test says what happens between which."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import psycopg

SESSIONS = 4
ROWS = 160
FAR = 10_000
BIG = "(SELECT string_agg(md5(n::text), '') FROM generate_series({0}, {0} + 90) n)"  # stored apart

SETUP = """
CREATE TABLE items (id bigint PRIMARY KEY, n int, big text, note text);
ALTER TABLE items ALTER big SET STORAGE EXTERNAL;
CREATE TABLE pairs (a text COLLATE "C", b int, n int, big text, PRIMARY KEY (a, b));
ALTER TABLE pairs ALTER big SET STORAGE EXTERNAL;
ALTER TABLE pairs REPLICA IDENTITY FULL;
CREATE TABLE bag (id bigint, n int, big text);
ALTER TABLE bag REPLICA IDENTITY FULL;
"""
TABLES = {"items": ("id", "n", "big", "note"), "pairs": ("a", "b", "n", "big"), "bag": ("id", "n", "big")}


class Database(Protocol):
    """Where it all happens."""

    @property
    def conninfo(self) -> str: ...
    def connect(self) -> psycopg.Connection[Any]: ...


class Busy:
    """Each session writes rows of its own, so none waits for another."""

    def __init__(self, shop: Database, rng: random.Random) -> None:
        self.shop = shop
        self.rng = rng
        with shop.connect() as connection:
            connection.execute(SETUP)
            rows = f"FROM generate_series(1, {ROWS}) i"
            big = BIG.format("i")
            connection.execute(f"INSERT INTO items SELECT i, 0, {big}, 'first' {rows}")
            connection.execute(f"INSERT INTO pairs SELECT 'k' || i % 7, i, 0, {big} {rows}")
            connection.execute(f"INSERT INTO bag SELECT i / 2, 0, {big} {rows}")
        self.sessions = [psycopg.connect(shop.conninfo) for _ in range(SESSIONS)]
        for session in self.sessions:
            session.execute("SET synchronous_commit = local")
            session.commit()

    def close(self) -> None:
        for session in self.sessions:
            session.close()

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def step(self) -> None:
        own = self.rng.randrange(SESSIONS)
        session = self.sessions[own]
        chance = self.rng.random()
        if chance < 0.62:
            session.execute(self._statement(own))
        elif chance < 0.76:
            self._savepoint(own, session)
        elif chance < 0.94:
            session.commit()
        elif chance < 0.98:
            session.rollback()
        else:
            self._truncate()

    def settle(self) -> None:
        for session in self.sessions:
            session.commit()

    def _savepoint(self, own: int, session: psycopg.Connection[Any]) -> None:
        kept = self.rng.random() < 0.6
        session.execute("SAVEPOINT s")
        session.execute(self._statement(own))
        new = self.rng.randrange(FAR, 10 * FAR) * SESSIONS + own
        session.execute(f"INSERT INTO items VALUES ({new}, 7, NULL, 'sub') ON CONFLICT DO NOTHING")
        session.execute("RELEASE s" if kept else "ROLLBACK TO s")

    def _statement(self, own: int) -> str:
        rng = self.rng
        key = rng.randrange(ROWS // SESSIONS) * SESSIONS + own
        new = rng.choice([rng.randrange(ROWS), rng.randrange(FAR)]) * SESSIONS + own
        mine = f"id % {SESSIONS} = {own}"
        free = "NOT EXISTS (SELECT FROM items WHERE id = {})"
        big = BIG.format(rng.randrange(10**6))
        return rng.choice(
            [
                f"UPDATE items SET n = n + 1 WHERE id = {key}",
                f"UPDATE items SET n = n + 1 WHERE id BETWEEN {key} AND {key + 30} AND {mine}",
                f"UPDATE items SET big = {big} WHERE id = {key}",
                f"UPDATE items SET id = {new} WHERE id = {key} AND {free.format(new)}",
                f"UPDATE items SET id = -{new} WHERE id = {new} AND {free.format(-new)}",
                f"DELETE FROM items WHERE id IN ({key}, {new})",
                f"INSERT INTO items VALUES ({new}, 1, {big}, 'new') ON CONFLICT DO NOTHING",
                f"UPDATE pairs SET n = n + 1 WHERE b = {key}",
                f"UPDATE pairs SET a = 'z' || a WHERE b = {key} AND length(a) < 9",
                f"INSERT INTO pairs VALUES ('n', {new}, 2, NULL) ON CONFLICT DO NOTHING",
                f"DELETE FROM pairs WHERE b = {new}",
                f"UPDATE bag SET n = n + 1 WHERE id = {key}",
                f"DELETE FROM bag WHERE id = {key}",
                f"INSERT INTO bag SELECT {new}, 3, 'twice' FROM generate_series(1, 2)",
            ]
        )

    def _truncate(self) -> None:
        """What needs a table for itself."""
        self.settle()
        table = self.rng.choice(list(TABLES))
        with self.shop.connect() as connection:
            connection.execute(f"TRUNCATE {table}")
            if table == "items":
                connection.execute(
                    f"INSERT INTO items SELECT i, 0, {BIG.format('i')}, 'again' FROM generate_series(1, 60) i"
                )


@contextmanager
def busy(shop: Database, seed: int) -> Iterator[Busy]:
    found = Busy(shop, random.Random(seed))
    try:
        yield found
    finally:
        found.close()
