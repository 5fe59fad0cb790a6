"""Certificates end to end: what they claim is what source and sinks hold, read by plain DuckDB and digested
by the verifier's code, row by row."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.e2e.process import run, truecut
from tests.e2e.test_mirror import CREATE, fill
from tests.e2e.test_postgres_source import MADE, work
from tests.e2e.world import World, tenants_document
from tests.postgres_server import PostgresServer
from tests.sources.postgres.piped import Piped, pipeline_document
from truecut.failpoint import EVIDENCE, KILLED
from truecut.lake import lake_of
from truecut_verify import digest as plain

MakeWorld = Callable[[dict[str, Any]], World]


def certified(world: World) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All certificates, checked for signature and order; and the rows of the last one's table of copies."""
    folder = world.folder / "certificates"
    public = serialization.load_pem_public_key((folder / "public.pem").read_bytes())
    assert isinstance(public, Ed25519PublicKey)
    found: list[dict[str, Any]] = []
    previous = ""
    for path in sorted(folder.glob("*.json")):
        raw = path.read_bytes().removesuffix(b"\n")
        assert len(raw) <= 2048
        document = json.loads(raw)
        unsigned = {key: value for key, value in document.items() if key != "signature"}
        text = json.dumps(unsigned, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        public.verify(bytes.fromhex(document["signature"]), text.encode())
        assert (document["number"], document["previous"]) == (len(found) + 1, previous)
        previous = hashlib.sha256(raw).hexdigest()
        copies = folder / document["copies"]["file"]
        assert hashlib.sha256(copies.read_bytes()).hexdigest() == document["copies"]["sha256"]
        found.append(document)
    return found, pq.read_table(folder / found[-1]["copies"]["file"]).to_pylist()


def assert_verified(world: World) -> None:
    """The independent verifier, offline: signatures, evidence, replay (V0 to V2)."""
    program = "import sys; from truecut_verify.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, str(world.folder / "certificates")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: pass" in done.stdout


def root_of(world: World, copy: dict[str, Any], rows: pa.Table) -> bytes:
    """As the page says it, row by row."""
    secret = (world.folder / "certificates" / "secret").read_bytes()
    columns = {name: (number, form) for name, number, form in json.loads(copy["columns"])}
    key = json.loads(copy["key"])
    table = plain.Table(
        copy["scope"],
        [(name, columns[name][1]) for name in key],
        [(name, *one) for name, one in columns.items() if name not in key],
    )
    sums, counts = [0] * 4096, [0] * 4096
    for n in range(rows.num_rows):
        found, total = plain.row_digest(secret, table, {name: rows.column(name)[n] for name in columns})
        bucket = plain.bucket(found)
        sums[bucket], counts[bucket] = (sums[bucket] + total) % plain.MODULUS, counts[bucket] + 1
    words = b"".join((one >> 32 * n & 0xFFFF_FFFF).to_bytes(4, "big") for one in sums for n in range(4))
    return hashlib.sha256(words + b"".join(n.to_bytes(8, "big") for n in counts)).digest()


def at_source(world: World, copy: dict[str, Any]) -> pa.Table:
    """The rows of this copy's route at the certificate's version."""
    version = int(copy["at"].split("-")[1], 16)
    where = "" if copy["route"] is None else f"WHERE tenant = '{copy['route']}'"
    with world._attached(lake_of(world.pipeline().source.address)) as connection:
        return connection.execute(
            f"SELECT * FROM lake.{copy['table']} AT (VERSION => {version}) {where}"
        ).to_arrow_table()


def at_sink(world: World, copy: dict[str, Any]) -> pa.Table:
    address = next(lake_of(s.address) for s in world.pipeline().sinks if s.name == copy["sink"])
    with world._attached(address) as connection:
        return connection.execute(f"FROM lake.{copy['table']}").to_arrow_table()


def evidence_at_sink(world: World, sink: str, table: str = "main.events") -> tuple[str, str]:
    """The head of a copy's chain, and the certificate that the cursor keeps."""
    query = "SELECT state FROM lake._truecut.cursor ORDER BY number DESC LIMIT 1"
    state = json.loads(world.sink_rows(sink, query)[0][0])
    return state["copies"][table]["evidence"], state["certificate"]


CHANGES = (
    "UPDATE lake.main.events SET v = v + 1 WHERE id % 10 = 0",
    "DELETE FROM lake.main.events WHERE id < 5",
    "UPDATE lake.main.events SET tenant = 't0' WHERE id BETWEEN 20 AND 25",
    "UPDATE lake.main.events SET id = id + 10000 WHERE id BETWEEN 30 AND 33",
    "INSERT INTO lake.main.events VALUES (1, 't1', 7), (2, 'nobody', 8), (3, NULL, NULL)",
)


def with_certificates(document: dict[str, Any]) -> dict[str, Any]:
    document["spec"]["certificate"] = {"path": "certificates", "interval": "1s"}
    return document


def test_a_certificate_claims_what_source_and_sinks_hold(make_world: MakeWorld) -> None:
    """Seeds, then changes in several runs; routes; a tenant that has no rows: each copy's root is that of the
    source's rows of its route at that version, and of the sink's rows; the head is the one in the cursor."""
    world = make_world(with_certificates(tenants_document(tenants=["t0", "t1", "t9"])))
    world.source(CREATE, fill(60))
    assert world.catch_up().reached
    for statements in (CHANGES[:2], CHANGES[2:]):
        world.source(*statements)
        assert world.catch_up().reached
        documents, copies = certified(world)
        assert [copy["verdict"] for copy in copies] == ["certified"] * 3, copies
        for copy in copies:
            assert root_of(world, copy, at_source(world, copy)) == copy["root"], copy["sink"]
            assert root_of(world, copy, at_sink(world, copy)) == copy["root"], copy["sink"]
            assert at_sink(world, copy).num_rows == copy["rows"]
            head, kept = evidence_at_sink(world, copy["sink"])
            assert head == copy["evidence"]
            assert kept in {"", *(_hash(world, one["number"]) for one in documents)}
    assert world.catch_up().reached
    assert len(certified(world)[0]) == len(documents)  # nothing moved, nothing was issued
    world.assert_mirrors()
    assert_verified(world)


def _hash(world: World, number: int) -> str:
    raw = (world.folder / "certificates" / f"{number:010d}.json").read_bytes().removesuffix(b"\n")
    return hashlib.sha256(raw).hexdigest()


def test_an_append_table_is_certified(make_world: MakeWorld) -> None:
    """Every change is a row of it: the root is that of the sink's rows."""
    world = make_world(with_certificates(tenants_document(tenants=["t0", "t1"], mode="append")))
    world.source(CREATE, fill(30))
    assert world.catch_up().reached
    world.source(*CHANGES)
    assert world.catch_up().reached
    _, copies = certified(world)
    for copy in copies:
        assert (copy["verdict"], copy["rows"]) == ("certified", at_sink(world, copy).num_rows)
        assert root_of(world, copy, at_sink(world, copy)) == copy["root"], copy["sink"]
    assert_verified(world)


def test_columns_that_change_make_it_unknown_where_old_rows_change(make_world: MakeWorld) -> None:
    """A column with NULL in the old rows goes on; one with a default does not, and the reason says so."""
    world = make_world(with_certificates(tenants_document(tenants=["t0"])))
    world.source(CREATE, fill(9))
    assert world.catch_up().reached
    world.source(
        "ALTER TABLE lake.main.events ADD COLUMN w INTEGER", "UPDATE lake.main.events SET w = 1 WHERE id = 3"
    )
    assert world.catch_up().reached
    copy = certified(world)[1][0]
    assert copy["verdict"] == "certified", copy["reason"]
    assert root_of(world, copy, at_sink(world, copy)) == copy["root"]
    world.source(
        "ALTER TABLE lake.main.events ADD COLUMN x INTEGER DEFAULT 7",
        "INSERT INTO lake.main.events VALUES (99, 't0', 1, 1, 1)",
    )
    assert world.catch_up().reached
    copy = certified(world)[1][0]
    assert (copy["verdict"], copy["root"]) == ("unknown", None)
    assert "columns changed" in copy["reason"]


def test_a_captured_source_with_values_left_out_is_certified(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """PostgreSQL, read in units, then changes that leave large values out: the root is that of the rows at
    the lake. Killed at each point where evidence becomes durable, the next run goes on."""
    dsn = postgres.create_database("certified_shop")
    lake = {"name": "lake", "type": "ducklake", "catalog": "sqlite:lake.db", "data_path": "lake-data"}
    spec = {"certificate": {"path": "certificates", "interval": "1s"}}
    document = pipeline_document("shop", dsn, [{"name": "public.*"}], sinks=[lake], **spec)
    shop = Piped(tmp_path, dsn, document)
    rng = random.Random(7)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in MADE:
            connection.execute(statement.encode())
    try:
        work(rng, dsn, 60)
        world = World(tmp_path, None, document)
        world.save()
        points = ["", *sorted(EVIDENCE)]
        for point in points:
            if point:
                work(rng, dsn, 12)
            armed = {"TRUECUT_FAILPOINT": point, "TRUECUT_TRACE": str(world.traces), **hits(tmp_path)}
            finished = truecut("run", world.file, "--until-caught-up", env=armed)
            assert not point or (tmp_path / "hits" / point).exists(), (point, finished.stderr)
            if finished.code == KILLED:  # otherwise it was a worker
                finished = run(world, "--until-caught-up")
            assert finished.code == 0, finished.stderr
            _, copies = certified(world)
            assert {copy["verdict"] for copy in copies} == {"certified"}, (point, copies)
            for copy in copies:
                head, _ = evidence_at_sink(world, copy["sink"], copy["table"])
                assert head == copy["evidence"], (point, copy["table"])
                assert root_of(world, copy, at_sink(world, copy)) == copy["root"], (point, copy["table"])
        assert_verified(world)
        with psycopg.connect(dsn) as source:
            count = source.execute("SELECT count(*) FROM orders").fetchone()
        assert [copy["rows"] for copy in copies if copy["table"] == "public.orders"] == [count and count[0]]
    finally:
        shop.close()


def hits(folder: Path) -> dict[str, str]:
    (folder / "hits").mkdir(exist_ok=True)
    return {"TRUECUT_FAILPOINT_HITS": str(folder / "hits")}
