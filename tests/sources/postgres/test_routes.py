"""A row whose route changes is taken from whom it was and given to whom it is, NULL being nobody's."""

from __future__ import annotations

from pathlib import Path

import psycopg

from tests.postgres_server import PostgresServer
from tests.sources.postgres.following import Follower
from tests.sources.postgres.piped import MIRROR, WIDE, Piped, pipeline_document
from truecut.model import change
from truecut.model.table import TableName

ORDERS = TableName("public", "orders")


def test_a_route_that_becomes_null_or_ceases_to_be_is_a_move(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """NULL is a route of its own kind: to it and from it a row moves as between two tenants, by a delete that
    tells the old route and an insert that tells the new one; from NULL to NULL it stays."""
    conninfo = postgres.create_database("routes")
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, tenant text, v int)")
        connection.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
        connection.execute("INSERT INTO orders VALUES (1, 'a', 0), (2, NULL, 0), (3, NULL, 0), (4, 'a', 0)")
        document = pipeline_document("routes", conninfo, [{"name": str(ORDERS), "route_by": "tenant"}])
        document["spec"]["sinks"][0]["route"] = "a"
        piped = Piped(tmp_path, conninfo, document)
        follower = Follower(piped)
        after = follower.catch_up()
        connection.execute("UPDATE orders SET tenant = NULL, v = 1 WHERE id = 1")
        connection.execute("UPDATE orders SET tenant = 'a', v = 1 WHERE id = 2")
        connection.execute("UPDATE orders SET v = 1 WHERE id IN (3, 4)")
    piped.capture()
    reads = {ORDERS: (follower.reading(ORDERS), after, MIRROR)}
    window = follower.source.plan_window(reads, upto_max=follower.look().head, limits=WIDE, parallelism=1)
    events = [event for task in window.tasks for _, batch in task.read() for event in batch.to_pylist()]
    assert [(e[change.OP], e["id"], e["tenant"], e["v"]) for e in events] == [
        (change.DELETE, 1, "a", 0),
        (change.INSERT, 1, None, 1),
        (change.DELETE, 2, None, 0),
        (change.INSERT, 2, "a", 1),
        (change.UPDATE, 3, None, 1),
        (change.UPDATE, 4, "a", 1),
    ]
    piped.close()
