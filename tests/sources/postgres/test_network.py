"""A network that goes away under a capture and a delivery, and comes back: they go on by themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tests.patience import PATIENCE_S
from tests.postgres_server import PostgresServer
from tests.sources.postgres.cable import Cable
from tests.sources.postgres.following import Content, Follower, looking_always
from tests.sources.postgres.piped import Piped, pipeline_document
from truecut.errors import Retry, TruecutError
from truecut.model.table import TableName
from truecut.runtime.capture_start import capture
from truecut.sources.postgres import capture as capture_module

__all__ = ["looking_always"]
T = TableName("public", "t")
MADE = (
    "CREATE TABLE t (id int PRIMARY KEY, n int)",
    "INSERT INTO t SELECT i, 0 FROM generate_series(1, 500) i",
)
WRITTEN = (
    "UPDATE t SET n = n + 1 WHERE id % 3 = 0",
    "INSERT INTO t SELECT max(id) + 1, 0 FROM t",
    "DELETE FROM t WHERE id IN (SELECT min(id) FROM t)",
)


class Setting:
    """A server that a pipeline reaches by a cable, and the test by its own."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self.direct = server.create_database("network")
        self.cable = Cable(server.port)
        conninfo = self.direct.replace(f"port={server.port}", f"port={self.cable.port}")
        self.write(*MADE)
        document = pipeline_document("network", conninfo, [{"name": "public.t"}], lease={"duration": "2s"})
        self.piped = Piped(folder, conninfo, document)
        self.follower = Follower(self.piped, capture=lambda: None)

    def write(self, *statements: str) -> None:
        with psycopg.connect(self.direct, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def source(self) -> Content:
        with psycopg.connect(self.direct) as connection:
            return Content(connection.execute("SELECT id, n FROM t").fetchall())

    def go_on(self) -> None:
        """Until the copy is the source; what passes is tried again, as a runner does."""
        over = threading.Event()
        patience = threading.Timer(PATIENCE_S, over.set)
        patience.start()
        try:
            while (
                self.follower.tables[T].schema is None
                or self.follower.tables[T].content()[1] != self.source()
            ):
                assert not over.is_set(), self.follower.said
                try:
                    self.follower.catch_up()
                except TruecutError as error:
                    if error.fault.retry is not Retry.RETRYABLE:
                        raise
                over.wait(0.1)
        finally:
            patience.cancel()


@pytest.fixture
def setting(postgres: PostgresServer, tmp_path: Path) -> Iterator[Setting]:
    found = Setting(postgres, tmp_path)
    yield found
    found.cable.close()
    Piped(tmp_path, found.direct, {}).close()


@contextmanager
def capturing(setting: Setting) -> Iterator[None]:
    stop = threading.Event()
    with ThreadPoolExecutor(1) as beside:
        ended = beside.submit(capture, setting.piped.pipeline(), owner="test", stop=stop)
        try:
            yield
        finally:
            setting.cable.mend()
            stop.set()
        ended.result()


def test_a_network_that_goes_away_and_comes_back(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, looking_always: None
) -> None:
    """Connections that break and are refused for a while; silence in which what was sent arrives late;
    silence that ends in a break. Nothing is missing, nothing comes twice, no generation begins."""
    monkeypatch.setattr(capture_module, "Pace", partial(capture_module.Pace, look_s=0.3))
    cable, follower = setting.cable, setting.follower
    with capturing(setting):
        setting.go_on()

        cable.refuse()
        setting.write(*WRITTEN)
        assert cable.refused.wait(PATIENCE_S), "capture calls again"
        follower.look()  # delivers what the journal has
        cable.mend()
        setting.go_on()

        cable.fall_silent()
        setting.write(*WRITTEN)
        assert cable.swallowed.wait(PATIENCE_S)
        cable.mend()
        setting.go_on()

        cable.fall_silent()
        setting.write(*WRITTEN)
        assert cable.swallowed.wait(PATIENCE_S)
        cable.refuse()
        assert cable.refused.wait(PATIENCE_S)
        cable.mend()
        setting.go_on()
    assert follower.said == []
