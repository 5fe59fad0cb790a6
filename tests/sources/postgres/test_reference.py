"""The decoder against a plain reader that shares nothing with it: on random streams, and on damaged ones."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sources.postgres.reference import Broken, Event, Reader, Reading
from tests.sources.postgres.streams import RELATIONS, Writer
from truecut.journal import rows
from truecut.journal.decoding import RECORD, Changes, Undecodable
from truecut.model import change
from truecut.sources.postgres import framing
from truecut.sources.postgres.decode import Decoded, TableChanges, decode
from truecut.sources.postgres.stream import Open

_IMAGES = {change.NO_IMAGE: "none", change.KEY_IMAGE: "key", change.FULL_IMAGE: "full"}


def split(messages: list[bytes], random: Random) -> list[list[bytes]]:
    """Into records; a transaction may go on in the next."""
    cuts = sorted(random.choices(range(len(messages) + 1), k=random.randint(0, 3)))
    return [messages[a:b] for a, b in zip([0, *cuts], [*cuts, len(messages)], strict=True)]


def events(table: TableChanges, *, record: int = 0) -> list[Event]:
    return [
        Event(
            change.EVENT_NAMES[row[change.OP]],
            row[RECORD] + record,
            row[change.SEQ],
            int(row[change.TRANSACTION]),
            row[change.PLACE],
            at,
            _IMAGES[row[change.IMAGE]],
            tuple(row[change.UNCHANGED] or ()),
            row[change.BEFORE],
            row[change.AFTER],
        )
        for row, at in zip(
            table.rows.drop_columns([change.COMMITTED_AT]).to_pylist(),
            table.rows.column(change.COMMITTED_AT).cast("int64").to_pylist(),
            strict=True,
        )
    ]


def reading(decoded: list[Decoded]) -> Reading:
    """What the decoder found, in the reference's words."""
    found = Reading()
    for number, part in enumerate(decoded):
        record = number if len(decoded) > 1 else 0
        for table in part.tables:
            name = str(table.relation.name)
            if name not in found.stops and table.rows.num_rows:
                found.tables.setdefault(name, []).extend(events(table, record=record))
            if table.stop is not None:
                found.stops.setdefault(name, table.stop.place)
        for row in part.messages.rows.to_pylist() if part.messages else ():
            after = row[change.AFTER]
            found.messages.append((row[change.PLACE], row[change.SEQ], after["prefix"], after["content"]))
        found.unknown |= part.unknown
        ended = len(part.transactions.end_lsns)
        one = part.transactions
        columns = (one.xids[:ended], one.commit_lsns[:ended], one.end_lsns, one.committed_at_us[:ended])
        found.transactions += [tuple(map(int, row)) for row in zip(*columns, strict=True)]  # type: ignore[misc]
    return found


def without_stopped(found: Reading) -> Reading:
    """A table that stops keeps what was before the transaction, and nothing of it."""
    for name, place in found.stops.items():
        found.tables[name] = [event for event in found.tables.get(name, []) if event.place != place]
    found.tables = {name: events for name, events in found.tables.items() if events}
    return found


@settings(max_examples=150)
@given(st.integers(0, 1 << 32))
def test_random_streams_are_read_alike(seed: int) -> None:
    """Every table, every event, all of its columns: the same as the plain reader's."""
    random = Random(seed)
    records = split(Writer(random).stream(random.randint(0, 12)), random)
    decoded = decode([framing.encode(record) for record in records], RELATIONS)
    assert reading([decoded]) == Reader(RELATIONS).read(records)
    assert decoded.open is None


@settings(max_examples=60)
@given(st.integers(0, 1 << 32))
def test_a_transaction_goes_on_in_the_next_record(seed: int) -> None:
    """Records that are decoded one by one, each with what the last one left open, give the same."""
    random = Random(seed)
    messages = [one for one in Writer(random).stream(6) if one[:1] != b"R"]  # one version of each relation
    fixed = {oid: versions[:1] for oid, versions in RELATIONS.items()}
    records = split([one for one in messages if not _of_other_version(one)], random)
    opened: Open | None = None
    decoded = []
    for record in records:
        decoded.append(decode([framing.encode(record)], fixed, opened=opened))
        opened = decoded[-1].open
    assert opened is None
    assert reading(decoded) == Reader(fixed).read(records)


@settings(max_examples=40)
@given(st.integers(0, 1 << 32))
def test_changes_keep_the_laws_of_events(seed: int) -> None:
    """What the journal asks of typed changes: known ops and images, no absent key, an update keeps its key,
    and no two changes of a transaction have the same number. Encoded as rows/1, they come back."""
    random = Random(seed)
    fixed = {oid: versions[:1] for oid, versions in RELATIONS.items()}
    messages = [one for one in Writer(random).stream(6) if one[:1] != b"R" and not _of_other_version(one)]
    decoded = decode([framing.encode(messages)], fixed)
    for place in decoded.transactions.commit_lsns.tolist():
        tables = [_of_place(table, place) for table in decoded.tables]
        assert rows.decode(rows.encode(tables)) == tables


def _of_place(table: TableChanges, place: int) -> Changes:
    part = table.rows.filter(pc.equal(table.rows.column(change.PLACE), pa.scalar(place, pa.uint64())))
    return Changes(str(table.relation.name), table.relation.key, part.drop_columns([RECORD, change.PLACE]))


def _of_other_version(message: bytes) -> bool:
    """A row of table 1 with four columns: without its announcement nobody can read it."""
    return message[:1] in (b"I", b"U", b"D") and message[1:5] == b"\0\0\0\1" and message[6:8] == b"\0\4"


def hurt(messages: list[bytes], random: Random) -> list[bytes]:
    """One message with a bit flipped, a piece cut out or doubled; or a message lost, doubled, moved."""
    messages = list(messages)
    n = random.randrange(len(messages))
    one = bytearray(messages[n])
    at = random.randrange(len(one))
    match random.choice(
        ["mark"] * 4 + ["bit", "byte", "cut", "end", "double", "lose", "repeat", "swap", "empty"]
    ):
        case "mark":
            marks = [place for place, byte in enumerate(one) if byte in b"ntuKON"] or [0]
            one[random.choice(marks)] = random.choice(b"ntubKON")
        case "bit":
            one[at] ^= 1 << random.randrange(8)
        case "byte":
            one[at] = random.choice(b"BCIUDTMRYOSEAcKNntub\0\xff")
        case "cut":
            del one[at : at + random.randint(1, 4)]
        case "end":
            del one[at:]
        case "double":
            one[at:at] = one[at : at + random.randint(1, 4)]
        case "lose":
            return messages[:n] + messages[n + 1 :]
        case "repeat":
            return [*messages[:n], messages[n], *messages[n:]]
        case "swap":
            m = random.randrange(len(messages))
            messages[n], messages[m] = messages[m], messages[n]
            return messages
        case _:
            one = bytearray()
    messages[n] = bytes(one)
    return messages


@settings(max_examples=500)
@given(st.integers(0, 1 << 32))
def test_damage_is_refused_or_read_alike(seed: int) -> None:
    """A damaged stream is refused with the place, or it has the form of another one, and is read as the plain
    reader reads that; it never gives other rows, and never fails otherwise."""
    random = Random(seed)
    messages = hurt(Writer(random).stream(4) or [b"B"], random)
    try:
        expected = without_stopped(Reader(RELATIONS).read([messages]))
    except Broken:
        with pytest.raises(Undecodable, match=r"^message \d+, at byte \d+: |columns of its relation"):
            decode([framing.encode(messages)], RELATIONS)
        return
    assert reading([decode([framing.encode(messages)], RELATIONS)]) == expected
