"""A server that is not fit: each finding has the SQL that mends it, and that SQL mends it."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.journal.certificates import Authority, Certificate
from tests.postgres_server import ON_BOTH, PostgresServer, postgres_server
from truecut.config.secret import Secret
from truecut.errors import TruecutError
from truecut.journal.local import LocalJournal
from truecut.model.table import TableName
from truecut.sources.postgres.capture import Capture
from truecut.sources.postgres.checks import findings
from truecut.sources.postgres.server import Address

TABLES = (TableName("public", "t"), TableName("public", "Odd Näme"))


@pytest.fixture(scope="module", params=ON_BOTH)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    settings = ("fsync=off", "max_replication_slots=1", "max_wal_senders=2")
    with postgres_server(settings=settings, version=request.param) as running:
        running.psql('CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE "Odd Näme" (id int PRIMARY KEY)')
        running.psql("CREATE ROLE ann LOGIN")
        yield running


def address(server: PostgresServer, *, user: str = "ann", slot: str = "cut") -> Address:
    conninfo = server.conninfo().replace("user=postgres", f"user={user}")
    return Address(Secret(conninfo), slot, "truecut", TABLES)


def codes(found: list[TruecutError]) -> list[str]:
    return [one.fault.code for one in found]


def mend(server: PostgresServer, found: TruecutError) -> None:
    """Run the SQL that the finding gives, as it stands there."""
    for statement in re.findall(r"((?:ALTER|CREATE|SELECT pg_)[^;]*);", found.fault.fix):
        server.psql(statement)


def refusal(place: Address, folder: Path) -> str:
    """What a run says."""
    journal = LocalJournal(folder)
    try:
        with pytest.raises(TruecutError) as caught:
            Capture(place, journal).run(lambda drained: drained)
    finally:
        journal.close()
    return caught.value.fault.code


def test_an_unfit_server_is_mended_step_by_step(server: PostgresServer, tmp_path: Path) -> None:
    """By the SQL of the findings and nothing else; then it is captured."""
    place = address(server)
    first = findings(place)
    assert codes(first) == ["TC2104", "TC2105", "TC2110"]
    assert refusal(place, tmp_path) == "TC2105"
    for one in first:
        mend(server, one)
    server.stop()
    server.start()
    assert codes(findings(place)) == []

    server.psql("SELECT pg_create_physical_replication_slot('other')")
    (full,) = findings(place)
    assert full.fault.code == "TC2106"
    assert refusal(place, tmp_path) == "TC2106"
    assert "SET max_replication_slots = 6" in full.fault.fix
    server.psql("SELECT pg_drop_replication_slot('other')")

    server.psql('ALTER PUBLICATION truecut DROP TABLE "Odd Näme"')
    (lacking,) = findings(place)
    assert lacking.fault.code == "TC2111"
    mend(server, lacking)
    assert findings(place) == []

    journal = LocalJournal(tmp_path)
    Capture(place, journal).run(lambda drained: drained)
    journal.close()
    assert findings(place) == []


def test_a_table_that_joins_our_own_publication_is_no_finding(tmp_path: Path) -> None:
    """Capture adds it by itself when it begins, so nobody is sent away before; one that belongs to somebody
    else cannot be added, and is told."""
    with postgres_server() as fit:
        fit.psql("CREATE TABLE t (id int PRIMARY KEY); CREATE ROLE ann LOGIN REPLICATION")
        fit.psql("ALTER TABLE t OWNER TO ann; GRANT CREATE ON DATABASE postgres TO ann")
        old = Address(Secret(address(fit).conninfo.reveal()), "cut", "truecut", TABLES[:1])
        log = LocalJournal(tmp_path)
        Capture(old, log).run(lambda drained: drained)
        fit.psql('CREATE TABLE "Odd Näme" (id int PRIMARY KEY)')
        assert codes(findings(address(fit))) == ["TC2111"]

        fit.psql('ALTER TABLE "Odd Näme" OWNER TO ann')
        assert codes(findings(address(fit))) == []
        Capture(address(fit), log).run(lambda drained: drained)
        log.close()
        assert fit.psql("SELECT count(*) FROM pg_publication_tables") == "2"


def test_a_slot_of_another_kind_is_left_alone(server: PostgresServer, tmp_path: Path) -> None:
    """It is somebody else's."""
    place = address(server, user="postgres", slot="theirs")
    server.psql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    server.psql("ALTER SYSTEM SET wal_level = logical")
    for make in (
        "pg_create_physical_replication_slot('theirs')",
        "pg_create_logical_replication_slot('theirs', 'pgoutput', false, true)",
    ):
        server.psql(f"SELECT {make}")
        (found,) = findings(place)
        assert found.fault.code == refusal(place, tmp_path / "log") == "TC2109"
        mend(server, found)
        assert findings(place) == []


def test_who_is_not_let_in_is_told_so(server: PostgresServer) -> None:
    """No word of the address, whose password might be in it."""
    known = {
        "dbname=postgres": ("dbname=nowhere", "TC2102"),
        "user=postgres": ("user=nobody_known", "TC2101"),
    }
    known["port=" + str(server.port)] = ("port=1", "TC2100")
    for old, (new, code) in known.items():
        conninfo = server.conninfo().replace(old, new) + " password=canary"
        (found,) = findings(Address(Secret(conninfo), "cut", "truecut"))
        assert found.fault.code == code
        assert "canary" not in str(found)


def test_who_does_not_agree_upon_tls_is_told_so(server: PostgresServer, tmp_path: Path) -> None:
    """The server offers none and it was asked for, or lets nobody in without; or its certificate is of
    somebody else. `doctor` says which, and a run the same; no retry helps."""
    server.psql("CREATE ROLE tess LOGIN REPLICATION")
    rules = server.folder / "data" / "pg_hba.conf"
    rules.write_text("hostnossl all tess all reject\n" + rules.read_text())
    server.psql("SELECT pg_reload_conf()")
    plain = server.conninfo() + " password=canary"
    authority, other = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    with speaking_tls(authority.sign("server")) as port:
        front = f"host=127.0.0.1 port={port} user=tess dbname=shop password=canary sslmode=verify-full"
        elsewhere = front.replace("127.0.0.1", "localhost")
        known = {
            f"{plain} sslmode=require": "offers no TLS",
            f"{plain.replace('user=postgres', 'user=tess')} sslmode=disable": "without TLS",
            f"{front} sslrootcert={tmp_path / 'nowhere'}": "are not there",
            f"{front} sslrootcert={other.own.certificate}": "nobody whom sslrootcert vouches for",
            f"{elsewhere} sslrootcert={authority.own.certificate}": "another host",
        }
        for number, (conninfo, why) in enumerate(known.items()):
            place = Address(Secret(conninfo), "cut", "truecut")
            (found,) = findings(place)
            assert found.fault.code == refusal(place, tmp_path / f"log{number}") == "TC2156"
            assert why in found.fault.message
            assert "canary" not in str(found)


@contextmanager
def speaking_tls(certificate: Certificate) -> Iterator[int]:
    """The port of somebody who agrees to TLS as a PostgreSQL does, and shows this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    line, _ = listener.accept()
                    with suppress(OSError), line:
                        line.recv(8)
                        line.sendall(b"S")
                        context.wrap_socket(line, server_side=True).recv(1)

        threading.Thread(target=serve, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


def test_a_wrong_password_is_told_so(server: PostgresServer) -> None:
    """As the server refuses it."""
    server.psql("CREATE ROLE eve LOGIN REPLICATION PASSWORD 'right'")
    rules = server.folder / "data" / "pg_hba.conf"
    rules.write_text(
        "host all eve all scram-sha-256\nhost replication eve all scram-sha-256\n" + rules.read_text()
    )
    server.psql("SELECT pg_reload_conf()")
    for password in ("", " password=canary"):
        (found,) = findings(
            Address(Secret(address(server, user="eve").conninfo.reveal() + password), "c", "p")
        )
        assert found.fault.code == "TC2101"
        assert "canary" not in str(found)
