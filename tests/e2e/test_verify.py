"""`truecut verify`: honest copies pass; whatever is done to a copy behind our back is named by its key."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
from pyspark.sql import SparkSession

from tests.e2e.process import run, truecut
from tests.e2e.world import World
from tests.postgres_server import PostgresServer
from tests.sources.postgres.piped import Piped, pipeline_document
from truecut.certificate.issue import Issued, certificate_paths, issue, last_issued
from truecut.certificate.sign import signer
from truecut.runtime.certificate_files import examined
from truecut.runtime.certified import claims_of
from truecut.runtime.checked import Checked, verdict_of
from truecut.runtime.looking_over import looked_over
from truecut.runtime.verification import Verification, reread_of

TABLES = "(id BIGINT, tenant VARCHAR, x DOUBLE, amount DECIMAL(9,2), moment TIMESTAMP, note VARCHAR)"
FIRST = "i, ['acme', 'globex'][1 + i % 2], 0.0, i / 4, TIMESTAMP '2026-01-01' + INTERVAL (i) SECOND, 'note'"

# What is done to a row of the copy, and what verification says of it.
CHEATS: list[tuple[str, str]] = [
    ("UPDATE lake.main.events SET note = 'other' WHERE id = {}", "differs"),
    ("DELETE FROM lake.main.events WHERE id = {}", "missing"),
    ("INSERT INTO lake.main.events SELECT * FROM lake.main.events WHERE id = {}", "extra"),
    ("UPDATE lake.main.events SET note = NULL WHERE id = {}", "differs"),
    ("UPDATE lake.main.events SET note = note || ' ' WHERE id = {}", "differs"),
    ("UPDATE lake.main.events SET x = '-0.0'::DOUBLE WHERE id = {}", "differs"),
    ("UPDATE lake.main.events SET moment = moment + INTERVAL 1 MICROSECOND WHERE id = {}", "differs"),
    ("UPDATE lake.main.events SET amount = amount + 0.01 WHERE id = {}", "differs"),
    ("UPDATE lake.main.events SET tenant = 'globex' WHERE id = {}", "differs"),
    (
        "INSERT INTO lake.main.events SELECT * REPLACE (-id AS id) FROM lake.main.events WHERE id = {}",
        "extra",
    ),
]


def pipeline(**spec: Any) -> dict[str, Any]:
    lake = {"type": "ducklake", "catalog": "sqlite:lakes/{tenant}.db", "data_path": "lakes/{tenant}"}
    sinks = [
        {
            **lake,
            "catalog": f"sqlite:lakes/{name}.db",
            "data_path": f"lakes/{name}",
            "name": name,
            "route": name,
        }
        for name in ("acme", "globex")
    ]
    everything = {
        "name": "all",
        "type": "ducklake",
        "catalog": "sqlite:lakes/all.db",
        "data_path": "lakes/all",
    }
    log = {
        **everything,
        "name": "log",
        "catalog": "sqlite:lakes/log.db",
        "data_path": "lakes/log",
        "mode": "append",
    }
    return {
        "apiVersion": "truecut/v1",
        "kind": "Pipeline",
        "metadata": {"name": "verified"},
        "spec": {
            "source": {"type": "ducklake", "catalog": "sqlite:source.db", "data_path": "source"},
            "tables": [{"name": "main.events", "key": ["id"], "route_by": "tenant"}],
            "sinks": [*sinks, everything, log],
            **spec,
        },
    }


def checks_of(world: World, spark: SparkSession) -> list[Checked]:
    settings = world.pipeline()
    with reread_of(settings) as reread:
        sinks = frozenset(sink.name for sink in settings.sinks)
        asked = Verification(settings, spark, reread, frozenset({"main.events"}), sinks)
        return claims_of(settings, asked).run()


def verified(world: World, spark: SparkSession) -> dict[str, Checked]:
    return {check.sink: check for check in checks_of(world, spark)}


def test_every_cheat_is_named(make_world: Callable[[dict[str, Any]], World], spark: SparkSession) -> None:
    """One row after the other is changed, deleted, doubled, moved, or only looks the same: each is found, at
    the sink where it was done and nowhere else, with its key and what is wrong with it. Before that all is
    well, also where the source has gone on since; and an append table is never called equal."""
    world = make_world(pipeline())
    world.source(
        f"CREATE TABLE lake.main.events {TABLES}",
        f"INSERT INTO lake.main.events SELECT {FIRST} FROM range(400) r(i)",
        "UPDATE lake.main.events SET note = 'changed' WHERE id % 7 = 0",
        "UPDATE lake.main.events SET tenant = 'acme' WHERE id = 5",
        "DELETE FROM lake.main.events WHERE id % 50 = 1",
    )
    assert world.catch_up().reached
    world.source("UPDATE lake.main.events SET note = 'later'")
    honest = verified(world, spark)
    assert {name: check.verdict for name, check in honest.items()} == {
        "acme": "pass",
        "globex": "pass",
        "all": "pass",
        "log": "unknown",
    }
    assert verdict_of(honest.values()) == "unknown"
    expected = {}
    for number, (cheat, at_sink) in enumerate(CHEATS):
        key = 300 - 2 * number
        world.tenant("acme", cheat.format(key))
        expected[-key if "-id" in cheat else key] = at_sink
    cheated = verified(world, spark)
    found = cheated["acme"]
    assert found.verdict == "fail"
    assert {one["key"]["id"]: one["at_sink"] for one in found.witnesses} == expected
    assert found.document()["witness"] == {"key": {"id": min(expected)}, "at_sink": "extra"}
    counted = {word: list(expected.values()).count(word) for word in ("missing", "extra", "differs")}
    assert {word: found.document()[word] for word in counted} == counted
    assert {cheated[name].verdict for name in ("globex", "all")} == {"pass"}


def test_source_and_copies_are_what_is_certified(
    make_world: Callable[[dict[str, Any]], World], spark: SparkSession
) -> None:
    """Where certificates are issued, their files are examined, and source and sink are each compared with the
    claim, an append table, too. A row that is changed at the sink fails V5 there and nothing else; a file of
    evidence that is hurt fails V1. A chain that forked, and claims the same, is not the one that the sinks
    were told of."""
    world = make_world(pipeline(certificate={"path": "certificates"}))
    world.source(
        f"CREATE TABLE lake.main.events {TABLES}",
        f"INSERT INTO lake.main.events SELECT {FIRST} FROM range(60) r(i)",
    )
    assert world.catch_up().reached
    world.source(
        "UPDATE lake.main.events SET note = 'changed' WHERE id % 7 = 0",
        "DELETE FROM lake.main.events WHERE id % 20 = 1",
    )
    assert world.catch_up().reached
    folder = world.folder / "certificates"
    files = examined(folder)
    assert {(check.level, check.verdict) for check in files} == {(f"V{n}", "pass") for n in range(3)}
    assert {(check.table, check.sink) for check in files} == {
        ("main.events", name) for name in ("acme", "globex", "all", "log")
    }
    told = {(check.sink, check.level): check.verdict for check in checks_of(world, spark)}
    mirrors = {(name, level): "pass" for name in ("acme", "globex", "all") for level in ("V4", "V5")}
    assert told == {**mirrors, ("log", "V4"): "unknown", ("log", "V5"): "pass"}
    with forked(folder):
        strange = checks_of(world, spark)
    assert {(check.level, check.verdict) for check in strange} == {("V5", "fail")}
    assert all("not of this chain" in check.detail for check in strange)
    world.tenant("acme", "UPDATE lake.main.events SET note = note || ' ' WHERE id = 4")
    world.tenant("log", "UPDATE lake.main.events SET _truecut_op = 'delete' WHERE id = 4")
    cheated = checks_of(world, spark)
    assert {(check.sink, check.level) for check in cheated if check.verdict == "fail"} == {
        ("acme", "V5"),
        ("log", "V5"),
    }
    (named,) = [check for check in cheated if check.verdict == "fail" and check.sink == "acme"]
    assert named.witnesses == ({"key": {"id": 4}, "at_sink": "differs"},)
    hurt = max(folder.glob("evidence/*/*.parquet"), key=lambda path: path.stat().st_size)
    raw = bytearray(hurt.read_bytes())
    raw[len(raw) // 2] ^= 1
    hurt.write_bytes(raw)
    assert ("V1", "fail") in {(check.level, check.verdict) for check in examined(folder)}


@contextmanager
def forked(folder: Path) -> Iterator[None]:
    """In place of the certificates another one by the same key, which claims the very same."""
    claimed = last_issued(folder)
    kept = {path: path.read_bytes() for path in certificate_paths(folder)}
    for path in kept:
        path.unlink()
    made = issue(
        folder,
        signer(folder),
        before=Issued(),
        pipeline="verified",
        source=claimed.document["source"],
        captured=False,
        copies=list(claimed.copies.values()),
        issued_at="2026-01-01T00:00:00Z",
    )
    assert made is not None
    yield
    for path in certificate_paths(folder):
        path.unlink()
    for path, raw in kept.items():
        path.write_bytes(raw)


def test_a_source_that_cannot_be_read_is_an_answer(
    make_world: Callable[[dict[str, Any]], World], spark: SparkSession
) -> None:
    """In a run it is kept as unknown of every copy, and asked again after the interval: nobody issues
    certificates while it is asked."""
    world = make_world(pipeline(certificate={"path": "certificates"}))
    found = looked_over(world.pipeline(), spark, "sink", runner="r", ended=Event())
    assert [(one.table, one.sink, one.verdict) for one in found if one.level == "V4"] == [("", "", "unknown")]


def test_what_cannot_be_read_is_unknown(
    make_world: Callable[[dict[str, Any]], World], spark: SparkSession, tmp_path: Path
) -> None:
    """A copy that was never made, a place that the source has forgotten, a sink that is gone: nobody says
    that they are equal, nor that they are not."""
    world = make_world(pipeline())
    world.source(f"CREATE TABLE lake.main.events {TABLES}")
    assert {check.verdict for check in verified(world, spark).values()} == {"unknown"}
    world.source(f"INSERT INTO lake.main.events SELECT {FIRST} FROM range(10) r(i)")
    assert world.catch_up().reached
    (tmp_path / "lakes" / "globex.db").unlink()
    world.source("INSERT INTO lake.main.events (id, tenant) VALUES (99, 'acme')")
    assert verified(world, spark)["acme"].verdict == "pass"
    world.source(
        "CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 DAY)",
    )
    found = verified(world, spark)
    assert {check.verdict for check in found.values()} == {"unknown"}


def test_a_live_server_and_its_copies(tmp_path: Path, postgres: PostgresServer) -> None:
    """By the command: the server is read at the place of a slot, the sinks are brought there, and both kinds
    pass; then a row is changed in each. Nobody sees a password."""
    dsn, target = postgres.create_database("verified_shop"), postgres.create_database("verified_target")
    with psycopg.connect(dsn, autocommit=True) as shop:
        shop.execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY, note text, price numeric, tags text[], doc jsonb, "
            "at timestamptz, code char(5), big text)"
        )
        shop.execute("ALTER TABLE orders ALTER big SET STORAGE EXTERNAL")
        shop.execute(
            "INSERT INTO orders SELECT i, 'n' || i, i / 8.0, ARRAY['a', NULL], '{\"a\": 1}', 'infinity', "
            "'ab', repeat('x', 3000) FROM generate_series(1, 500) i"
        )
    sinks = [
        {"name": "lake", "type": "ducklake", "catalog": "sqlite:lake.db", "data_path": "lake-data"},
        {"name": "warehouse", "type": "postgres", "dsn": f"{target} password=hush"},
    ]
    document = pipeline_document("seen", f"{dsn} password=hush", [{"name": "public.orders"}], sinks=sinks)
    piped = Piped(tmp_path, dsn, document)
    world = World(tmp_path, None, document)
    world.save()
    try:
        first = run(world, "--until-caught-up")
        assert first.code == 0, first.stderr
        with psycopg.connect(dsn, autocommit=True) as shop:
            shop.execute("UPDATE orders SET note = 'more' WHERE id % 3 = 0")
            shop.execute("DELETE FROM orders WHERE id % 100 = 7")
        well = truecut("verify", world.file, "--json")
        assert well.code == 0, well.stdout + well.stderr
        checks = json.loads(well.stdout)["checks"]
        assert [(check["sink"], check["verdict"]) for check in checks] == [
            ("lake", "pass"),
            ("warehouse", "pass"),
        ]
        world.tenant("lake", "UPDATE lake.public.orders SET note = note || ' ' WHERE id = 42")
        with psycopg.connect(target, autocommit=True) as warehouse:
            warehouse.execute("DELETE FROM public.orders WHERE id = 43")
        worse = truecut("verify", world.file, "--json")
        assert worse.code == 4, worse.stderr
        told = {check["sink"]: check for check in json.loads(worse.stdout)["checks"]}
        assert told["lake"]["witness"] == {"key": {"id": 42}, "at_sink": "differs"}
        assert told["warehouse"]["witness"] == {"key": {"id": 43}, "at_sink": "missing"}
        assert "hush" not in well.stdout + well.stderr + worse.stdout + worse.stderr
    finally:
        truecut("drop", world.file)
        piped.close()
