"""The codec rows/1: what was encoded comes back, and nothing else does."""

from __future__ import annotations

import math
import random
import struct
import zlib
from datetime import UTC
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.journal.changes import ORDERS, PEOPLE, Change, Table, delete, insert, update
from truecut.journal.decoding import Changes, Undecodable, schema_id, table_hash
from truecut.journal.rows import decode, decode_all, encode
from truecut.model.change import AFTER, EVENT_NAMES, FULL_IMAGE, KEY_IMAGE, NO_IMAGE, TRUNCATE

_SIMPLE: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.decimal128(38, 9), st.decimals(-(10**28), 10**28, places=9)),
    (pa.decimal256(70, 2), st.decimals(-(10**67), 10**67, places=2)),
    (pa.string(), st.text(st.characters(codec="utf-8"), max_size=8)),
    (pa.binary(), st.binary(max_size=8)),
    (pa.bool_(), st.booleans()),
    (pa.date32(), st.dates()),
    (pa.time64("us"), st.times()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("us", tz="UTC"), st.datetimes(timezones=st.just(UTC))),
]


def _typed() -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    simple = st.sampled_from(_SIMPLE)

    def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        lists = inner.map(lambda one: (pa.list_(one[0]), st.lists(st.none() | one[1], max_size=3)))
        structs = inner.map(
            lambda one: (pa.struct([("x", one[0])]), st.fixed_dictionaries({"x": st.none() | one[1]}))
        )
        return lists | structs

    return st.recursive(simple, nested, max_leaves=3)


@st.composite
def changes(draw: st.DrawFn) -> list[Changes]:
    """Some changes of a table with random columns, and some of another one between them."""
    types = draw(st.lists(_typed(), min_size=1, max_size=5))
    table = Table("s.t", pa.schema([("id", pa.int64()), *((f"c{n}", t) for n, (t, _) in enumerate(types))]))
    seqs = draw(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6, unique=True))
    found: list[Change] = []
    for seq in seqs:
        key = {"id": draw(st.integers(0, 9))}
        rows = {f"c{n}": st.none() | values for n, (_, values) in enumerate(types)}
        row = st.none() | st.fixed_dictionaries(rows).map(lambda one, key=key: key | one)  # type: ignore[misc]
        absent = draw(st.lists(st.sampled_from(sorted(rows)), unique=True))
        op = draw(st.sampled_from(sorted(EVENT_NAMES)))
        image = draw(st.sampled_from((NO_IMAGE, KEY_IMAGE, FULL_IMAGE)))
        name = draw(st.none() | st.text(st.characters(codec="utf-8"), max_size=5))
        found.append(Change(op, seq, draw(row), draw(row), image, absent, transaction=name))
    split = len(found) // 2
    other = PEOPLE.changes(*(insert(one.seq, {"id": 1, "name": "x"}) for one in found[:split]))
    return [table.changes(*found[split:]), other]


@given(changes())
@hypothesis_settings(max_examples=150)
def test_what_was_encoded_comes_back(tables: list[Changes]) -> None:
    """Every value of every type, NULL and absent kept apart, for several tables in one record."""
    found = decode(encode(tables))
    assert [(one.table, one.key) for one in found] == [(one.table, one.key) for one in tables]
    for one, expected in zip(found, tables, strict=True):
        assert one.rows.schema.equals(expected.rows.schema)
        assert repr(one.rows.to_pylist()) == repr(expected.rows.to_pylist())  # NaN is not equal to itself


def test_floats_keep_their_special_values() -> None:
    """NaN, the infinities and minus zero."""
    table = Table("t", pa.schema([("id", pa.int64()), ("x", pa.float64())]))
    values = [math.nan, math.inf, -math.inf, -0.0, 5e-324]
    payload = encode([table.changes(*(insert(n, {"id": n, "x": x}) for n, x in enumerate(values)))])
    found = [row[AFTER]["x"] for row in decode(payload)[0].rows.to_pylist()]
    assert repr(found) == repr(values)


def test_it_compresses() -> None:
    """A thousand like rows take little room."""
    many = PEOPLE.changes(*(insert(n, {"id": n, "name": "somebody or other"}) for n in range(1000)))
    assert len(encode([many])) < many.rows.nbytes / 4


def test_what_readers_rely_on_is_refused_when_written() -> None:
    """A seq twice, a changed key, an absent key, an unknown op: refused before it is durable."""
    ann, bob = {"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}
    for broken, law in [
        ([PEOPLE.changes(insert(1, ann)), ORDERS.changes(insert(1, {"id": 1, "price": Decimal(1)}))], "seq"),
        ([PEOPLE.changes(update(1, ann, bob))], "keeps its key"),
        ([PEOPLE.changes(update(1, None, ann, unchanged=["id"]))], "absent"),
        ([PEOPLE.changes(Change(99, 1))], "ops"),
        ([Changes("t", ("nope",), PEOPLE.changes(insert(1, ann)).rows)], "key columns"),
        ([Changes("t", (), PEOPLE.changes().rows.drop_columns(["_truecut_op"]))], "columns"),
    ]:
        with pytest.raises(AssertionError, match=law):
            encode(broken)


def test_the_head_of_a_record_tells_what_is_in_it() -> None:
    """Its codec, how many changes, and which tables with which columns."""
    record = PEOPLE.record(insert(1, {"id": 1, "name": "Ann"}), delete(2, {"id": 1}, image=KEY_IMAGE))
    assert (record.codec, record.rows, len(record.schemas)) == ("rows/1", 2, 1)
    assert record.schemas[0] >> 32 == table_hash("main.people")
    assert record.schemas[0] == schema_id("main.people", pa.struct(list(PEOPLE.columns)))
    assert record.schemas != ORDERS.record(insert(1, {"id": 1, "price": None})).schemas


_PAYLOAD = encode(
    [
        PEOPLE.changes(insert(1, {"id": 1, "name": "Ann"}), Change(TRUNCATE, 2)),
        ORDERS.changes(update(3, None, {"id": 1, "price": None}, unchanged=["price"])),
    ]
)


def test_any_flipped_or_missing_byte_is_refused() -> None:
    """At every offset: an error that names the record, never a crash, never other rows."""
    for at in range(len(_PAYLOAD)):
        flipped = bytearray(_PAYLOAD)
        flipped[at] ^= 1 << at % 8
        for broken in (bytes(flipped), _PAYLOAD[:at]):
            with pytest.raises(Undecodable):
                decode_all([broken])
    with pytest.raises(Undecodable) as raised:
        decode_all([_PAYLOAD, _PAYLOAD[:-1]])
    assert raised.value.index == 1


def test_a_writer_with_a_fault_does_not_crash_its_readers() -> None:
    """Bytes that are wrong behind a right checksum: changes, or the error, and the process lives."""
    chance = random.Random(1)
    outcomes = set()
    for _ in range(3000):
        rest = bytearray(_PAYLOAD[8:])
        for _ in range(chance.randint(1, 4)):
            rest[chance.randrange(len(rest))] = chance.randrange(256)
        cut = chance.choice([len(rest), chance.randrange(len(rest))])
        broken = b"TCR1" + struct.pack("<I", zlib.crc32(rest[:cut])) + rest[:cut]
        try:
            for one in decode_all([broken]):
                one.rows.to_pylist()
            outcomes.add("read")
        except Undecodable:
            outcomes.add("refused")
        except (UnicodeDecodeError, OverflowError, ValueError):
            outcomes.add("read")  # by Arrow; a value that Python has no word for
    assert outcomes == {"read", "refused"}


@given(st.binary(max_size=64))
def test_garbage_is_refused(payload: bytes) -> None:
    """Whatever it is."""
    for broken in (payload, b"TCR1" + payload, b"TCR1" + struct.pack("<I", zlib.crc32(payload)) + payload):
        if broken == encode([]):
            continue
        with pytest.raises(Undecodable):
            decode_all([broken])
