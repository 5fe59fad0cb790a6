"""Messages in any form and any portions come out as the transactions that committed, whole and in order."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from tests.sources.postgres import pgoutput
from truecut.errors import Retry, TruecutError
from truecut.sources.postgres.messages import Unreadable
from truecut.sources.postgres.reassembly import Streams
from truecut.sources.postgres.spool import Spool
from truecut.sources.postgres.transactions import RELATIONS_MAX, Block, Elsewhere, Transactions, Unfinished


@dataclass
class Server:
    """A made-up server: transactions that overlap, some streamed, some parts of them aborted."""

    rng: random.Random
    plain: list[bytes] = field(default_factory=list)  # as a server would send it that does not stream
    sent: list[bytes] = field(default_factory=list)
    lsn: int = 1000
    xid: int = 500

    def run(self, count: int) -> None:
        open_ones: list[Iterator[None]] = []
        started = 0
        while started < count or open_ones:
            if started < count and len(open_ones) < 4:
                self.xid += 10
                open_ones.append(
                    self._streamed(self.xid) if self.rng.random() < 0.5 else self._small(self.xid)
                )
                started += 1
            one = self.rng.choice(open_ones)
            if next(one, "over") == "over":
                open_ones.remove(one)

    def _small(self, xid: int) -> Iterator[None]:
        changes = [self._change(xid, n) for n in range(self.rng.randrange(4))]
        yield
        self._commit(xid, [one for pair in changes for one in pair], streamed=False)

    def _streamed(self, xid: int) -> Iterator[None]:
        kept: list[bytes] = []
        first = True
        told: set[bytes] = set()
        for sub in range(xid, xid + self.rng.randrange(1, 4)):
            changes = [self._change(xid, n) for n in range(self.rng.randrange(1, 5))]
            self.sent.append(pgoutput.stream_start(xid, first=first))
            first = False
            for announcement, change in changes:
                if announcement not in told:
                    self.sent.append(pgoutput.streamed(announcement, sub))
                    told.add(announcement)
                self.sent.append(pgoutput.streamed(change, sub))
            self.sent.append(pgoutput.STREAM_STOP)
            yield
            if sub != xid and self.rng.random() < 0.4:
                self.sent.append(pgoutput.stream_abort(xid, sub))
            else:
                kept += [one for pair in changes for one in pair]
        if self.rng.random() < 0.2:
            self.sent.append(pgoutput.stream_abort(xid, xid))
        else:
            self._commit(xid, kept, streamed=True)

    def _commit(self, xid: int, inner: list[bytes], *, streamed: bool) -> None:
        self.lsn += self.rng.randrange(20, 200)
        end = self.lsn + 10
        whole = [pgoutput.begin(xid, self.lsn), *inner, pgoutput.commit(self.lsn, end)]
        self.plain += whole
        self.sent += [pgoutput.stream_commit(xid, self.lsn, end)] if streamed else whole

    def _change(self, xid: int, n: int) -> tuple[bytes, bytes]:
        oid = self.rng.randrange(1, 4)
        size = self.rng.choice([3, 3, 3, 200])
        return pgoutput.relation(oid), pgoutput.insert(oid, f"{xid}.{n}".encode().ljust(size, b"."))


def assemble(
    messages: Sequence[bytes], rng: random.Random, transactions: Transactions, streams: Streams
) -> Iterator[Block]:
    """In portions of any size."""
    at = 0
    while at < len(messages):
        portion = messages[at : at + rng.randrange(1, 30)]
        at += len(portion)
        for plain in streams.take(portion):
            yield from transactions.take(plain)


def said(blocks: Iterable[Block]) -> list[pgoutput.Transaction]:
    """What the blocks say, each read by itself: what another block announced is of no help."""
    parts: list[Sequence[bytes]] = []
    found = []
    for block in blocks:
        assert block.part == len(parts)
        parts.append(block.messages)
        if block.end is not None:
            found += pgoutput.transactions(_alike(parts))
            parts = []
    assert not parts
    return found


def _alike(parts: Sequence[Sequence[bytes]]) -> Iterator[bytes]:
    """One after another, forgetting at each border what was announced."""
    for messages in parts:
        announced: set[bytes] = set()
        for one in messages:
            if one[:1] == b"R":
                announced.add(one[1:5])
            assert one[:1] != b"I" or one[1:5] in announced
            yield one


def _new(*, after: int = 0, memory_max: int = 1 << 20, unfinished: Unfinished | None = None) -> Transactions:
    spool = partial(Spool, memory_max=memory_max)
    return Transactions(after=after, unfinished=unfinished, spool=spool, block_bytes=300)


@pytest.mark.parametrize("seed", range(60))
def test_what_committed_comes_out_whole_and_in_order(seed: int) -> None:
    """Streamed or not, in any portions, in memory or on disk; nothing of what was aborted."""
    rng = random.Random(seed)
    server = Server(rng)
    server.run(25)
    memory_max = rng.choice([50, 1000, 1 << 20])
    transactions = _new(memory_max=memory_max)
    blocks = list(assemble(server.sent, rng, transactions, Streams(partial(Spool, memory_max=memory_max))))
    assert said(blocks) == pgoutput.transactions(server.plain)
    assert transactions.position == blocks[-1].end
    assert any(block.part for block in blocks), "a large one was there"


@pytest.mark.parametrize("seed", range(30))
def test_what_the_journal_has_is_not_given_again(seed: int) -> None:
    """The boundary: what ends at the position is in the journal, what ends behind it is not."""
    rng = random.Random(seed)
    server = Server(rng)
    server.run(25)
    everything = pgoutput.transactions(server.plain)
    for known in range(len(everything)):
        transactions = _new(after=everything[known].end_lsn)
        blocks = assemble(server.sent, rng, transactions, Streams())
        assert said(blocks) == everything[known + 1 :]


@pytest.mark.parametrize("seed", range(20))
def test_an_unfinished_transaction_is_gone_on_with(seed: int) -> None:
    """Wherever the journal's last part ended, and however the next reading is cut and announced."""
    rng = random.Random(seed)
    server = Server(rng)
    server.run(15)
    blocks = list(assemble(server.sent, rng, _new(), Streams()))
    for cut, block in enumerate(blocks):
        if block.end is not None:
            continue
        first = cut - block.part
        after = max((one.end or 0 for one in blocks[:first]), default=0)
        kept = [one for part in blocks[first : cut + 1] for one in part.messages if one[:1] not in b"RY"]
        lsn, xid = int.from_bytes(kept[0][1:9], "big"), int.from_bytes(kept[0][17:21], "big")
        unfinished = Unfinished(lsn, xid, block.part + 1, len(kept))
        again = Transactions(after=after, unfinished=unfinished, block_bytes=rng.choice([100, 700]))
        rest = list(assemble(server.plain if rng.random() < 0.5 else server.sent, rng, again, Streams()))
        assert said([*blocks[: cut + 1], *rest]) == pgoutput.transactions(server.plain)


def test_another_history_is_refused() -> None:
    """Where the journal has begun with a transaction, nothing else can come first."""
    server = Server(random.Random(1))
    server.run(3)
    with pytest.raises(Elsewhere):
        list(_new(unfinished=Unfinished(5, 5, 1, 3)).take(server.plain))


def test_a_transaction_that_is_sent_anew_replaces_what_had_come() -> None:
    """Every new call for changes sends open transactions again from their first block."""
    streams = Streams()
    block = [
        pgoutput.stream_start(7, first=True),
        pgoutput.streamed(pgoutput.relation(1), 7),
        pgoutput.streamed(pgoutput.insert(1, b"a"), 7),
        pgoutput.STREAM_STOP,
    ]
    sent = [*block, *block, pgoutput.stream_commit(7, 100, 110)]
    blocks = list(assemble(sent, random.Random(1), _new(), streams))
    assert [len(one.changes) for one in said(blocks)] == [1]


def test_a_schema_announced_in_an_aborted_part_counts_all_the_same() -> None:
    """The server announces a relation once for a streamed transaction, in whichever part comes first."""
    sent = [
        pgoutput.stream_start(7, first=True),
        pgoutput.streamed(pgoutput.relation(1), 8),
        pgoutput.streamed(pgoutput.insert(1, b"gone"), 8),
        pgoutput.streamed(pgoutput.insert(1, b"stays"), 9),
        pgoutput.STREAM_STOP,
        pgoutput.stream_abort(7, 8),
        pgoutput.stream_commit(7, 100, 110),
    ]
    (found,) = said(assemble(sent, random.Random(1), _new(), Streams()))
    assert [change for change, _ in found.changes] == [pgoutput.insert(1, b"stays")]


def test_a_heartbeat_moves_the_position_and_is_not_given_out() -> None:
    """Somebody else's message that is of no transaction is given out by itself."""
    transactions = _new()
    other = pgoutput.logical(50, "theirs", transactional=False, content=b"x")
    ours = pgoutput.logical(90, "truecut", transactional=False)
    (block,) = transactions.take([other, ours])
    assert list(block.messages) == [other]
    assert transactions.position == 90


def test_a_large_message_of_no_transaction_is_a_block_of_its_own() -> None:
    """However long it is, it has no parts."""
    note = pgoutput.logical(50, "theirs", transactional=False, content=b"x" * 10_000)
    small = [pgoutput.begin(7, 60), pgoutput.commit(60, 70)]
    blocks = list(_new().take([note, *small]))
    assert [(list(one.messages), one.part, one.end) for one in blocks] == [([note], 0, 50), (small, 0, 70)]


def test_an_origin_does_not_count_where_a_transaction_is_gone_on_with() -> None:
    """A server that streams a transaction does not know its origin yet; the next reading has it."""
    begin, origin, commit = pgoutput.begin(7, 100), b"O" + bytes(8) + b"there\0", pgoutput.commit(100, 110)
    rows = [pgoutput.insert(1, b"%d" % n * 100) for n in range(20)]
    streamed = [pgoutput.streamed(one, 7) for one in (pgoutput.relation(1), *rows)]
    sent = [pgoutput.stream_start(7, first=True), *streamed, pgoutput.STREAM_STOP]
    blocks = list(assemble([*sent, pgoutput.stream_commit(7, 100, 110)], random.Random(1), _new(), Streams()))
    kept = [one for one in blocks[0].messages if one[:1] not in b"RY"]
    again = _new(unfinished=Unfinished(100, 7, 1, len(kept)))
    rest = list(again.take([begin, origin, pgoutput.relation(1), *rows, commit]))
    said_rows = [one for block in (blocks[0], *rest) for one in block.messages if one[:1] == b"I"]
    assert said_rows == rows


def test_a_message_within_a_transaction_is_no_heartbeat() -> None:
    """Whatever its prefix is: it is part of what committed, streamed or not."""
    theirs = pgoutput.logical(90, "truecut", transactional=True, content=b"x")
    sent = [pgoutput.begin(7, 100), theirs, pgoutput.commit(100, 110)]
    (block,) = _new().take(sent)
    assert list(block.messages) == sent


def _wide(oids: Iterable[int], lsn: int) -> list[bytes]:
    """A small transaction of many relations."""
    inner = [one for oid in oids for one in (pgoutput.relation(oid), pgoutput.insert(oid, b"x"))]
    return [pgoutput.begin(7, lsn), *inner, pgoutput.commit(lsn, lsn + 1)]


def _truncate(oids: Sequence[int]) -> bytes:
    return struct.pack(f">cIB{len(oids)}I", b"T", len(oids), 1, *oids)


def _bounded(blocks: Sequence[Block]) -> Sequence[Block]:
    assert all(len(block.relations) <= RELATIONS_MAX for block in blocks)
    return blocks


def test_a_block_names_only_so_many_relations() -> None:
    """Whether they are changed, truncated or announced anew; in one transaction or in several."""
    small, many = _wide([1], 10), range(1, 1000)
    versions = [pgoutput.relation(1, name=f"n{n}") for n in range(600)]
    anew = [one for each in versions for one in (each, pgoutput.insert(1, b"x"))]
    truncates = [_truncate([n]) for n in range(1, 190)] + [_truncate(list(many))]
    sent = [
        *small,
        *_wide(many, 20),
        *(one for n, oid in enumerate(many) for one in _wide([oid], 30 + 2 * n)),
        *[pgoutput.begin(8, 5000), *truncates, pgoutput.commit(5000, 5001)],
        *[pgoutput.begin(9, 6000), *anew, pgoutput.commit(6000, 6001)],
    ]
    wide = Transactions(after=0, block_bytes=1 << 20)
    found = said(_bounded(list(wide.take(sent))))
    assert [one.end_lsn for one in found] == [one.end_lsn for one in pgoutput.transactions(sent)]
    messages = [one for block in Transactions(after=0).take(sent) for one in block.messages]
    emptied = [
        oid for one in messages if one[:1] == b"T" for oid in struct.unpack(f">{len(one[6:]) // 4}I", one[6:])
    ]
    assert emptied == [*range(1, 190), *many]
    assert [one for one in messages if one[:1] == b"I"] == [one for one in sent if one[:1] == b"I"]


def test_a_transaction_of_many_relations_is_gone_on_with() -> None:
    """What the parts in the journal announce does not go into the next one."""
    sent = _wide(range(1, 1000), 20)
    blocks = _bounded(list(_new().take(sent)))
    for cut in range(1, len(blocks)):
        kept = [one for block in blocks[:cut] for one in block.messages if one[:1] != b"R"]
        again = _new(unfinished=Unfinished(20, 7, cut, len(kept)))
        rest = _bounded(list(again.take(sent)))
        assert said([*blocks[:cut], *rest]) == pgoutput.transactions(sent)


def test_what_is_announced_in_the_same_words_begins_a_block() -> None:
    """The server repeats itself where something changed, perhaps what its words do not tell: in one record
    the same words mean one schema."""
    sent = [*_wide([1, 2], 10), *_wide([3], 20), *_wide([3, 4], 30), *_wide([5], 40), *_wide([1], 50)]
    blocks = list(Transactions(after=0).take(sent))
    assert [block.end for block in blocks] == [21, 41, 51]
    assert len({id(one) for block in blocks for one in block.relations}) == 7


def test_a_spool_keeps_little_in_memory_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Its file has no name: nothing is left after a kill."""
    spool = Spool(tmp_path, memory_max=1000)
    messages = [b"%d" % n * 20 for n in range(500)]
    for n in range(0, 500, 7):
        spool.add(messages[n : n + 7])
        assert sum(map(len, list(spool.chunks())[-1])) <= 1000
    for _ in range(2):
        assert [one for chunk in spool.chunks() for one in chunk] == messages
    assert list(tmp_path.iterdir()) == []
    spool.close()


@pytest.mark.parametrize(
    "sent",
    [
        [b"B"],
        [b"Z123"],
        [pgoutput.insert(1, b"a")],
        [pgoutput.begin(1, 5), pgoutput.insert(1, b"a"), pgoutput.commit(5, 6)],
        [pgoutput.stream_commit(7, 1, 2)],
        [pgoutput.stream_start(7, first=False)],
        [b"b" + bytes(40)],
        [b"T\0\0\0\5\0"],
    ],
    ids=["short", "unknown", "outside", "unannounced", "no-stream", "no-first", "prepare", "truncate"],
)
def test_what_the_protocol_does_not_allow_is_refused(sent: Sequence[bytes]) -> None:
    """Never guessed at."""
    sent = [*sent, pgoutput.commit(8, 9)]
    with pytest.raises(Unreadable):
        list(assemble(sent, random.Random(1), _new(), Streams()))


def test_a_transaction_that_finds_no_room_is_tried_again(tmp_path: Path) -> None:
    """The folder for temporary files is gone or full: said as what it is, and not the end of capture."""
    spool = Spool(tmp_path / "gone", memory_max=1000)
    with pytest.raises(TruecutError, match="TC2126") as caught:
        spool.add([bytes(2000)])
    assert caught.value.fault.retry is Retry.RETRYABLE
