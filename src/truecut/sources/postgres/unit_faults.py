"""What can go wrong with the units of a table, in words for its user."""

from __future__ import annotations

from truecut.errors import Fault, Retry, TruecutError
from truecut.model.table import TableName
from truecut.sources.postgres.faults import identifier

TABLE_CHANGED = "TC2130"
WRITERS_FIRST = "TC2151"
CONTRADICTED = "TC2137"


def table_changed(table: TableName) -> TruecutError:
    """Rows of two shapes are not put together."""
    return TruecutError(
        TABLE_CHANGED,
        f"{table}: its columns have changed while it was being copied",
        fix="None needed: it is read again.",
        retry=Retry.RETRYABLE,
    )


def contradicted(table: TableName, why: str) -> Fault:
    """Put together it would be other rows than the source's."""
    return Fault(
        CONTRADICTED,
        f"{table}: the source's log contradicts what is its key: {why}",
        "Look at its replica identity, and those of its partitions; then "
        f"truecut resume FILE --table {table}",
    )


def rewritten(table: TableName) -> TruecutError:
    """A snapshot from before that does not show the rows that were there."""
    return TruecutError(
        "TC7055",
        f"{table}: it was truncated, rewritten or replaced at the source before it could be read once more",
        fix="Verify again: nothing is said of the table meanwhile.",
        retry=Retry.RETRYABLE,
    )


def never_quiet(within_s: int) -> TruecutError:
    """A place that is known exactly needs all that was open to end."""
    return TruecutError(
        "TC7056",
        f"a transaction at the source has been open for more than {within_s} s: the place where it is read "
        "once more waits for its end",
        fix="Verify again when it has ended: SELECT pid, xact_start FROM pg_stat_activity ORDER BY 2; and "
        "pg_prepared_xacts show it.",
        retry=Retry.RETRYABLE,
    )


def writers_first(table: TableName, count: int) -> TruecutError:
    """What they wrote before the table was published is sent by nobody."""
    return TruecutError(
        WRITERS_FIRST,
        f"{table}: it is read when {count} transaction{'s' if count > 1 else ''} that had written to it "
        "before have ended",
        fix="None needed: a run tries again by itself. pg_stat_activity and pg_prepared_xacts show what has "
        "been running for long; end what nobody needs.",
        retry=Retry.RETRYABLE,
    )


def locked(table: TableName) -> TruecutError:
    """An ALTER or a TRUNCATE that takes its time."""
    return TruecutError(
        "TC2131",
        f"{table}: somebody at the source holds a lock of the whole table",
        fix="End that transaction (pg_locks says whose it is); a run tries again by itself.",
        retry=Retry.RETRYABLE,
    )


def not_permitted(table: TableName, user: str) -> TruecutError:
    """No right to read it, or to read all of it."""
    name = f"{identifier(table.schema)}.{identifier(table.table)}"
    return TruecutError(
        "TC2136",
        f"{user} may not read all rows of {table}",
        fix=f"GRANT SELECT ON {name} TO {identifier(user)}; if the table has row security: "
        f"ALTER ROLE {identifier(user)} BYPASSRLS; then truecut resume FILE --table {table}",
    )


def snapshot_too_early(table: TableName) -> TruecutError:
    """A transaction has been written to the log, and waits to become visible."""
    return TruecutError(
        "TC2132",
        f"{table}: the source does not show yet all that its log has",
        fix="None needed: a run tries again by itself.",
        retry=Retry.RETRYABLE,
    )


def not_ready(table: TableName, why: str) -> TruecutError:
    """Its units are not all there, or not of use for this place."""
    return TruecutError(
        "TC2133",
        f"{table}: its content cannot be given yet: {why}",
        fix="None needed: it can when its backfill is over.",
        retry=Retry.RETRYABLE,
    )


def damaged(table: TableName, name: str) -> TruecutError:
    """A file of a unit is gone, or not what was written."""
    return TruecutError(
        "TC2134",
        f"{table}: the unit file {name} is missing or damaged",
        fix="None needed: the unit is read again.",
        retry=Retry.RETRYABLE,
    )


def torn(table: TableName, units: int) -> TruecutError:
    """A row moved between units that were read at different times, and a large value of it was not told."""
    return TruecutError(
        "TC2135",
        f"{table}: {units} of its units lack a value that moved while they were read",
        fix="None needed: these units are read again.",
        retry=Retry.RETRYABLE,
    )
