"""`spark.read.format("truecut")`: every change once, in order, with its types; or an error that helps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.journal.changes import NOON, PEOPLE, Table, insert, update
from tests.journal.world import at, lines
from tests.spark.logs import Log, plain
from truecut.journal.local import LocalJournal
from truecut.journal.record import Kind, Record
from truecut.model.position import Position
from truecut.spark import source

COLUMNS = ["position", "seq", "transaction", "committed_at", "table", "op", "key", "before", "after"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log(folder: Path) -> Iterator[Log]:
    made = Log(folder)
    yield made
    made.journal.close()


@pytest.fixture
def journal(folder: Path) -> Iterator[LocalJournal]:
    made = LocalJournal(folder, segment_bytes_max=5_000)
    yield made
    made.close()


def load(spark: SparkSession, folder: Path, **options: Any) -> DataFrame:
    source.register(spark)
    return spark.read.format("truecut").options(**options).load(str(folder))


def test_a_batch_shows_every_change_once_and_in_order(spark: SparkSession, log: Log) -> None:
    """Of all tables and codecs, over many segments; NULL and absent are told apart."""
    log.append_transactions(150)
    assert plain(load(spark, log.folder).collect()) == log.shown
    row = load(spark, log.folder).where("op = 'insert'").select("committed_at").first()
    assert row is not None
    assert row.committed_at.astimezone(UTC) == NOON


def test_a_range_is_open_below_and_closed_above(spark: SparkSession, log: Log) -> None:
    """Adjacent ranges meet without gap or overlap; a range beyond the end is an error."""
    log.append_transactions(20)
    head = log.journal.head()
    assert head is not None
    cuts = [None, at(5), at(6), at(17), head]
    found = []
    for after, upto in pairwise(cuts):
        bounds = {name: str(p) for name, p in (("after", after), ("upto", upto)) if p is not None}
        found += plain(load(spark, log.folder, **bounds).collect())
    assert found == log.shown
    assert load(spark, log.folder, after=str(head)).collect() == []
    for bounds in ({"upto": str(at(head.place + 1))}, {"after": str(at(head.place + 1))}):
        with pytest.raises(PySparkException, match=f"TC6024.*{head}"):
            load(spark, log.folder, **bounds).collect()


def test_a_large_range_is_read_by_several_tasks(
    spark: SparkSession, journal: LocalJournal, folder: Path
) -> None:
    """In parts of the log, each by itself, together everything once and in order."""
    texts = [f"{n}:{os.urandom(500_000).hex()}" for n in range(50)]
    for text in texts:
        journal.append(lines(text))
    read = load(spark, folder)
    assert read.rdd.getNumPartitions() == 3
    shown = plain(read.collect())
    assert [row[0] for row in shown] == [str(at(n)) for n in range(1, 51)]
    assert [row[-1] for row in shown] == texts


def test_an_unfinished_transaction_is_not_shown_unless_asked_for(spark: SparkSession, log: Log) -> None:
    """By default a batch ends with the last whole transaction."""
    log.append_transactions(3)
    open_part = PEOPLE.record(insert(1, {"id": 1, "name": "half"}), last=False)
    head = log.journal.append([open_part])
    assert plain(load(spark, log.folder).collect()) == log.shown
    assert len(load(spark, log.folder, upto=str(head)).collect()) == len(log.shown) + 1


def test_an_empty_log_has_no_rows(spark: SparkSession, journal: LocalJournal, folder: Path) -> None:
    """And its columns all the same."""
    found = load(spark, folder)
    assert found.collect() == []
    assert found.columns == COLUMNS


def test_what_was_trimmed_is_an_error_that_names_the_oldest_position(spark: SparkSession, log: Log) -> None:
    """Before a read, and when the trim comes between its planning and its tasks. Without `after`, a batch
    begins with what is there."""
    log.append_transactions(150)
    read = load(spark, log.folder, after=str(at(1)))
    assert read.rdd.getNumPartitions() == 1  # planned
    log.journal.trim(before=at(100))
    oldest = log.journal.oldest()
    assert oldest is not None
    assert oldest.place > 2
    for late in (read, load(spark, log.folder, after=str(at(1)))):
        with pytest.raises(PySparkException, match=f"TC6006.*{oldest}"):
            late.collect()
    expected = [one for one in log.shown if one[0] >= str(oldest)]
    assert plain(load(spark, log.folder).collect()) == expected


# --- typed columns ----------------------------------------------------------------------------------------

WIDE = Table(
    "main.wide",
    pa.schema(
        [
            ("id", pa.int32()),
            ("small", pa.uint8()),
            ("huge", pa.uint64()),
            ("price", pa.decimal128(38, 9)),
            ("endless", pa.decimal256(60, 2)),
            ("ratio", pa.float64()),
            ("text", pa.large_string()),
            ("raw", pa.binary()),
            ("yes", pa.bool_()),
            ("day", pa.date32()),
            ("local", pa.timestamp("ms")),
            ("instant", pa.timestamp("us", tz="UTC")),
            ("clock", pa.time64("us")),
            ("tags", pa.list_(pa.list_(pa.string()))),
            ("place", pa.struct([("x", pa.float32()), ("y", pa.int8())])),
        ]
    ),
)
FULL = {
    "id": -5,
    "small": 255,
    "huge": 2**64 - 1,
    "price": Decimal("12345678901234567890123456789.123456789"),
    "endless": Decimal("-1" + "0" * 50 + ".25"),
    "ratio": float("-inf"),
    "text": 'a "b" \\ \n ü\u2028',
    "raw": b"\x00\xff",
    "yes": True,
    "day": date(1969, 12, 31),
    "local": datetime(2026, 2, 3, 4, 5, 6, 789000),
    "instant": datetime(1901, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    "clock": time(12, 30, 0, 5),
    "tags": [["a", None], [], None],
    "place": {"x": 0.5, "y": None},
}


def test_types_arrive_exactly_typed_and_as_json(
    spark: SparkSession, journal: LocalJournal, folder: Path
) -> None:
    """Each value as Spark's own type; the JSON, read by Spark with that type, gives the same values."""
    empty = {"id": 1} | dict.fromkeys(list(FULL)[1:])
    journal.append([WIDE.record(insert(1, FULL), insert(2, empty))])
    read = load(spark, folder, table="main.wide")
    types = dict(read.select("after.*").dtypes)
    assert types["huge"] == "decimal(20,0)"
    assert types["endless"] == types["clock"] == "string"
    assert types["tags"] == "array<array<string>>"
    typed = [row.after.asDict(recursive=True) for row in read.collect()]
    shown = FULL | {
        "huge": Decimal(2**64 - 1),
        "endless": str(FULL["endless"]),
        "clock": "12:30:00.000005",
        "raw": bytearray(b"\x00\xff"),
    }
    assert [_naive(one) for one in typed] == [_naive(shown), _naive(empty)]
    parsed = load(spark, folder).selectExpr(
        f"from_json(after, '{_ddl(read)}', map('mode', 'FAILFAST')) AS after"
    )
    found = [row.after.asDict(recursive=True) for row in parsed.collect()]
    assert [_naive(one) for one in found] == [_naive(one) for one in typed]


def _ddl(read: DataFrame) -> str:
    return str(read.select("after.*")._jdf.schema().toDDL())


def _naive(row: dict[str, Any]) -> dict[str, Any]:
    """Spark hands instants over in the local time of Python."""
    instant = row["instant"]
    if instant is not None:
        instant = instant.astimezone(UTC)
    return {**row, "instant": instant}


def test_columns_come_and_go(spark: SparkSession, journal: LocalJournal, folder: Path) -> None:
    """The newest columns count: what older rows lack is NULL, what they had beyond is left out, narrower
    types are widened. A schema that is given wins."""
    old = Table("t.t", pa.schema([("id", pa.int16()), ("gone", pa.string()), ("n", pa.int32())]))
    new = Table("t.t", pa.schema([("id", pa.int64()), ("n", pa.float64()), ("added", pa.string())]))
    other = Table("t.other", pa.schema([("id", pa.int64())]))
    journal.append([old.record(insert(1, {"id": 1, "gone": "x", "n": 7}))])
    journal.append([new.record(insert(1, {"id": 2, "n": 0.5, "added": "y"}))])
    journal.append([other.record(insert(1, {"id": 3})), *lines("noise")])
    found = [tuple(row.after) for row in load(spark, folder, table="t.t").collect()]
    assert found == [(1, 7.0, None), (2, 0.5, "y")]
    given = "position string, after struct<gone: string, id: decimal(20,0)>"
    read = spark.read.format("truecut").option("table", "t.t").schema(given).load(str(folder))
    assert [(row.position, *row.after) for row in read.collect()] == [
        (str(at(1)), "x", 1),
        (str(at(2)), None, 2),
    ]
    before = load(spark, folder, table="t.t", upto=str(at(1)))
    assert before.select("after.*").columns == ["id", "gone", "n"]


def test_a_type_that_does_not_hold_older_values_is_an_error(
    spark: SparkSession, journal: LocalJournal, folder: Path
) -> None:
    """It names table, position, column and types, and no value."""
    text = Table("t.t", pa.schema([("id", pa.int64()), ("n", pa.string())]))
    number = Table("t.t", pa.schema([("id", pa.int64()), ("n", pa.int64())]))
    journal.append([number.record(insert(1, {"id": n, "n": 42})) for n in range(3)])
    journal.append([text.record(insert(1, {"id": 2, "n": "secret"}))])
    journal.append([number.record(insert(1, {"id": 3, "n": 5}))])
    with pytest.raises(PySparkException, match=f"TC6027 t.t at {at(4)}: the column n is string") as raised:
        load(spark, folder, table="t.t").collect()
    assert "secret" not in str(raised.value)


def test_absent_is_never_shown_as_null(spark: SparkSession, journal: LocalJournal, folder: Path) -> None:
    """The column `unchanged` names it; a given schema without that column is refused where it matters."""
    journal.append([PEOPLE.record(update(1, None, {"id": 1}, unchanged=["name"]))])
    row = load(spark, folder, table="main.people").collect()[0]
    assert (row.after.name, row.unchanged) == (None, ["name"])
    read = spark.read.format("truecut").option("table", "main.people")
    for given in ("after struct<id: bigint, name: string>", "after struct<id: bigint>"):
        with pytest.raises(PySparkException, match=f"TC6029 main.people at {at(1)}"):
            read.schema(given).load(str(folder)).collect()
    assert read.schema("after string").load(str(folder)).collect()[0].after == '{"id":1}'


# --- what cannot be read -----------------------------------------------------------------------------------

ODD = [
    (Record(b"secret", codec="pgoutput/9"), "TC6020.*{at} is written in pgoutput/9"),
    (Record(b"secret", codec="rows/1"), "TC6021.*{at} is not what rows/1"),
    (Record(b"secret\xff"), "TC6021.*{at} is not what lines/1"),
    (Record(b"secret", kind=Kind.UNIT, codec="rows/1"), "TC6023.*{at} is a unit"),
]


@pytest.mark.parametrize(("record", "message"), ODD)
def test_what_cannot_be_read_is_an_error_with_its_position(
    spark: SparkSession, journal: LocalJournal, folder: Path, record: Record, message: str
) -> None:
    """And without a value. What comes before and after it can be read."""
    journal.append([*lines("a"), record, *lines("b")])
    with pytest.raises(PySparkException, match=message.format(at=at(2))) as raised:
        load(spark, folder).collect()
    assert "secret" not in str(raised.value)
    assert plain(load(spark, folder, upto=str(at(1))).collect())[0][-1] == "a"
    assert plain(load(spark, folder, after=str(at(2))).collect())[0][-1] == "b"


def test_markers_are_no_rows(spark: SparkSession, journal: LocalJournal, folder: Path) -> None:
    """Nor are records that announce a schema."""
    journal.append([Record(b"", kind=Kind.MARKER), Record(b"", kind=Kind.SCHEMA), *lines("a")])
    assert [row.position for row in load(spark, folder).collect()] == [str(Position(1, 3))]


def test_wrong_options_and_schemas_say_what_to_write(
    spark: SparkSession, journal: LocalJournal, folder: Path
) -> None:
    """From Spark, with the code and the fix."""
    source.register(spark)
    read = spark.read.format("truecut")
    attempts: list[tuple[Callable[[], object], str]] = [
        (lambda: read.load(), r'TC6025 option "path": missing\n.*fix: Give "path"'),
        (lambda: load(spark, folder, startingPosition="latest").collect(), "TC6025.*is for readStream"),
        (lambda: load(spark, folder / "nowhere").collect(), "TC6009"),
        (lambda: load(spark, folder, table="t.nothing"), "TC6026 none of the newest 100,000 records"),
        (lambda: read.schema("id int").load(str(folder)).collect(), "TC6028.*id is none of its columns"),
    ]
    for attempt, message in attempts:
        with pytest.raises(PySparkException, match=message):
            attempt()
