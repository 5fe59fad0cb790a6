"""The changes of one relation: which events its messages are, and the rows before and after each.

A message is one event, or two: an update of the key is a delete and an insert. An event names its rows by
their numbers among the old and the new rows that were walked, so every column is gathered once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truecut.model import change
from truecut.sources.postgres import stream as streams
from truecut.sources.postgres.relation import Relation
from truecut.sources.postgres.stream import Bytes, Flags, Ints, Stream
from truecut.sources.postgres.tuples import ABSENT, TEXT, Cells, Selection, Walk, gather, walk

_KEY, _OLD, _NEW = b"KON"
_OPS = np.zeros(256, np.uint8)
_OPS[[streams.INSERT, streams.UPDATE, streams.DELETE, streams.TRUNCATE]] = (
    change.INSERT,
    change.UPDATE,
    change.DELETE,
    change.TRUNCATE,
)
_IMAGES = np.zeros(256, np.uint8)
_IMAGES[[_KEY, _OLD]] = change.KEY_IMAGE, change.FULL_IMAGE


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows that some messages of one relation carry; for each message its number in them, or -1."""

    old: Walk
    new: Walk
    old_of: Ints
    new_of: Ints
    marks: Bytes  # K or O: what the old row is


@dataclass(frozen=True, slots=True)
class Events:
    """One entry for each event, in the order of the stream."""

    message: Ints  # its number among the messages given
    second: Ints  # 1 for the second event of a message
    ops: Bytes
    images: Bytes
    old: Ints  # its row before, among the old rows; -1 for none
    new: Ints


def read_rows(stream: Stream, messages: Ints, relation: Relation) -> Rows:
    """Walk through every row of these messages, which are of one relation."""
    kinds, starts, limits = stream.kinds[messages], stream.starts[messages], stream.ends[messages]
    truncates = kinds == streams.TRUNCATE
    marks = np.where(truncates, 0, stream.data[np.minimum(starts + 5, limits - 1)]).astype(np.uint8)
    has_old = (marks == _KEY) | (marks == _OLD)
    _refuse(stream, messages, ~_fits(kinds, marks, has_old) & ~truncates, "its row is of an unknown kind")
    olds, news = np.flatnonzero(has_old), np.flatnonzero(~truncates & (kinds != streams.DELETE))
    count = len(relation.columns)
    old = walk(stream, messages[olds], starts[olds] + 6, columns=count)
    begins = starts + 6
    begins[olds] = old.ends + 1
    updated = olds[kinds[olds] == streams.UPDATE]
    _refuse(stream, messages[updated], begins[updated] > limits[updated], "it ends before its new row")
    unmarked = stream.data[begins[updated] - 1] != _NEW
    _refuse(stream, messages[updated], unmarked, "its new row is of an unknown kind")
    new = walk(stream, messages[news], begins[news], columns=count)
    ends = np.where(truncates, limits, begins - 1)
    ends[news] = new.ends
    _refuse(stream, messages, ends != limits, "it goes on after its row")
    _refuse_absent(stream, messages, olds, old, "an old row lacks a value")
    inserted = kinds[news] == streams.INSERT
    _refuse_absent(stream, messages, news, new, "an inserted row lacks a value", among=inserted)
    return Rows(
        old,
        _filled(old, new, olds, news),
        _numbers(olds, len(messages)),
        _numbers(news, len(messages)),
        marks,
    )


def _fits(kinds: Bytes, marks: Bytes, has_old: Flags) -> Flags:
    """An insert has a new row, a delete an old one, an update perhaps both."""
    fits: Flags = (marks == _NEW) & (kinds != streams.DELETE) | has_old & (kinds != streams.INSERT)
    return fits


def _refuse(stream: Stream, messages: Ints, wrong: Flags, reason: str) -> None:
    if wrong.any():
        raise stream.broken(int(messages[np.argmax(wrong)]), reason)


def _refuse_absent(
    stream: Stream, messages: Ints, which: Ints, rows: Walk, reason: str, among: Flags | None = None
) -> None:
    for cells in rows.columns:
        absent = cells.kinds == ABSENT
        if absent.any():
            _refuse(stream, messages[which], absent if among is None else absent & among, reason)


def _numbers(which: Ints, count: int) -> Ints:
    numbers = np.full(count, -1, np.int64)
    numbers[which] = np.arange(len(which))
    return numbers


def _filled(old: Walk, new: Walk, olds: Ints, news: Ints) -> Walk:
    """New rows with the values that were not sent but stand in the old row of the same message."""
    if not len(olds) or not any((cells.kinds == ABSENT).any() for cells in new.columns):
        return new
    _, in_old, in_new = np.intersect1d(olds, news, assume_unique=True, return_indices=True)
    pairs = zip(old.columns, new.columns, strict=True)
    return Walk(tuple(_fill(before, after, in_old, in_new) for before, after in pairs), new.ends)


def _fill(old: Cells, new: Cells, in_old: Ints, in_new: Ints) -> Cells:
    # A key has no values of other columns: NULL there says nothing.
    missing = (new.kinds[in_new] == ABSENT) & (old.kinds[in_old] == TEXT)
    there, here = in_old[missing], in_new[missing]
    kinds, starts, ends = new.kinds.copy(), new.starts.copy(), new.ends.copy()
    kinds[here], starts[here], ends[here] = old.kinds[there], old.starts[there], old.ends[there]
    return Cells(kinds, starts, ends)


def events_of(stream: Stream, messages: Ints, relation: Relation, rows: Rows) -> Events:
    """What these messages are."""
    moved = _moved(stream, relation, rows)
    which = np.repeat(np.arange(len(messages)), 1 + moved)
    second = np.zeros(len(which), np.int64)
    second[1:] = which[1:] == which[:-1]
    first_of_two = moved[which] & (second == 0)
    ops = _OPS[stream.kinds[messages]][which]
    ops[first_of_two], ops[second == 1] = change.DELETE, change.INSERT
    old = np.where(second == 1, -1, rows.old_of[which])
    new = np.where(first_of_two, -1, rows.new_of[which])
    images = np.where(old >= 0, _IMAGES[rows.marks[which]], change.NO_IMAGE).astype(np.uint8)
    return Events(which, second, ops, images, old, new)


def _moved(stream: Stream, relation: Relation, rows: Rows) -> Flags:
    """Which messages are updates of the key. NULL is a value of its own, where the old row tells it."""
    moved = np.zeros(len(rows.old_of), np.bool_)
    both = np.flatnonzero((rows.old_of >= 0) & (rows.new_of >= 0))
    for number, column in enumerate(relation.columns):
        if column.name in relation.key and len(both):
            before = gather(stream, rows.old.columns[number], Selection(rows.old_of[both]))
            after = gather(stream, rows.new.columns[number], Selection(rows.new_of[both]))
            told = (rows.marks[both] == _OLD) | column.identity
            one_is_null = pc.not_equal(before.is_null(), after.is_null())
            moved[both] |= told & np.asarray(pc.not_equal(before, after).fill_null(one_is_null))
    return moved


def absent_columns(events: Events, rows: Rows) -> pa.Array:
    """For each event the numbers of the columns that its row after lacks; NULL for none."""
    kind = pa.list_(pa.int32())
    lacking = [n for n, cells in enumerate(rows.new.columns) if (cells.kinds == ABSENT).any()]
    if not lacking:
        return pa.nulls(len(events.ops), kind)
    there = events.new >= 0
    absent = np.stack([(rows.new.columns[n].kinds[events.new] == ABSENT) & there for n in lacking], axis=1)
    counts = absent.sum(axis=1)
    numbers = np.array(lacking, np.int32)[np.nonzero(absent)[1]]
    offsets = np.append(0, np.cumsum(counts)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(numbers), mask=pa.array(counts == 0)).cast(
        kind
    )
