"""Partitions as the log has them: what their deletes and updates tell, which their root does not decide.

A root's REPLICA IDENTITY is what the stream announces, and not what its leaves log: ALTER TABLE does not go
down to them. Nor does a published root keep a leaf from being unlogged, or somewhere else altogether: then
the root has its rows, and no log their changes. Pure but for the question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from truecut.errors import Fault
from truecut.model.table import Mode, TableName
from truecut.sources.contract import TableRead
from truecut.sources.postgres.relation import DEFAULT, FULL, Relation
from truecut.sources.postgres.server import Connection
from truecut.sources.postgres.shape import sql_name

UNTOLD = "TC2161"
UNLOGGED = "TC2162"
FOREIGN = "TC2163"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One that is not as its root is."""

    name: TableName
    told: frozenset[str] | None  # the columns that its deletes tell; None: all
    logged: bool = True
    foreign: bool = False


Leaves = Mapping[int, Sequence[Leaf]]  # by the oid of the root

# %(roots)s → the leaves that differ. An index that is not immediate identifies no row.
_LEAVES = """
WITH asked AS (
  SELECT c.oid AS root, t.relid AS leaf
  FROM unnest(%(roots)s::oid[]) r(oid) JOIN pg_class c ON c.oid = r.oid AND c.relkind = 'p',
  LATERAL pg_partition_tree(c.oid) t WHERE t.isleaf OR t.relid = c.oid
), told AS (
  SELECT a.root, a.leaf, c.relnamespace, c.relname, c.relpersistence = 'p' AS logged,
    c.relkind = 'f' AS remote,
    CASE c.relreplident WHEN 'f' THEN NULL WHEN 'n' THEN '{}' ELSE ARRAY(
      SELECT t.attname::text FROM pg_index i
      JOIN pg_attribute t ON t.attrelid = i.indrelid
        AND t.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
      WHERE i.indrelid = c.oid AND i.indimmediate
        AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END
      ORDER BY 1) END AS columns
  FROM asked a JOIN pg_class c ON c.oid = a.leaf
)
SELECT l.root::int8, n.nspname, l.relname, l.columns, l.logged, l.remote
FROM told l JOIN told r ON r.root = l.root AND r.leaf = l.root JOIN pg_namespace n ON n.oid = l.relnamespace
WHERE l.leaf <> l.root AND (l.columns IS DISTINCT FROM r.columns OR NOT l.logged OR l.remote)
ORDER BY 1, 2, 3
"""


def leaves_of(connection: Connection, roots: Sequence[int]) -> Leaves:
    """Those that are not as their roots, of all these tables that are partitioned."""
    found: dict[int, list[Leaf]] = {}
    for root, schema, name, told, logged, remote in connection.execute(_LEAVES, {"roots": list(roots)}):
        told_ = None if told is None else frozenset(told)
        found.setdefault(root, []).append(Leaf(TableName(schema, name), told_, logged, remote))
    return found


def fault_in(
    table: TableRead, relation: Relation, leaves: Sequence[Leaf], modes: frozenset[Mode]
) -> Fault | None:
    """Why changes of a table cannot be followed, or put together with its rows, by what its leaves log."""
    for leaf in leaves:
        if leaf.foreign:
            return _foreign(table.name, leaf.name)
        if not leaf.logged:
            return _unlogged(table.name, leaf.name)
    if apart := _lacking(leaves, {*table.key, *relation.key} if relation.key else _whole(relation)):
        # where the root's key is the primary one, each leaf has it, too
        own = relation.replica_identity == DEFAULT and set(table.key) <= set(relation.key) != set()
        return _untold(table.name, apart, "its key", "DEFAULT" if own else "FULL")
    if (
        "append" in modes
        and relation.replica_identity == FULL
        and (apart := _lacking(leaves, _whole(relation)))
    ):  # the server says of such a key that it is a row
        return _untold(table.name, apart, "whole rows")
    if table.route_by is not None and (apart := _lacking(leaves, {table.route_by})):
        return _untold(table.name, apart, f"its route column {table.route_by}")
    return None


def _whole(relation: Relation) -> set[str]:
    return {column.name for column in relation.columns}


def _lacking(leaves: Sequence[Leaf], needed: set[str]) -> list[Leaf]:
    return [leaf for leaf in leaves if leaf.told is not None and not needed <= leaf.told]


# --- in words -------------------------------------------------------------------------------------------


def _untold(table: TableName, apart: Sequence[Leaf], what: str, identity: str = "FULL") -> Fault:
    names = ", ".join(str(leaf.name) for leaf in apart)
    mend = _mend(apart, identity)
    return Fault(
        UNTOLD,
        f"{table}: deletes and updates of its partitions {names} do not tell {what}, whatever it says itself"
        f"; {mend} mends it",
        f"{mend}; then truecut resume FILE --table {table}",
    )


def _mend(apart: Sequence[Leaf], identity: str) -> str:
    return "; ".join(f"ALTER TABLE {sql_name(leaf.name)} REPLICA IDENTITY {identity}" for leaf in apart)


def _unlogged(table: TableName, leaf: TableName) -> Fault:
    return Fault(
        UNLOGGED,
        f"{table}: its partition {leaf} is unlogged: no log has its changes; "
        f"ALTER TABLE {sql_name(leaf)} SET LOGGED mends it",
        f"ALTER TABLE {sql_name(leaf)} SET LOGGED; then truecut resume FILE --table {table}",
    )


def _foreign(table: TableName, leaf: TableName) -> Fault:
    return Fault(
        FOREIGN,
        f"{table}: its partition {leaf} is a foreign table: no log of this server has its changes; "
        f"ALTER TABLE {sql_name(table)} DETACH PARTITION {sql_name(leaf)} mends it",
        f"ALTER TABLE {sql_name(table)} DETACH PARTITION {sql_name(leaf)}; then truecut resume FILE --table "
        f"{table}",
    )
