"""`truecut verify --repair`: whatever was done to a copy behind our back is put right, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.e2e.test_verify import CHEATS, FIRST, TABLES, pipeline
from tests.e2e.world import World
from truecut.runtime.certificate_files import examined
from truecut.runtime.repair import Mend, Mended, verified
from truecut.runtime.verification import Verification, reread_of

MakeWorld = Callable[[dict[str, Any]], World]
Found = tuple[dict[tuple[str, str], str], dict[str, Mended]]


def repaired(world: World, spark: SparkSession, mend: Mend = "carry out") -> Found:
    """(sink, level) → verdict of the last look; and what became of the copies that differed, by sink."""
    settings = world.pipeline()
    with reread_of(settings) as reread:
        sinks = frozenset(sink.name for sink in settings.sinks)
        asked = Verification(settings, spark, reread, frozenset({"main.events"}), sinks)
        checks, mended = verified(asked, mend)
    return {(check.sink, check.level): check.verdict for check in checks}, {one.sink: one for one in mended}


def share(world: World, sink: str) -> list[tuple[Any, ...]]:
    """What the copy has to hold, before the source goes on."""
    where = f"WHERE tenant = '{sink}'" if sink in ("acme", "globex") else ""
    return world.source_rows(f"FROM lake.main.events {where} ORDER BY ALL")


def snapshots(world: World, sink: str) -> int:
    ((count,),) = world.sink_rows(sink, "SELECT count(*) FROM ducklake_snapshots('lake')")
    return int(count)


@pytest.mark.parametrize("certified", [pytest.param(False, marks=pytest.mark.soak), True])
def test_every_cheat_is_put_right(make_world: MakeWorld, spark: SparkSession, certified: bool) -> None:
    """Rows changed, deleted, doubled, moved and added at a tenant's, while the source goes on: what a dry run
    names is done, one commit for the copy, the others are not touched, the second look passes, and the next
    changes follow. Certificates stay true of the copy. An append table is not repaired, and says why."""
    world = make_world(pipeline(**({"certificate": {"path": "certificates"}} if certified else {})))
    world.source(
        f"CREATE TABLE lake.main.events {TABLES}",
        f"INSERT INTO lake.main.events SELECT {FIRST} FROM range(400) r(i)",
        "UPDATE lake.main.events SET note = 'changed' WHERE id % 7 = 0",
    )
    assert world.catch_up().reached
    if certified:
        world.source("DELETE FROM lake.main.events WHERE id % 50 = 1")
        assert world.catch_up().reached
    expected = {name: share(world, name) for name in ("acme", "globex", "all")}
    world.source("UPDATE lake.main.events SET note = 'later' WHERE id % 3 = 0")
    keys = {300 - 2 * number: cheat for number, cheat in enumerate(CHEATS)}
    world.tenant("acme", *(cheat.format(key) for key, (cheat, _) in keys.items()))
    world.tenant("all", "UPDATE lake.main.events SET id = 3 - id WHERE id IN (1, 2)")
    world.tenant("log", "UPDATE lake.main.events SET _truecut_op = 'delete' WHERE id = 4")
    before = {name: snapshots(world, name) for name in ("acme", "globex", "all", "log")}

    _, planned = repaired(world, spark, "preview")
    assert {name: snapshots(world, name) for name in before} == before
    assert {name: one.outcome for name, one in planned.items()} == {
        "acme": "would_repair",
        "all": "would_repair",
        **({"log": "refused"} if certified else {}),
    }
    touched = {-key if "-id" in cheat else key for key, (cheat, _) in keys.items()}
    named = [one["key"]["id"] for one in planned["acme"].keys]
    assert (named, planned["acme"].difference.rows) == (sorted(touched)[: len(named)], len(CHEATS))
    assert [one["key"]["id"] for one in planned["all"].keys] == [1, 2]

    verdicts, done = repaired(world, spark)
    assert {name: one.outcome for name, one in done.items() if name != "log"} == {
        "acme": "repaired",
        "all": "repaired",
    }
    if certified:
        assert "append table" in done["log"].detail
        assert verdicts[("log", "V5")] == "fail"
        assert {verdicts[(name, "V4")] for name in expected} == {"pass"}
        assert {check.verdict for check in examined(world.folder / "certificates")} == {"pass"}
    assert {verdicts[(name, "V5")] for name in expected} == {"pass"}
    assert {name: world.sink_rows(name) for name in expected} == expected
    assert {name: snapshots(world, name) - before[name] for name in ("globex", "log")} == {
        "globex": 0,
        "log": 0,
    }
    world.source("UPDATE lake.main.events SET note = 'at last', tenant = 'globex' WHERE id IN (2, 300, 298)")
    assert world.catch_up().reached
    assert {name: world.sink_rows(name) for name in expected} == {
        name: share(world, name) for name in expected
    }
