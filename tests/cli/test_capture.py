"""`truecut capture`: the journal fills while it runs, and it ends cleanly; a source with a history of its own
is not captured."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg

from tests.cli.inside import call
from tests.e2e.process import started, truecut
from tests.e2e.world import World, eventually, tenants_document
from tests.postgres_server import PostgresServer
from tests.sources.postgres.piped import Piped, pipeline_document
from truecut.errors import TruecutError


def test_changes_are_captured_until_it_is_stopped(tmp_path: Path, postgres: PostgresServer) -> None:
    """What commits meanwhile is in the journal; `status` tells that it captures; Ctrl-C ends it with 0; then
    the slot is free, and nobody saw the password."""
    conninfo = postgres.create_database("capture_alone")
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
    document = pipeline_document("alone", f"{conninfo} password=hush", [{"name": "public.t"}])
    piped = Piped(tmp_path, conninfo, document)
    piped.pipeline()
    file = tmp_path / "pipeline.yaml"
    with started("capture", file) as process:
        eventually(lambda: _head(piped) is not None, what="a journal")
        before = _head(piped)
        with piped.connect() as connection:
            connection.execute("INSERT INTO t VALUES (1)")
        eventually(lambda: _head(piped) != before, what="the change in the journal")
        eventually(lambda: _captured_by(file) in ("backlog", "tail"), what="a capture that tells of itself")
        ended = process.stop()
    assert ended.code == 0, ended.stderr
    assert "hush" not in ended.stdout + ended.stderr
    free = "SELECT active FROM pg_replication_slots WHERE slot_name = 'truecut_alone'"
    assert postgres.psql(free) == "f"
    piped.close()


def _captured_by(file: Path) -> str:
    told = truecut("status", file, "--json")
    assert "hush" not in told.stdout + told.stderr
    return str(json.loads(told.stdout)["source"]["captured_by"])


def _head(piped: Piped) -> str | None:
    try:
        return str(piped.source().observe().head)
    except TruecutError:
        return None


def test_a_source_with_a_history_of_its_own_is_not_captured(tmp_path: Path) -> None:
    """Said at once, before anything is made."""
    world = World(tmp_path, None, tenants_document(tenants=["t0"]))
    world.save()
    answer = call("capture", world.file)
    assert (answer.code, "TC1094" in answer.stderr) == (2, True)
    assert not (tmp_path / ".truecut").exists()
