"""Tables that come and go at the source while one run of the command goes on.

It leaves no trace: in the spec's words a run has the same tables all along.
"""

from __future__ import annotations

from pathlib import Path

import psycopg

from tests.e2e.process import started
from tests.e2e.world import World, eventually
from tests.postgres_server import PostgresServer
from tests.sources.postgres.piped import pipeline_document


def held(dsn: str, table: str) -> list[tuple[object, ...]] | None:
    with psycopg.connect(dsn) as connection:
        if connection.execute("SELECT to_regclass(%s)", (table,)).fetchone() == (None,):
            return None
        return connection.execute(f"SELECT id, note FROM {table} ORDER BY id".encode()).fetchall()


def test_a_table_that_a_wildcard_means_is_taken_up_while_the_run_goes_on(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """It is made with content while somebody writes to it, published, copied and followed by the same
    process, beside the others; what was written before it was published is there. One that is excluded is
    not. One that is dropped is held and told, and the others go on: nothing is copied anew."""
    source, target = postgres.create_database("joining"), postgres.create_database("joining_target")
    sinks = [{"name": "warehouse", "type": "postgres", "dsn": target, "schema": "shop"}]
    tables = [{"name": "public.*", "exclude": ["public.tmp_*"]}]
    document = pipeline_document("joining", source, tables, sinks=sinks, batch={"interval": "200ms"})
    world = World(tmp_path, None, document)
    world.save()
    with psycopg.connect(source, autocommit=True) as now, psycopg.connect(source) as writer:
        now.execute("CREATE TABLE first (id int PRIMARY KEY, note text)")
        now.execute("INSERT INTO first VALUES (1, 'a')")
        with started("run", world.file):
            eventually(lambda: held(target, "shop.first") == [(1, "a")], what="the first table")
            now.execute("CREATE TABLE tmp_other (id int PRIMARY KEY, note text)")
            now.execute("CREATE TABLE second (id int PRIMARY KEY, note text)")
            writer.execute("INSERT INTO second VALUES (1, 'before')")
            now.execute("INSERT INTO second SELECT n, 'there' FROM generate_series(2, 50) n")
            now.execute("INSERT INTO first VALUES (2, 'b')")
            member = "SELECT FROM pg_publication_tables WHERE tablename = 'second'"
            eventually(lambda: now.execute(member).fetchone() is not None, what="it is published")
            eventually(lambda: held(target, "shop.first") == [(1, "a"), (2, "b")], what="the first goes on")
            writer.execute("INSERT INTO second VALUES (51, 'behind')")
            writer.commit()
            now.execute("UPDATE second SET note = 'changed' WHERE id % 10 = 0")
            eventually(lambda: held(target, "shop.second") == held(source, "second"), what="the second")
            now.execute("DELETE FROM second WHERE id < 9")
            eventually(lambda: held(target, "shop.second") == held(source, "second"), what="it is followed")
            now.execute("DROP TABLE second")
            now.execute("INSERT INTO first VALUES (3, 'c')")
            eventually(lambda: _is_held(target), what="it is held, and told")
            eventually(lambda: held(target, "shop.first") == held(source, "first"), what="the first goes on")
        assert held(target, "shop.tmp_other") is None
        with psycopg.connect(target) as sink:
            (said,) = sink.execute("SELECT max(c::text) FROM _truecut.cursor c").fetchone() or ("",)
        assert "00000002-" not in said, "the log has gone on, from its beginning to here"
        now.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = current_database() AND NOT active"
        )


def _is_held(target: str) -> bool:
    """The sink's own cursor says so."""
    with psycopg.connect(target) as connection:
        said = connection.execute("SELECT FROM _truecut.cursor c WHERE c::text LIKE '%TC2120%'")
        return said.fetchone() is not None
