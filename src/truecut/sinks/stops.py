"""Why a table stops at a sink, in the same words whatever the sink: names and counts, no values of rows."""

from __future__ import annotations

from truecut.sinks.copies import Stop, TableStop

# --- what its columns became ------------------------------------------------------------------------------


def recreated(table: str) -> TableStop:
    """Another table of that name."""
    return TableStop(table, "TC3011", f"{table} was dropped and created anew at the source; seed it again")


def default_not_copied(table: str) -> TableStop:
    """A default that is more than a literal."""
    return TableStop(table, "TC3013", f"{table} has a column whose default cannot be copied")


def not_followed(table: str) -> TableStop:
    """Nothing safe brings the sink's columns to the source's."""
    message = (
        f"the columns of {table} changed at the source in a way that the sink cannot follow; "
        "seed the table again"
    )
    return TableStop(table, "TC3014", message)


def no_boolean_any_more(table: str, column: str) -> TableStop:
    """What was kept as BOOLEAN cannot be read as anything else everywhere."""
    message = f"column {column} of {table} is no BOOLEAN any more; seed the table again"
    return TableStop(table, "TC3014", message)


def another_shape(table: str, part: str) -> TableStop:
    """A list that is a struct now."""
    return TableStop(table, "TC3014", f"{part} of {table} has another shape now; seed the table again")


def oldest_field_lost(table: str, part: str) -> TableStop:
    """A NULL inside a list or a map may be read otherwise then."""
    return TableStop(table, "TC3014", f"{part} of {table} lost its oldest field; seed the table again")


def other_mode(table: str, mode: str) -> TableStop:
    """Changes for a mirror and an append table there, or the other way round."""
    return TableStop(table, "TC3015", f"{table} is in mode {mode} at the sink; seed it again")


def same_but_for_case(table: str, one: str, other: str) -> TableStop:
    """PostgreSQL tells them apart, DuckDB does not."""
    message = (
        f"{table}: the columns {one} and {other} differ in nothing but case, and a lake takes them for one; "
        "rename one of them, or leave the table out for this sink"
    )
    return TableStop(table, "TC3039", message)


def altered(table: str) -> TableStop:
    """Its table at the sink is not what this pipeline left."""
    return TableStop(table, "TC3016", f"{table} was altered or dropped at the sink; seed it again")


# --- what its rows say --------------------------------------------------------------------------------------


def repeated_keys(table: str, repeated: int) -> TableStop:
    """A seed in which a key occurs twice cannot be a mirror."""
    message = f"{table}: {repeated} keys occur more than once at the source; choose another key"
    return TableStop(table, "TC3020", message)


def null_keys(table: str, nulls: int) -> TableStop:
    """Of a seed."""
    return TableStop(table, "TC3021", f"{table}: {nulls} keys have a NULL in them")


def seed_stop(table: str, *, nulls: int, repeated: int) -> Stop | None:
    """A seed in which a key is NULL in part, or occurs twice, cannot be a mirror."""
    if nulls:
        return null_keys(table, nulls).stop
    return repeated_keys(table, repeated).stop if repeated else None


def null_in_changes(table: str, nulls: int) -> TableStop:
    """Of changes."""
    return TableStop(table, "TC3021", f"{table}: {nulls} changes have a NULL in their key")


def contradictions(table: str, broken: int) -> TableStop:
    """A key is inserted exactly after its delete."""
    message = (
        f"{table}: {broken} changes contradict earlier ones of the same key (an insert of a live key, or "
        "a change after a delete); the key is not unique at the source"
    )
    return TableStop(table, "TC3022", message)


def keys_live_already(table: str, clashes: int) -> TableStop:
    """The sink has what the source inserts."""
    message = (
        f"{table}: {clashes} inserted keys are already live at the sink; the key is not unique at the "
        "source, or somebody else writes to the sink's table"
    )
    return TableStop(table, "TC3023", message)


def keys_missing(table: str, *, live_before: int, deleted: int) -> TableStop:
    """The sink lacks what the source changes."""
    message = (
        f"{table}: of {live_before} changed keys the sink has {deleted}; somebody else writes to the "
        "sink's table; seed it again"
    )
    return TableStop(table, "TC3024", message)


def changed_keys(table: str, *, live_before: int, deleted: int, began_empty: bool) -> TableStop:
    """The sink has fewer or more of them than the source has changed."""
    if began_empty and deleted < live_before:
        return never_copied(table, live_before=live_before, deleted=deleted)
    return keys_missing(table, live_before=live_before, deleted=deleted)


def never_copied(table: str, *, live_before: int, deleted: int) -> TableStop:
    """Rows from before its beginning, which is at another place for each sink: nobody took them."""
    message = (
        f"{table}: of {live_before} changed keys the sink has {deleted}; with `backfill: none` its copy "
        "began empty, and lacks the rows that the source had before; leave `backfill: none` out, so that "
        "they are copied, or let this sink append (if they came later, somebody else writes to its table)"
    )
    return TableStop(table, "TC3040", message)


def values_absent(table: str, rows: int) -> TableStop:
    """A value that the source did not send, of a row that this sink never had: NULL would be a lie."""
    message = (
        f"{table}: {rows} rows lack values that the source did not send because they did not change, and the "
        f"sink has no row to take them from; ALTER TABLE {table} REPLICA IDENTITY FULL at the source, then "
        "resume the table"
    )
    return TableStop(table, "TC3038", message)


def not_taken(table: str, reason: str) -> TableStop:
    """The same rows would be refused again."""
    return TableStop(table, "TC3028", f"{table}: the sink does not take its rows ({reason}); seed it again")


def constrained(table: str, constraint: str) -> TableStop:
    """Somebody gave its table a constraint."""
    message = (
        f"{table}: its table at the sink has a constraint ({constraint}) that rows of the source do not keep"
        "; drop the constraint there"
    )
    return TableStop(table, "TC3029", message)
