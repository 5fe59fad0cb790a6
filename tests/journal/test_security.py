"""Who may use a replicated log: tokens, TLS and mutual TLS. Whoever is refused hears what to do, and nobody
ever sees a token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.journal.certificates import Authority, Certificate
from tests.journal.cluster import Cluster
from tests.journal.processes import ended, run, start
from tests.journal.served import ANYWHERE, served, served_coordinator, served_node, until
from tests.journal.world import content, lines, texts
from tests.patience import PATIENCE_S
from tests.ports import free_port
from truecut.config.secret import Secret
from truecut.errors import ExitCode, Retry, TruecutError
from truecut.journal.replicated.producer import ReplicatedJournal
from truecut.journal.replicated.reader import ReplicatedReader
from truecut.journal.replicated.wire import Peer, Server
from truecut.journal.security import Security
from truecut.listen_address import Address

TOKEN = "open-sesame-4711"
WRONG = "open-barley-0815"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "theirs")


@pytest.fixture(scope="module")
def mutual(authority: Authority) -> Security:
    return _security(authority.own, authority.sign("member"))


def _security(authority: Certificate | None, own: Certificate | None) -> Security:
    return Security(
        authority=authority.certificate.read_bytes() if authority else None,
        certificate=own.certificate.read_bytes() if own else None,
        key=Secret(own.key.read_text()) if own else None,
    )


def _write_and_read(coordinator: str, security: Security) -> list[str]:
    journal = ReplicatedJournal(coordinator, "log", security=security)
    written = journal.append(lines("one", "two"))
    journal.close()
    reader = ReplicatedReader(coordinator, "log", security=security)
    until(lambda: reader.head() == written)
    found = texts(content(reader))
    reader.close()
    return found


def _refused(coordinator: str, security: Security) -> set[tuple[str, ExitCode]]:
    """What a writer and a reader are told."""
    told = set()
    for use in (ReplicatedJournal, lambda *a, **k: ReplicatedReader(*a, **k).head()):
        with pytest.raises(TruecutError) as raised:
            use(coordinator, "log", security=security)
        assert raised.value.fault.fix
        assert TOKEN not in repr(raised.value) + str(raised.value)
        told.add((raised.value.fault.code, raised.value.exit_code))
    return told


def test_only_the_right_token_is_let_in(tmp_path: Path) -> None:
    """By coordinator and nodes; a wrong one, none, or none where one is known: refused as wrong input."""
    right = Security(Secret(TOKEN))
    with served(tmp_path, security=right) as (coordinator, nodes):
        assert _write_and_read(coordinator, right) == ["one", "two"]
        for wrong in (Security(Secret(WRONG)), Security(), Security(Secret(TOKEN + "x"))):
            assert _refused(coordinator, wrong) == {("TC6042", ExitCode.WRONG_INPUT)}
            with (
                pytest.raises(TruecutError, match="TC6042"),
                served_node(tmp_path / "late", coordinator, wrong),
            ):
                pass
            for node in nodes:
                _must_refuse_everything(node, wrong)
        assert _write_and_read(coordinator, right) == ["one", "two"] * 2


def _must_refuse_everything(node: str, wrong: Security) -> None:
    peer = Peer(node, wrong)
    ticket = {"log": "log", "segment": 1, "after": 0, "upto": 2}
    with pytest.raises(TruecutError, match="TC6042"):
        peer.ask("node.look", {}, timeout_s=PATIENCE_S)
    with pytest.raises(TruecutError, match="TC6042"):
        list(peer.get(ticket))
    assert _refusal_of_a_stream(peer).fault.code == "TC6042"
    peer.close()


def _refusal_of_a_stream(peer: Peer) -> TruecutError:
    """It comes when the stream is opened or, where it takes longer than that, when it is closed."""
    try:
        writer, answers = peer.put({})
    except TruecutError as error:
        return error
    assert answers.read() is None
    with pytest.raises(Exception, match="token is not the right one") as raised:
        writer.close()
    return peer.failure(raised.value)


def test_a_token_does_no_harm_where_none_is_asked_for(tmp_path: Path) -> None:
    """Processes can be given their token one after the other, servers last."""
    with served(tmp_path) as (coordinator, _):
        assert _write_and_read(coordinator, Security(Secret(TOKEN))) == ["one", "two"]


def test_mutual_tls_carries_a_log(tmp_path: Path, mutual: Security, authority: Authority) -> None:
    """Between coordinator, nodes, producer and reader, who each have a certificate of one authority."""
    with served(tmp_path, security=mutual) as (coordinator, _):
        assert _write_and_read(coordinator, mutual) == ["one", "two"]
        other = _security(authority.own, authority.sign("other"))
        assert _write_and_read(coordinator, other) == ["one", "two"] * 2


def test_mutual_tls_lets_no_stranger_in(
    tmp_path: Path, mutual: Security, authority: Authority, stranger: Authority
) -> None:
    """No certificate, somebody else's, no encryption; and a server that is not believed is not talked to."""
    with served(tmp_path, security=mutual) as (coordinator, _):
        own = stranger.sign("own")
        for wrong in (_security(authority.own, None), _security(authority.own, own), Security()):
            # A server that hangs up says no reason: the caller is told what to check.
            assert _refused(coordinator, wrong) == {("TC6041", ExitCode.FAILED)}
        not_believing = replace(mutual, authority=stranger.own.certificate.read_bytes())
        assert _refused(coordinator, not_believing) == {("TC6059", ExitCode.WRONG_INPUT)}
        with (
            pytest.raises(TruecutError, match="TC6059") as raised,
            served_node(tmp_path / "late", coordinator, not_believing),
        ):
            pass
        assert raised.value.fault.retry is Retry.NOT_RETRYABLE
        assert _write_and_read(coordinator, mutual) == ["one", "two"]


def test_tls_with_a_token(tmp_path: Path, authority: Authority, stranger: Authority) -> None:
    """The server shows a certificate, the client a token."""
    own = authority.sign("server")
    server = replace(_security(None, own), token=Secret(TOKEN))
    client = replace(_security(authority.own, None), token=Secret(TOKEN))
    with served_coordinator(tmp_path, server) as (_, address):
        with pytest.raises(TruecutError, match="TC6054"):  # let in: there is no such log
            ReplicatedReader(address, "log", security=client).head()
        assert _refused(address, replace(client, token=None)) == {("TC6042", ExitCode.WRONG_INPUT)}
        believing_others = replace(client, authority=stranger.own.certificate.read_bytes())
        assert _refused(address, believing_others) == {("TC6059", ExitCode.WRONG_INPUT)}
        assert _refused(address, Security(Secret(TOKEN))) == {("TC6041", ExitCode.FAILED)}


def test_tls_where_there_is_none(tmp_path: Path, mutual: Security) -> None:
    """A client that wants encryption does not go on without it."""
    with served_coordinator(tmp_path) as (_, address):
        assert _refused(address, mutual) == {("TC6059", ExitCode.WRONG_INPUT)}


def test_nobody_listens_unprotected_to_other_machines(mutual: Security, authority: Authority) -> None:
    """Neither a token nor mutual TLS: refused. A certificate alone protects the client, not the server."""
    everywhere = Address("0.0.0.0", 0)
    for unprotected in (Security(), _security(None, authority.sign("alone"))):
        for listen in (everywhere, Address("::", 0), Address("example.org", 0)):
            with pytest.raises(TruecutError, match="TC6046") as raised:
                Server("node", listen, unprotected, {})
            assert raised.value.exit_code is ExitCode.WRONG_INPUT
    for protected in (Security(Secret(TOKEN)), mutual):
        Server("node", everywhere, protected, {}).shutdown()


def test_a_certificate_must_be_one(mutual: Security) -> None:
    """Or the key another one's: nobody listens, and the error names both files."""
    for wrong in (replace(mutual, certificate=b"hello"), replace(mutual, key=Secret("hello"))):
        with pytest.raises(TruecutError, match="TC6047") as raised:
            Server("node", ANYWHERE, wrong, {})
        assert raised.value.exit_code is ExitCode.UNFIT_ENVIRONMENT
        assert "hello" not in str(raised.value)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path]]:
    """Processes that share a token, and the file that it is in."""
    folder = tmp_path_factory.mktemp("guarded")
    token = folder / "token"
    token.write_text(f"{TOKEN}\n")
    cluster = Cluster(
        folder, nodes=2, options=["--token-file", str(token)], security=Security(Secret(TOKEN))
    ).start()
    yield cluster, token
    cluster.stop()


def test_processes_with_a_token(guarded: tuple[Cluster, Path], tmp_path: Path) -> None:
    """From the command line, by file or by variable; each refusal is exit 2 with its advice, and the token is
    in nobody's output."""
    cluster, token = guarded
    place = ["--coordinator", cluster.address]
    wrong = tmp_path / "wrong"
    wrong.write_text(WRONG)
    node = ["serve", "--data", str(tmp_path / "n"), "--listen", f"127.0.0.1:{free_port()}", *place]
    written = run("append", *place, "--log", "log", "--token-file", str(token), stdin="one\ntwo\n")
    assert written.returncode == 0, written.stderr
    started = [
        start("append", *place, "--log", "log"),
        start("read", *place, "--log", "log", "--token-file", str(wrong)),
        start(*node, "--token-file", str(wrong)),
        start("status", *place, TRUECUT_JOURNAL_TOKEN=WRONG),
    ]
    refused = [ended(process) for process in started]
    for one in refused:
        assert one.returncode == 2, one
        assert "TC6042" in one.stderr
        assert "--token-file" in one.stderr
        assert not one.stdout
    read = run("read", *place, "--log", "log", TRUECUT_JOURNAL_TOKEN=TOKEN)
    assert (read.returncode, read.stdout) == (0, "one\ntwo\n")
    said = [one.stdout + one.stderr for one in (written, read, *refused)] + [cluster.said()]
    assert not [text for text in said if TOKEN in text or WRONG in text]


def test_wrong_options_are_refused(tmp_path: Path, authority: Authority) -> None:
    """Exit 2 with what is wrong: an open door, an empty or unprintable token, half of a certificate, an
    authority without a certificate (nothing would be encrypted). `--help` shows no token."""
    empty, two, binary = tmp_path / "empty", tmp_path / "two", tmp_path / "binary"
    empty.write_text("\n")
    two.write_text(f"{TOKEN}\n{TOKEN}\n")
    binary.write_bytes(b"\xff\xfe\x00")
    own = authority.own
    coordinate = ["coordinate", "--data", str(tmp_path / "c")]
    node = ["serve", "--data", str(tmp_path / "n"), "--coordinator", "127.0.0.1:1"]
    inside, outside = ["--listen", "127.0.0.1:0"], ["--listen", "0.0.0.0:0"]
    cases = [
        ([*coordinate, *outside], "TC6046"),
        ([*node, *outside], "TC6046"),
        ([*coordinate, *inside, "--token-file", str(empty)], "--token-file"),
        ([*node, *inside, "--token-file", str(two)], "--token-file"),
        (["status", "--coordinator", "127.0.0.1:1", "--token-file", str(binary)], "--token-file"),
        ([*coordinate, *inside, "--tls-cert", str(own.certificate)], "--tls-key"),
        ([*node, *inside, "--tls-ca", str(own.certificate)], "--tls-cert"),
    ]
    started = [(start(*arguments), wanted) for arguments, wanted in cases]
    for process, wanted in started:
        found = ended(process)
        assert found.returncode == 2, found
        assert wanted in found.stderr
        assert TOKEN not in found.stderr + found.stdout
    assert not (tmp_path / "c" / "coordinator.db").exists()
    assert TOKEN not in run("append", "--help", TRUECUT_JOURNAL_TOKEN=TOKEN).stdout
