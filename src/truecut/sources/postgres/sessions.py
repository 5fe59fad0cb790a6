"""Whether we get as many sessions as a run may need: by the server's limit, the role's, the database's.

Streaming is not among them: WAL senders have a limit of their own. Whoever may use what is reserved does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from truecut.sources.postgres.faults import identifier
from truecut.sources.postgres.server import Address, Connection, asking

BESIDE = 5  # the readers of units: capture's questions and its backlog, looks, a table's plan, its snapshot

# Not everybody is told of what kind other sessions are; of which database, everybody.
_LIMITS = """
WITH others AS (
  SELECT usesysid, datid FROM pg_stat_activity WHERE datid IS NOT NULL AND application_name NOT LIKE %(ours)s
    AND pid <> pg_backend_pid() AND pid NOT IN (SELECT pid FROM pg_stat_replication)
)
SELECT r.rolname, d.datname, r.rolsuper, current_setting('max_connections')::int,
  current_setting('superuser_reserved_connections')::int
    + coalesce(current_setting('reserved_connections', true), '0')::int,
  r.rolconnlimit, d.datconnlimit, (SELECT count(*) FROM others),
  (SELECT count(*) FROM others WHERE usesysid = r.oid), (SELECT count(*) FROM others WHERE datid = d.oid)
FROM pg_roles r, pg_database d WHERE r.rolname = current_user AND d.datname = current_database()
"""


@dataclass(frozen=True, slots=True)
class Shortage:
    """A limit below what is needed; `taken` is what others have of it now. `sql` mends the limit."""

    whose: str
    limit: int
    taken: int
    needed: int
    sql: str

    @property
    def always(self) -> bool:
        """Also where nobody else is there."""
        return self.limit < self.needed


def shortages(connection: Connection, address: Address, *, readers: int) -> Iterator[Shortage]:
    """Each limit that may be reached."""
    needed = readers + BESIDE
    with asking(connection, address, "tell its settings"):
        row = connection.execute(_LIMITS, {"ours": f"truecut %{address.slot}"}).fetchone()
    assert row is not None
    user, database, superuser, whole, reserved, of_role, of_database, others, by_role, by_database = row
    role = f"ALTER ROLE {identifier(user)} CONNECTION LIMIT {needed + by_role};"
    base = f"ALTER DATABASE {identifier(database)} CONNECTION LIMIT {needed + by_database};"
    server = f"ALTER SYSTEM SET max_connections = {needed + others + reserved}; and restart the server."
    limits = [("the server", whole - (0 if superuser else reserved), others, server)]
    if not superuser and of_role >= 0:
        limits.append((f"the role {user}", of_role, by_role, role))
    if not superuser and of_database >= 0:
        limits.append((f"the database {database}", of_database, by_database, base))
    for whose, limit, taken, sql in limits:
        if limit - taken < needed:
            yield Shortage(whose, limit, taken, needed, sql)
