"""What `status` says is true: before a first run, after one, when the source goes on, when a table stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cli.inside import Answer, call, untouched
from tests.e2e.world import World, tenants_document

MakeWorld = Callable[[dict[str, Any]], World]

CREATE = "CREATE TABLE lake.main.events (id INTEGER, tenant VARCHAR, v INTEGER)"


def _insert(first: int, count: int, tenants: int) -> str:
    return (
        f"INSERT INTO lake.main.events SELECT i, 't' || (i % {tenants}), 0 FROM"
        f" range({first}, {first + count}) r(i)"
    )


def _health(world: World, lag: str = "1h") -> Answer:
    """`status --max-lag`; it writes nothing, whatever it finds."""
    world.save()
    with untouched(world.folder):
        return call("status", world.file, "--json", "--max-lag", lag)


def _copies(answer: Answer) -> dict[str, Any]:
    return {copy["sink"]: copy["state"] for copy in answer.json["copies"]}


def test_status_tells_the_truth_about_health(make_world: MakeWorld) -> None:
    """Never seeded: not well. Caught up and stopped: well, with the head as last seen, until the source goes
    on and the lag since then is larger than allowed. Held: not well, whatever the lag. Totals are of all
    runs; of rows that no sink wanted, those of a seed are counted as those of changes are, and once."""
    world = make_world(tenants_document(tenants=["t0", "t1"]))
    world.source(CREATE, _insert(0, 30, 3))
    never = _health(world)
    assert (never.code, _copies(never)) == (1, {"t0": "pending", "t1": "pending"})
    assert "main.events at sink t0 was never seeded" in never.stderr

    assert world.catch_up().reached
    well = _health(world, "1ms")
    assert (well.code, well.stderr) == (0, "")
    head = f"{1:08X}-{world.source_rows('FROM lake.current_snapshot()')[0][0]:016X}"
    assert (well.json["state"], well.json["source"]["head"]) == ("stopped", head)
    assert [(s["state"], s["lag_ms"], s["rows_applied"]) for s in well.json["sinks"]] == [
        ("current", 0, 10)
    ] * 2
    (table,) = well.json["tables"]
    assert (table["state"], table["rows_backfilled"], table["rows_unrouted"]) == ("streaming", 20, 10)

    world.source(_insert(30, 30, 3))
    behind = _health(world, "1ms")
    assert (behind.code, {s["state"] for s in behind.json["sinks"]}) == (1, {"behind"})
    assert all(s["lag_ms"] > 1 for s in behind.json["sinks"])
    assert _health(world, "1h").code == 0

    assert world.catch_up().reached
    again = _health(world, "1ms")
    assert [(s["lag_ms"], s["rows_applied"]) for s in again.json["sinks"]] == [(0, 20)] * 2
    assert again.json["source"]["unrouted"] == {"main.events": 20}
    assert call("plan", world.file, "--json").json["unrouted"] == {"main.events": 20}
    assert "20 rows so far matched no sink" in call("plan", world.file).stdout

    world.source("INSERT INTO lake.main.events VALUES (0, 't0', 9)")  # a key that is there
    assert not world.catch_up().reached
    held = _health(world, "1h")
    assert (held.code, _copies(held)) == (1, {"t0": "failed", "t1": "streaming"})
    assert "main.events at sink t0 is held: TC3023" in held.stderr
    assert "main.events  failed" in call("status", world.file).stdout


def test_unrouted_rows_hold_a_table_before_its_first_seed(make_world: MakeWorld) -> None:
    """`unrouted: stop` is about the rows that are there as much as about those that come."""
    document = tenants_document(tenants=["t0"])
    document["spec"]["tables"][0]["unrouted"] = "stop"
    world = make_world(document)
    world.source(CREATE, _insert(0, 10, 2))
    outcome = world.catch_up()
    assert "match no sink" in outcome.stragglers["t0"]
    assert world.sink_rows("t0", "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'events'") == [(0,)]
