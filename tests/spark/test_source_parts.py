"""The parts of the data source, without Spark: options, ranges, JSON, types, batches."""

from __future__ import annotations

import base64
import json
import math
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import DataType, IntegerType, LongType, StructField, StructType

from tests.journal.changes import ORDERS, PEOPLE, insert
from tests.journal.world import at, lines
from truecut.errors import TruecutError
from truecut.journal.local import LocalJournal
from truecut.journal.opening import Where
from truecut.journal.rows import decode_all, encode
from truecut.model.position import Position
from truecut.spark.source import decode as decoding
from truecut.spark.source import ranges, rendering
from truecut.spark.source.json_text import json_objects, json_text
from truecut.spark.source.options import BYTES_MAX, parse
from truecut.spark.source.ranges import Range, Reading, divide
from truecut.spark.source.schema import UNTYPED, checked
from truecut.spark.source.typed import Incompatible, conform, spark_arrow_type

# --- options -----------------------------------------------------------------------------------------------


def test_options_say_what_is_read() -> None:
    """Names in any case; sizes with units; a name of a log below a folder."""
    found = parse({"PATH": "/logs", "log": "shop", "maxbytespertrigger": "2MiB", "maxRecordsPerTrigger": "7"})
    assert found.where == Where(folder="/logs/shop")
    assert (found.bytes_max, found.rows_max, found.start) == (2 << 20, 7, "earliest")
    found = parse({"coordinator": "host:7000", "log": "shop", "startingPosition": str(at(9))})
    assert found.where == Where(coordinator="host:7000", log="shop")
    assert (found.start, found.bytes_max) == (at(9), BYTES_MAX)
    assert parse({"path": "logs"}).where == Where(folder=str(Path("logs").absolute()))
    assert parse({"path": "/x", "startingPosition": "Latest"}).start == "latest"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, 'option "path": missing'),
        ({"path": "/x", "coordinator": "h:1"}, "stands beside"),
        ({"path": ""}, "not a folder"),
        ({"path": "s3://bucket/x"}, "not a folder"),
        ({"coordinator": "h:1"}, 'option "log": missing'),
        ({"coordinator": "nowhere", "log": "x"}, "not an address"),
        ({"path": "/x", "startingPositon": "latest"}, 'Did you mean "startingPosition"'),
        ({"path": "/x", "colour": "red"}, "There are: path"),
        ({"path": "/x", "startingPosition": "12"}, "earliest, latest"),
        ({"path": "/x", "after": "x"}, "A position is written"),
        ({"path": "/x", "upto": ""}, "A position is written"),
        ({"path": "/x", "maxBytesPerTrigger": "0"}, "not a size"),
        ({"path": "/x", "maxBytesPerTrigger": "1.5GiB"}, "not a size"),
        ({"path": "/x", "maxRecordsPerTrigger": "-1"}, "not a number of rows"),
        ({"path": "/x", "table": " "}, "empty"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], message: str) -> None:
    """Each with what to write instead."""
    with pytest.raises(TruecutError, match="TC6025") as raised:
        parse(options)
    assert message in str(raised.value)


def test_batches_and_streams_have_options_of_their_own() -> None:
    """`after` would be forgotten at a stream's first restart, and a batch has no trigger."""
    with pytest.raises(TruecutError, match=r'"after": is for read\n.*startingPosition'):
        parse({"path": "/x", "after": str(at(1))}).for_stream()
    with pytest.raises(TruecutError, match=r'"maxBytesPerTrigger": is for readStream\n.*"after"'):
        parse({"path": "/x", "maxBytesPerTrigger": "1MiB"}).for_batch()


# --- ranges ------------------------------------------------------------------------------------------------


def _reading(folder: Path) -> Reading:
    return Reading(Where(str(folder)), None, checked(UNTYPED, table=None))


@pytest.mark.parametrize(("part_bytes", "count"), [(1, 40), (50, 6), (300, 1), (1 << 20, 1)])
def test_a_range_is_divided_without_gap_or_overlap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_bytes: int, count: int
) -> None:
    """Into parts that need nothing of each other, each at least one record; they travel as bytes."""
    monkeypatch.setattr(ranges, "PARTITION_BYTES", part_bytes)
    journal = LocalJournal(tmp_path)
    journal.append(lines(*(f"line {n}" for n in range(1, 41))))
    assert abs(len(divide(journal, after=Position(0, 0), upto=at(40))) - count) <= 1  # by an estimate
    for after, upto in [(0, 40), (3, 4), (7, 31), (9, 9)]:
        parts = divide(journal, after=Position(0, after), upto=at(upto))
        assert all(part.after.place < part.upto.place for part in parts)
        reading = pickle.loads(
            pickle.dumps(Reading(Where(str(tmp_path)), None, checked(UNTYPED, table=None)))
        )
        found = [
            row["after"]
            for part in pickle.loads(pickle.dumps(parts))
            for batch in reading.read(part)
            for row in batch.to_pylist()
        ]
        assert found == [f'"line {n}"' for n in range(after + 1, upto + 1)]
    journal.close()


def test_a_task_that_does_not_see_its_whole_range_fails(tmp_path: Path) -> None:
    """Another machine's view of the log may be older: an error that can be tried again, never fewer rows."""
    journal = LocalJournal(tmp_path)
    journal.append(lines("a", "b"))
    reading = _reading(tmp_path)
    with pytest.raises(TruecutError, match=f"TC6024 the log ends at {at(2)}"):
        list(reading.read(Range(at(0), at(3))))
    journal.close()


def test_memory_is_bounded_by_runs_and_batches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A task holds a run of records and a batch of rows, whatever the size of its range."""
    monkeypatch.setattr(decoding, "RUN_BYTES_MAX", 2_000)
    monkeypatch.setattr(rendering, "BATCH_BYTES_MAX", 1_000)
    journal = LocalJournal(tmp_path)
    rows = [insert(n, {"id": n, "name": f"name {n}"}) for n in range(100)]
    journal.append([*lines(*("x" * 300 for _ in range(40))), PEOPLE.record(*rows)])
    runs = list(decoding.decode(journal.read(after=None)))
    assert [len(run.positions) for run in runs] == [6, 6, 6, 6, 6, 6, 4, 1]
    reading = _reading(tmp_path)
    batches = list(reading.read(Range(at(0), at(41))))
    assert sum(batch.num_rows for batch in batches) == 140
    assert max(batch.nbytes for batch in batches) < 5_000
    journal.close()


def test_the_order_over_tables_is_that_of_seq() -> None:
    """Also where a batch ends in between."""
    people = PEOPLE.changes(*(insert(seq, {"id": seq, "name": "x"}) for seq in (9, 1, 4)))
    orders = ORDERS.changes(*(insert(seq, {"id": seq, "price": None}) for seq in (2, 8, 3)))
    schema = checked(UNTYPED, table=None)
    changes = decode_all([encode([people, orders])] * 2)
    for rows_max in (1, 2, 5, 100):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rendering, "BATCH_ROWS_MAX", rows_max)
            batches = list(rendering.render(changes, ["p1", "p2"], schema))
        found = [(row["position"], row["seq"], row["table"]) for one in batches for row in one.to_pylist()]
        expected = [(1, "people"), (2, "orders"), (3, "orders"), (4, "people"), (8, "orders"), (9, "people")]
        assert found == [(p, seq, f"main.{table}") for p in ("p1", "p2") for seq, table in expected]
        assert max(batch.num_rows for batch in batches) <= rows_max


# --- values ------------------------------------------------------------------------------------------------

VALUES: list[tuple[pa.DataType, list[Any], list[Any]]] = [
    (pa.int64(), [-(2**63), 0, None], [-(2**63), 0, None]),
    (pa.decimal128(9, 3), [Decimal("1.100"), None], [Decimal("1.100"), None]),
    (pa.float64(), [0.1, -0.0, math.nan, math.inf, -math.inf], [0.1, -0.0, "NaN", "Infinity", "-Infinity"]),
    (pa.float16(), [0.5, None], [0.5, None]),
    (pa.bool_(), [True, False, None], [True, False, None]),
    (pa.date32(), [date(1, 1, 1), None], ["0001-01-01", None]),
    (
        pa.timestamp("us", "Europe/Berlin"),
        [datetime(2026, 7, 1, tzinfo=UTC)],
        ["2026-07-01T00:00:00.000000Z"],
    ),
    (pa.timestamp("s"), [datetime(2026, 7, 1)], ["2026-07-01T00:00:00"]),
    (pa.null(), [None], [None]),
    (pa.list_(pa.int8()), [[1, None], [], None], [[1, None], [], None]),
    (pa.map_(pa.string(), pa.int8()), [[("a", 1)], None], [[{"key": "a", "value": 1}], None]),
    (pa.struct([]), [{}, None], [{}, None]),
    (pa.struct([("a", pa.list_(pa.struct([("b", pa.string())])))]), [{"a": [{"b": "x"}, None]}], ...),  # type: ignore[list-item]
    (pa.dictionary(pa.int8(), pa.string()), ["a", None], ["a", None]),
]


@pytest.mark.parametrize(("kind", "values", "expected"), VALUES, ids=lambda one: str(one)[:20])
def test_json_of_every_type(kind: pa.DataType, values: list[Any], expected: Any) -> None:
    """As another parser reads it; also of a slice, whose offsets do not begin at 0."""
    expected = values if expected is ... else expected
    for array, wanted in [
        (pa.array(values, kind), expected),
        (pa.array([values[0], *values], kind).slice(1), expected),
    ]:
        found = [json.loads(text, parse_float=_number) for text in json_text(array).to_pylist()]
        assert found == [_number(str(one)) if isinstance(one, float) else one for one in wanted]


def _number(text: str) -> Decimal:
    return Decimal(text)


@given(st.lists(st.none() | st.text(st.characters(codec="utf-8"))), st.lists(st.none() | st.binary()))
def test_json_of_text_and_bytes(texts: list[str | None], raw: list[bytes | None]) -> None:
    """Every character; bytes as base64."""
    assert [json.loads(one) for one in json_text(pa.array(texts, pa.string())).to_pylist()] == texts
    found = [json.loads(one) for one in json_text(pa.array(raw, pa.binary())).to_pylist()]
    assert [None if one is None else base64.b64decode(one) for one in found] == raw


@given(st.lists(st.lists(st.sampled_from("abc"), unique=True), min_size=1, max_size=6))
def test_absent_columns_are_left_out(absent: list[list[str]]) -> None:
    """Any of them, also all."""
    rows = pa.array([{"a": 1, "b": None, "c": "x,"}] * len(absent))
    masks = {n: pa.array([name in one for one in absent]) for n, name in enumerate("abc")}
    found = [json.loads(text) for text in json_objects(rows, masks).to_pylist()]
    full = {"a": 1, "b": None, "c": "x,"}
    assert found == [{k: v for k, v in full.items() if k not in one} for one in absent]


def test_a_date_beyond_all_calendars_is_refused() -> None:
    """Rather than shown as something else."""
    with pytest.raises(ValueError, match="out of range"):
        json_text(pa.array([-(2**31)], pa.date32()))


WIDENINGS = [
    (pa.int8(), pa.int64(), True),
    (pa.uint32(), pa.int32(), False),
    (pa.uint32(), pa.int64(), True),
    (pa.int64(), pa.int32(), False),
    (pa.int64(), pa.float64(), False),
    (pa.int32(), pa.float64(), True),
    (pa.int64(), pa.decimal128(20, 0), True),
    (pa.int64(), pa.decimal128(19, 2), False),
    (pa.float64(), pa.float32(), False),
    (pa.decimal128(5, 2), pa.decimal128(7, 3), True),
    (pa.decimal128(5, 2), pa.decimal128(5, 3), False),
    (pa.string(), pa.int64(), False),
    (pa.int64(), pa.string(), False),
    (pa.timestamp("us"), pa.timestamp("us", "UTC"), False),
    (pa.timestamp("ms", "Asia/Tokyo"), pa.timestamp("us", "UTC"), True),
    (pa.time64("us"), pa.string(), True),
    (pa.null(), pa.date32(), True),
    (pa.list_(pa.int8()), pa.list_(pa.int32()), True),
    (pa.list_(pa.int64()), pa.list_(pa.int8()), False),
    (pa.list_(pa.int64()), pa.int64(), False),
    (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int64()), True),
]


@pytest.mark.parametrize(("have", "want", "holds"), WIDENINGS, ids=str)
def test_types_are_widened_and_never_narrowed(have: pa.DataType, want: pa.DataType, holds: bool) -> None:
    """It depends on the types alone: what works once does not fail on a later value."""
    values = pa.nulls(2, have)
    if holds:
        assert conform(values, want).equals(pa.nulls(2, want))
        return
    with pytest.raises(Incompatible):
        conform(values, want)


def test_a_type_that_spark_has_is_kept_and_any_other_holds_its_values() -> None:
    """Whatever a source may write fits the type that Spark is told."""
    for kind, values, _ in VALUES:
        array = pa.array(values, kind)
        assert conform(array, spark_arrow_type(kind)).null_count == array.null_count


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("id int", "id is none of its columns"),
        ("seq int", "seq has to be bigint"),
        ("after struct<a: int>", "or a struct, with the option `table`"),
        ("seq long not null", "NOT NULL"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(schema: str, message: str) -> None:
    """With what would fit."""
    with pytest.raises(TruecutError, match=f"TC6028.*{message}"):
        checked(_struct(schema), table=None)


def _struct(text: str) -> StructType:
    name, kind, *rest = text.split(maxsplit=2)
    types: dict[str, DataType] = {"int": IntegerType(), "long": LongType()}
    found = types.get(kind, StructType([StructField("a", IntegerType())]))
    return StructType([StructField(name, found, nullable=rest != ["not null"])])
