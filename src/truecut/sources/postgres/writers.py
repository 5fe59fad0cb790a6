"""Who has written to a table and has not ended: by the locks that writers hold until they have.

A slot sends the rows of a table from where the table was published. Of a transaction that wrote before that
and commits behind it the earlier rows are in no log; neither are those of one whose commit lies before the
log and waits for a standby. So before a table is read, whoever holds a lock for having written to it is
waited for (C2). Nobody is locked out, and whoever begins later is not waited for: all of it is sent.
"""

from __future__ import annotations

from truecut.core.visibility import nearest
from truecut.sources.postgres.server import Address, Connection, answering

# One look at the locks for both halves. A prepared transaction has no session; one that is being prepared in
# this moment may have either, so all of them count.
_WRITERS = """
WITH locks AS MATERIALIZED (SELECT * FROM pg_locks WHERE granted),
of_table AS (SELECT %(oid)s::oid AS oid UNION SELECT relid FROM pg_partition_tree(%(oid)s::oid::regclass))
SELECT own.transactionid::text FROM locks
JOIN of_table ON of_table.oid = locks.relation
JOIN locks own ON own.virtualtransaction = locks.virtualtransaction AND own.locktype = 'transactionid'
  AND own.mode = 'ExclusiveLock'
WHERE locks.locktype = 'relation' AND locks.mode IN ('RowExclusiveLock', 'AccessExclusiveLock')
  AND locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
UNION SELECT transaction::text FROM pg_prepared_xacts WHERE database = current_database()
"""
_NEAR = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"


def writers(connection: Connection, address: Address, oid: int) -> frozenset[int]:
    """Their 64-bit ids. One that has no id yet has written nothing yet."""
    with answering(address, "look who writes to a table"):
        found = connection.execute(_WRITERS, {"oid": oid}).fetchall()
        (near,) = connection.execute(_NEAR).fetchone() or ("0",)
    return frozenset(nearest(int(xid), near=int(near)) for (xid,) in found)
