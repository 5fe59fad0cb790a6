"""A lake in an object store: who may write there, what its answers mean, and what is never told."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.cli.canaries import assert_silent
from tests.cli.tiny_disk import tiny_disk
from tests.ports import free_port
from tests.s3_server import KEY_ID, S3Server
from tests.sinks.world import applied, order, packets, read, seed, sink
from truecut.errors import Fault, Retry
from truecut.lake import LakeAddress, parse_address
from truecut.model.change import READ
from truecut.object_store import AMAZON

MakeLake = Callable[..., LakeAddress]
ROWS = [(READ, 4, n, f"v{n}") for n in range(50)]
# What stores answer that cannot be had here: MinIO, Ceph and Amazon, in their own words.
ANSWERS = {
    "Ceph's quota": (403, "QuotaExceeded", "TC4065"),
    "MinIO's quota": (400, "XMinioAdminBucketQuotaExceeded", "TC4065"),
    "MinIO's disk": (507, "XMinioStorageFull", "TC4065"),
    "too many requests": (503, "SlowDown", "TC4064"),
    "another region": (400, "AuthorizationHeaderMalformed", "TC4067"),
    "no permission": (403, "AccessDenied", "TC4060"),
    "no S3": (418, "Teapot", "TC4069"),
}


def fault_of_seed(address: LakeAddress) -> Fault:
    """Of an order whose rows go to a file; the catalog is a SQLite file here and gives no trouble."""
    applied(sink(address).recover(epoch=1, token=1))
    receipt = sink(address).apply(order(None, 4, t=seed()), packets(t=ROWS))
    assert receipt.outcome == "failed"
    assert receipt.fault is not None
    assert_silent(repr(receipt), repr(address), str(address))
    return receipt.fault


def assert_written(address: LakeAddress) -> None:
    """The same order, carried out, and read back by plain DuckDB."""
    applied(sink(address).recover(epoch=1, token=1))
    applied(sink(address).apply(order(None, 4, t=seed()), packets(t=ROWS)))
    assert read(address, "t") == [(n, f"v{n}") for n in range(50)]


def test_trouble_with_a_store_is_a_receipt_that_says_what_to_do(make_lake_in_store: MakeLake) -> None:
    """Wrong key, wrong secret, no bucket, nobody there: each its code, whether to try again, no secret."""
    faults = {
        "key": fault_of_seed(make_lake_in_store(key_id="somebody")),
        "secret": fault_of_seed(make_lake_in_store(secret="canary-secret-93b1-or-so")),
        "bucket": fault_of_seed(make_lake_in_store(bucket="not-there")),
        "server": fault_of_seed(make_lake_in_store(endpoint=f"127.0.0.1:{free_port()}")),
    }
    assert {name: (fault.code, fault.retry) for name, fault in faults.items()} == {
        "key": ("TC4060", Retry.NOT_RETRYABLE),
        "secret": ("TC4060", Retry.NOT_RETRYABLE),
        "bucket": ("TC4062", Retry.NOT_RETRYABLE),
        "server": ("TC4063", Retry.RETRYABLE),
    }


@pytest.mark.parametrize("case", ANSWERS)
def test_what_stores_answer_is_classified(case: str, make_lake_in_store: MakeLake) -> None:
    """Quotas, overload and a wrong region are told apart, whatever words the path holds."""
    status, name, code = ANSWERS[case]
    with _answering(status, name) as endpoint:
        assert fault_of_seed(make_lake_in_store(endpoint=endpoint, bucket="quota-http-404")).code == code


def test_a_full_store_is_a_receipt_and_the_order_goes_through_once_there_is_room(
    make_lake_in_store: MakeLake, s3: S3Server
) -> None:
    """As root, on a disk of one mebibyte; anybody else makes the bucket's folder a file, which is as full."""
    noise = [(READ, 4, n, os.urandom(512).hex()) for n in range(4_000)]
    if os.geteuid() != 0:
        (s3.data / "full").write_text("")
        assert fault_of_seed(make_lake_in_store(bucket="full")).code in ("TC4062", "TC4064")
        return
    with tiny_disk(s3.data / "full", mib=1) as disk:
        address = make_lake_in_store(bucket="full")
        applied(sink(address).recover(epoch=1, token=1))
        receipt = sink(address).apply(order(None, 4, t=seed()), packets(t=noise))
        assert receipt.fault is not None
        assert (receipt.fault.code, receipt.fault.retry) == ("TC4064", Retry.RETRYABLE)
        disk.grow(mib=200)
        applied(sink(address).apply(order(None, 4, t=seed()), packets(t=noise)))
        assert len(read(address, "t")) == len(noise)


# --- credentials --------------------------------------------------------------------------------------


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Whatever this machine knows of Amazon."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return monkeypatch


CHAIN = {"key_id": None, "secret": None}


def test_without_a_key_the_usual_chain_finds_one(
    no_credentials: pytest.MonkeyPatch, make_lake_in_store: MakeLake, s3: S3Server, tmp_path: Path
) -> None:
    """Nowhere: said so. In a profile, then in the environment, which comes first: they are used."""
    receipt = sink(make_lake_in_store(**CHAIN)).recover(epoch=1, token=1)
    assert receipt.fault is not None
    assert receipt.fault.code == "TC4061"
    profile = f"[lakes]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {s3.secret}\n"
    (tmp_path / "credentials").write_text(profile)
    no_credentials.setenv("AWS_PROFILE", "lakes")
    assert_written(make_lake_in_store(**CHAIN))
    (tmp_path / "credentials").write_text(profile.replace(s3.secret, "outdated"))
    assert fault_of_seed(make_lake_in_store(**CHAIN)).code == "TC4060"
    no_credentials.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    no_credentials.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)
    assert_written(make_lake_in_store(**CHAIN))


def test_a_containers_role_is_asked_for_credentials(
    make_lake_in_store: MakeLake, no_credentials: pytest.MonkeyPatch, s3: S3Server
) -> None:
    """Where environment and profile have none: the address that the container is given is asked, and what it
    answers is used."""
    answer = {
        "AccessKeyId": KEY_ID,
        "SecretAccessKey": s3.secret,
        "Token": "",  # this server takes no session's token
        "Expiration": (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    with _serving(200, json.dumps(answer).encode()) as (endpoint, asked):
        no_credentials.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://{endpoint}/role")
        assert_written(make_lake_in_store(**CHAIN))
    assert asked == {"/role"}


def test_lakes_in_one_bucket_have_credentials_each_of_its_own(make_lake_in_store: MakeLake) -> None:
    """In one process: the wrong ones of one lake neither reach nor hinder another."""
    good, bad = make_lake_in_store(), make_lake_in_store(secret="not-it")
    assert fault_of_seed(bad).code == "TC4060"
    assert_written(good)
    assert fault_of_seed(bad).code == "TC4060"


def test_a_catalog_that_knows_where_its_files_are_needs_no_data_path(make_lake_in_store: MakeLake) -> None:
    """The store is found out when the lake is attached."""
    address = make_lake_in_store()
    assert_written(address)
    catalog = f"sqlite:{address.target.reveal()}"
    known = parse_address(catalog, None, base=Path("/"), storage=address.storage)
    more = [(READ, 5, n, "again") for n in range(60)]
    applied(sink(known).apply(order(4, 5, t=seed()), packets(t=more)))
    assert read(address, "t") == [(n, "again") for n in range(60)]


def test_an_address_that_travels_shows_no_secret(make_lake_in_store: MakeLake) -> None:
    """It is pickled for executors; whatever prints it there prints none of it."""
    address = pickle.loads(pickle.dumps(make_lake_in_store()))
    assert_silent(repr(address), str(address), f"{address.storage}")
    assert KEY_ID not in repr(address)
    assert dict(AMAZON.options()) == {"PROVIDER": "credential_chain", "REFRESH": "auto"}


@contextmanager
def _answering(status: int, name: str) -> Iterator[str]:
    """A server that has one answer for everybody."""
    body = f"<Error><Code>{name}</Code><Message>{name}</Message></Error>".encode()
    with _serving(status, body) as (endpoint, _):
        yield endpoint


@contextmanager
def _serving(status: int, body: bytes) -> Iterator[tuple[str, set[str]]]:
    """Its address, and what has been asked for."""
    asked = set[str]()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            asked.add(self.path)
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

        def log_message(self, format: str, *args: object) -> None:
            """Not on the tests' output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
