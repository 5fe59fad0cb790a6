"""What can go wrong when a log is read by Spark, in words for its user."""

from __future__ import annotations

from collections.abc import Sequence

from truecut.errors import ExitCode, TruecutError
from truecut.model.position import Position
from truecut.spark.source.typed import Incompatible


def wrong_option(name: str, what: str, *, fix: str) -> TruecutError:
    """An option that is missing, unknown, or has no such value."""
    return TruecutError(
        "TC6025",
        f'option "{name}": {what}',
        fix=f"{fix} docs/spark.md lists all options.",
        exit_code=ExitCode.WRONG_INPUT,
    )


def no_columns(table: str, *, records: int) -> TruecutError:
    """Its types are not known."""
    return TruecutError(
        "TC6026",
        f"none of the newest {records:,} records names the table {table}",
        fix="Check the name (schema.table); if its changes are older, give the columns with `.schema(…)`.",
        exit_code=ExitCode.WRONG_INPUT,
    )


def incompatible(table: str, position: Position, error: Incompatible) -> TruecutError:
    """An older or newer row does not fit the columns that this query began with."""
    return TruecutError(
        "TC6027",
        f"{table} at {position}: the column {error.column} is {error.have}, which {error.want} does not hold",
        fix="Give a type that holds both with `.schema(…)`, or leave the option `table` out and read JSON. "
        "A query that runs takes the newest columns when it is started again.",
    )


def unfit_schema(what: str, *, columns: Sequence[str]) -> TruecutError:
    """A schema that was given has columns that this source does not."""
    return TruecutError(
        "TC6028",
        f"the given schema does not fit: {what}",
        fix=f"Its columns may be {', '.join(columns)}; all of them nullable.",
        exit_code=ExitCode.WRONG_INPUT,
    )


def unchanged_unseen(table: str, position: Position) -> TruecutError:
    """It would be taken for NULL."""
    return TruecutError(
        "TC6029",
        f"{table} at {position}: the source did not send an unchanged column, and the given schema has no "
        "place to say so",
        fix="Add the column `unchanged array<string>` to it, or declare `after` as a string of JSON.",
    )
