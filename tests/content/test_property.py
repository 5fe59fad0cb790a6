"""Whatever a table holds and whatever is done to it: each copy is the source, bit for bit, or is held with a
true reason."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st

from tests.content import drawn
from tests.content.faults import FAULTS, injected
from tests.content.life import LOG, MIRROR, THEMES, Life
from tests.content.mirrors import Mirrors
from tests.postgres_server import PostgresServer
from truecut.lake import connect

KINDS = ("duckdb", "sqlite", "postgres")
POLLS = 3
CAUGHT_WITHIN = 60  # lives
SOAK_S = 3600


def live(
    folder: Path, postgres: PostgresServer, draw: Any, *, themes: Sequence[str], kinds: Sequence[str]
) -> None:
    """One life in a folder of its own."""
    source, sinks = draw(st.sampled_from(kinds)), draw(st.sampled_from(kinds))
    inlining = draw(st.sampled_from([0, 3, 10]))
    theme = draw(st.sampled_from(themes))
    key = draw(st.lists(drawn.scalars((*drawn.KEYS, *drawn.FLOATS)), min_size=1, max_size=2))
    route = draw(drawn.scalars(drawn.RESPELLED if theme == "routes" else drawn.ROUTES))

    def catalog(kind: str, name: str) -> str:
        if kind == "postgres":
            return "postgres:" + postgres.create_database(f"life_{folder.name.lower()}_{name}")
        return f"sqlite:{name}.db" if kind == "sqlite" else f"{name}.ducklake"

    first = draw(drawn.values(route, nulls=False))
    if not _writable(_spelled(first)):
        first = f"CAST('it''s' AS {route.sql})"
    routes = {MIRROR: _spelled(first), LOG: None}
    world = Mirrors(
        folder,
        source=catalog(source, "source"),
        catalogs={name: catalog(sinks, name) for name in routes},
        routes=routes,
        modes={MIRROR: "mirror", LOG: "append"},
        key=tuple(f"k{n}" for n in range(len(key))),
        inlining=inlining,
    )
    life = Life(world, draw, key, route, theme)
    life.routes[0] = first
    try:
        life.begin()
        for _ in range(draw(st.integers(1, POLLS))):
            life.live_on()
    except BaseException:
        note(f"source {source}, sinks {sinks}, inlining {inlining}, route {routes[MIRROR]!r}")
        note(";\n".join(life.log))
        raise


def _spelled(value: str) -> str:
    with connect() as plain:
        plain.execute("SET TimeZone = 'UTC'")
        row = plain.execute(f"SELECT CAST({value} AS VARCHAR)").fetchone()
    assert row is not None
    return str(row[0])


def _writable(route: str) -> bool:
    """Whether a pipeline file may say it."""
    return bool(route.strip()) and route.isprintable() and not set(route) & set("${}")


def lives(examples: int, **how: Any) -> settings:
    usual: dict[str, Any] = {"phases": (Phase.generate, Phase.shrink), "report_multiple_bugs": False}
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        **(usual | how),
    )


def live_in_a_folder(
    postgres: PostgresServer, draw: Any, *, themes: Sequence[str] = THEMES, kinds: Sequence[str] = KINDS
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="life"))
    try:
        live(folder, postgres, draw, themes=themes, kinds=kinds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@given(data=st.data())
@lives(12, derandomize=True)
def test_every_copy_is_the_source(data: Any, postgres: PostgresServer) -> None:
    """Types, values, keys, routes, commits, changes of columns and maintenance by chance."""
    live_in_a_folder(postgres, data.draw)


def test_every_copy_is_the_source_whatever_comes(postgres: PostgresServer) -> None:
    """Two lives that nobody has seen before. `CONTENT_SEED=n pytest …` lives those again that a failure
    names."""
    number = int(os.environ.get("CONTENT_SEED", time.time_ns() % 1_000_000))
    some = given(data=st.data())(lambda data: live_in_a_folder(postgres, data.draw))
    try:
        seed(number)(lives(2, phases=(Phase.generate,))(some))()
    except BaseException as error:
        error.add_note(f"CONTENT_SEED={number}")
        raise


# Few lives show these, whose faults have tests of their own in test_schema_changes.py and test_history.py.
RARE = {"every_widening_follows", "fields_by_name", "no_default"}


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=[pytest.mark.soak] if name in RARE else []) for name in FAULTS]
)
def test_no_fault_survives(fault: str, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fault, put into the code, is shown by a life of the kind that it is about."""
    theme, shown = injected(monkeypatch, fault)
    kinds = ("duckdb", "sqlite")  # cheaper, and as good for this

    @seed(1)
    @given(data=st.data())
    @lives(CAUGHT_WITHIN * (10 if fault in RARE else 1), phases=(Phase.generate,))
    def some(data: Any) -> None:
        live_in_a_folder(postgres, data.draw, themes=[theme], kinds=kinds)

    with pytest.raises(AssertionError, match=shown):
        some()


@pytest.mark.soak
def test_every_copy_is_the_source_for_an_hour(postgres: PostgresServer) -> None:
    """The same with chance. `CONTENT_SEED=n pytest …` begins with the seed that a failure names."""
    begun, number = time.monotonic(), int(os.environ.get("CONTENT_SEED", time.time_ns() % 1_000_000))
    while time.monotonic() < begun + SOAK_S:
        print(f"CONTENT_SEED={number}", flush=True)
        some = given(data=st.data())(lambda data: live_in_a_folder(postgres, data.draw))
        seed(number)(lives(25)(some))()
        number += 1
