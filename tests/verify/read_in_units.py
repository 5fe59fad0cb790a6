"""A PostgreSQL's table, read in units by the real readers while others write, seeded into real sinks,
certified by the real certifier. Spark's part is played in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq

from tests.content.at_hand import run_recover, run_wave
from tests.sources.postgres.piped import Piped, pipeline_document
from truecut.certificate.chain import canonical
from truecut.certificate.issue import Issued, _keep_copies, last_issued
from truecut.certificate.sign import signer
from truecut.core.delivery import Wave
from truecut.core.state import CopyOrder, SinkOrder
from truecut.journal.opening import journal_of
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.runtime.background import Background
from truecut.runtime.certifier import Certifier, Shown
from truecut.runtime.orders import Planner
from truecut.runtime.timetable import Timetable
from truecut.sources.postgres import unit_work
from truecut.sources.postgres.address import server_address, units_of
from truecut.sources.postgres.unit_ledger import Edition
from truecut.spark.wave.job import RecoverJob

T = "public.items"
TENANTS = {"all": None, "acme": "acme", "log": None}
Change = Callable[[psycopg.Connection[Any]], None]


def document(conninfo: str) -> dict[str, Any]:
    """A sink with all rows, one tenant's, and one that keeps every change."""
    sinks = [
        {"name": name, "type": "ducklake", "catalog": f"sqlite:{name}.db", "data_path": f"{name}-data"}
        | ({"route": route} if route else {})
        | ({"mode": "append"} if name == "log" else {})
        for name, route in TENANTS.items()
    ]
    table = {"name": T, "key": ["id"], "route_by": "tenant"}
    spec = {"certificate": {"path": "certificates", "interval": "1s"}}
    return pipeline_document("units", conninfo, [table], sinks=sinks, **spec)


def fill(conninfo: str, rows: int) -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id int PRIMARY KEY, tenant text, n int, pad text)")
        connection.execute("ALTER TABLE items REPLICA IDENTITY FULL")
        connection.execute(
            "INSERT INTO items SELECT i, CASE WHEN i %% 3 = 0 THEN 'acme' WHEN i %% 7 <> 0 THEN 'x' END, 0,"
            " repeat('p', 400) FROM generate_series(1, %s) i",
            (rows,),
        )


@dataclass
class Seeded:
    """One reading of the table, from its plan to its certificate."""

    piped: Piped
    editions: int = 1
    shown: dict[str, Shown] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.piped.folder / "certificates"

    def read(self, *, meanwhile: Change = lambda _: None, unit_bytes: int = 24 << 10) -> Edition:
        """All units, one after another; others write before each."""
        settings = self.piped.pipeline().source
        address, journal = server_address(settings), journal_of(settings)
        self.piped.capture()
        edition = unit_work.begin(
            address, journal, TableName.parse(T), ledger=units_of(settings), unit_bytes=unit_bytes
        )
        with self.piped.connect() as connection:
            for unit in range(len(edition.plan.parts)):
                meanwhile(connection)
                unit_work.ReadUnit(address, journal, edition, unit).run()
            meanwhile(connection)
        return edition

    def seed(self) -> None:
        """Into every sink, by one wave; then a certificate."""
        pipeline = self.piped.pipeline()
        certifier = Certifier(pipeline, folded, Background(), Timetable(), runner="r")
        source = self.piped.source()
        at = self.piped.begin(source)
        identity = source.observe().identity
        takeover = RecoverJob(
            "units", tuple((sink, self.editions, self.editions) for sink in pipeline.sinks), 2, 60_000
        )
        assert {one.outcome for one in run_recover(takeover)} == {"applied"}
        whole = CopyOrder("replace", None, None, self.editions)
        wave = Wave(
            1, "seed",
            {name: SinkOrder(self.editions, self.editions, {T: whole}) for name in TENANTS},
            (T,), None, at,
        )  # fmt: skip
        planner = Planner(pipeline, identity, "")
        window = planner.window(source, wave, parallelism=2)
        assert not window.faults, window.faults
        done = run_wave(planner.job(wave, window, slots=2, deadline_ms=60_000))
        assert {one.outcome for one in done.receipts} == {"applied"}, done.receipts
        assert len(done.receipts) == len(TENANTS)
        self.shown = {one.sink: Shown(one.cursor, "") for one in done.receipts if one.cursor is not None}
        assert certifier._issue_next(self.shown) is not None

    def goes_on(self, folder: Path, *, by: int = 1, **settings: Any) -> Issued:
        """The next certificate in a copy of the folder: nothing came, but every sink stands further on."""
        pipeline = self.piped.pipeline()
        assert pipeline.certificate is not None
        certificate = replace(pipeline.certificate, path=folder, **settings)
        certifier = Certifier(
            replace(pipeline, certificate=certificate), folded, Background(), Timetable(), runner="r"
        )
        issued = certifier._issue_next({name: _further(one, by) for name, one in self.shown.items()})
        assert issued is not None
        return issued

    def issued(self) -> Issued:
        return last_issued(self.folder)


def _further(shown: Shown, by: int) -> Shown:
    copy = shown.cursor.copies[T]
    at = Position(copy.at.generation, copy.at.place + by)
    return replace(shown, cursor=replace(shown.cursor, copies={T: replace(copy, at=at)}))


def folded(foldings: Any) -> Any:
    return [one.run() for one in foldings]


def writes(step: list[int]) -> Change:
    """Updates, deletes, inserts, keys that move from unit to unit, rows that change their route."""

    def write(connection: psycopg.Connection[Any]) -> None:
        step[0] += 1
        n = step[0]
        connection.execute("UPDATE items SET n = n + 1 WHERE id %% 40 = %s", (n % 40,))
        connection.execute("DELETE FROM items WHERE id = %s", (n * 3,))
        connection.execute("UPDATE items SET tenant = 'acme' WHERE id = %s", (n * 5 + 1,))
        connection.execute("UPDATE items SET id = 10000 - id WHERE id = %s", (n * 11 + 2,))
        connection.execute("INSERT INTO items VALUES (%s, 'acme', 7, '')", (5000 - n,))

    return write


@contextmanager
def certified(folder: Path, conninfo: str) -> Iterator[Seeded]:
    """Read while others write; one transaction is open while half of the units are read, so that their
    snapshots disagree."""
    fill(conninfo, 400)
    piped = Piped(folder, conninfo, document(conninfo))
    made, step = Seeded(piped), [0]
    write = writes(step)
    with psycopg.connect(conninfo) as late:

        def meanwhile(connection: psycopg.Connection[Any]) -> None:
            if step[0] == 2:
                late.execute("UPDATE items SET n = 100 WHERE id BETWEEN 100 AND 300 AND id % 40 = 39")
            if step[0] == 5:
                late.commit()
            write(connection)

        made.read(meanwhile=meanwhile)
    made.seed()
    yield made
    piped.close()


def signed_again(folder: Path, cheat: Callable[[list[dict[str, Any]]], None], sink: str = "all") -> None:
    """The last certificate, by an issuer who changes the units of one copy and signs that."""
    path = max(folder.glob("*.json"))
    told = json.loads(path.read_bytes())
    rows = pq.read_table(folder / told["copies"]["file"]).to_pylist()
    for row in rows:
        if row["sink"] == sink:
            units = json.loads(row["units"])
            cheat(units)
            row["units"] = canonical(units)
    file, sha256 = _keep_copies(folder, told["number"], rows)
    told["copies"] = {"file": file, "sha256": sha256, "rows": len(rows)}
    del told["signature"]
    told["signature"] = signer(folder).signature(canonical(told))
    path.write_bytes(canonical(told).encode() + b"\n")
