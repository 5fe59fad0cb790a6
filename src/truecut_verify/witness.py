"""V3: does the source's log, told once more and read here, say what the evidence says, change by change?

A second slot (the *witness*) keeps the log. It is looked at, never moved. What is compared is the log after a
copy's base, or after the place up to which it has been compared before: every change in its order, its
operation, its row's key and what its row comes to. Both are read as streams; memory does not grow with them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from truecut_verify import pgoutput
from truecut_verify.batches import Raw, digests_of
from truecut_verify.digest import Table, Unencodable
from truecut_verify.documents import Copy
from truecut_verify.evidence import Run
from truecut_verify.files import Examined
from truecut_verify.pgoutput import ABSENT, Change, Relation, Values
from truecut_verify.replay import BUCKETS, DELETE, INSERT, TRUNCATE, UPDATE, Event, events
from truecut_verify.texts import SESSION, canonical, list_bytes
from truecut_verify.verdict import Check, Fail, Finding, Unknown

AT_ONCE = 2_000  # changes of a copy whose digests are computed together
_OPS = {pgoutput.INSERT: INSERT, pgoutput.UPDATE: UPDATE, pgoutput.DELETE: DELETE}
_BESIDE = ("_truecut_position", "_truecut_seq", "_truecut_op", "_truecut_unchanged")  # of an append table
_SLOT = """
SELECT plugin, confirmed_flush_lsn::text, wal_status, database = current_database(),
  pg_current_wal_flush_lsn()::text FROM pg_replication_slots WHERE slot_name = %s
"""
_PEEK = """
SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', '1',
  'publication_names', %s)
"""
_DELIMITERS = "SELECT oid::int8, typdelim::text FROM pg_type"
_IDENTITY = "SELECT system_identifier || '/' || current_database() || '/' FROM pg_control_system()"


@dataclass(frozen=True, slots=True)
class Log:
    """Where a source's log is kept for us."""

    dsn: str
    slot: str
    publication: str


@dataclass(frozen=True, slots=True)
class Compared:
    """What was compared of a copy before: up to a place, with the chain of segments up to there, while the
    slot began at `slot_at` or earlier."""

    at: str
    evidence: str
    slot_at: int


@dataclass(frozen=True, slots=True)
class Kept:
    """What the slot has: the log of whatever commits at `begins` or later, durable up to `ends`."""

    begins: int
    ends: int


def check_log(
    found: Examined, log: Log, secret: bytes, before: Mapping[tuple[str, str], Compared] | None = None
) -> list[Check]:
    """Every copy, the log being read once for all of them."""
    if found.chain is None:
        return []
    checks, following = list[Check](), list[_Following]()
    try:
        with _connected(log.dsn) as connection:
            _require_same_source(connection, found)
            kept = _kept(connection, log.slot)
            delimiters = dict(connection.execute(_DELIMITERS).fetchall())
            for name, copy in found.chain.current.items():
                try:
                    start = _start(found, copy, secret, kept, (before or {}).get(name))
                    run = found.runs[copy.name][-1]
                    following.append(_Following(found, run, copy, secret, start, delimiters))
                except Finding as finding:
                    checks.append(_of(copy, finding))
            if following:
                _read(connection, log, following, kept.begins)
    except Finding as finding:  # of the log itself: nobody knows
        return [_of(copy, finding) for copy in found.chain.current.values()]
    return [*checks, *(one.check() for one in following)]


def _of(copy: Copy, finding: Finding) -> Check:
    return Check.of("V3", finding, table=copy.table, sink=copy.sink, frontier=copy.at)


# --- the log ----------------------------------------------------------------------------------------------


@contextmanager
def _connected(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    try:
        with psycopg.connect(dsn, options=SESSION, application_name="truecut-verify") as connection:
            connection.autocommit = True
            yield connection
    except psycopg.Error as error:
        raise Unknown(f"the source's log cannot be read ({type(error).__name__})") from error


def _require_same_source(connection: psycopg.Connection[Any], found: Examined) -> None:
    assert found.chain is not None
    told = connection.execute(_IDENTITY).fetchone()
    if told is None or not found.chain.certificates[-1].source["identity"].startswith(str(told[0])):
        raise Fail("it is another source than that of the certificate")


def _kept(connection: psycopg.Connection[Any], slot: str) -> Kept:
    told = connection.execute(_SLOT, (slot,)).fetchone()
    if told is None:
        raise Unknown(f"the witness slot {slot} is gone, and the log that it kept")
    plugin, confirmed, status, is_here, flushed = told
    if plugin != "pgoutput" or not is_here:
        raise Unknown(f"the slot {slot} is of another plugin or database")
    if status == "lost" or confirmed is None:
        raise Unknown(f"the witness slot {slot} has lost its log")
    return Kept(_lsn(confirmed), _lsn(flushed))


def _read(
    connection: psycopg.Connection[Any], log: Log, following: Sequence[_Following], begins: int
) -> None:
    """Once, to its end; whoever has found a difference hears no more."""
    by_table: dict[str, list[_Following]] = {}
    for one in following:
        by_table.setdefault(one.copy.table, []).append(one)
    publication = '"' + log.publication.replace('"', '""') + '"'
    with connection.cursor() as cursor:
        rows = cursor.stream(_PEEK, (log.slot, publication), binary=True)
        for change in pgoutput.changes(bytes(row[0]) for row in rows):
            for one in by_table.get(change.relation.table, ()):
                one.take(change)
    if _kept(connection, log.slot).begins != begins:
        raise Unknown(f"the witness slot {log.slot} was moved while it was read")
    for one in following:
        one.end()


def _lsn(text: str) -> int:
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def _place(position: str) -> int:
    return int(position[9:], 16)


# --- a copy -------------------------------------------------------------------------------------------------


def _start(found: Examined, copy: Copy, secret: bytes, kept: Kept, before: Compared | None) -> str:
    """From where on its evidence and the log are compared; Unknown where a part of the log is gone."""
    assert found.chain is not None
    certificate = found.chain.certificates[-1]
    if hashlib.sha256(secret).hexdigest()[:16] != certificate.secret:
        raise Unknown("the secret that was given is not that of the certificate")
    if copy.name not in found.runs or not found.runs[copy.name][-1].has_base:
        raise Unknown("its evidence is not here from its base on")
    if copy.verdict == "unknown":
        raise Unknown(f"the certificate itself says that it does not know: {copy.reason}")
    if copy.scope.rpartition("\n")[0] != certificate.source["identity"]:
        raise Unknown("it was copied from another source, before that of the certificate")
    if copy.route is not None:
        raise Unknown("it has the rows of one route only, and a certificate does not name their column")
    run = found.runs[copy.name][-1]
    start = _base(run)
    if before is not None and _is_of(run, before) and before.at > start:
        start = before.at
        if kept.begins > max(before.slot_at, _place(start) + 1):
            raise Unknown(
                f"the witness slot was made anew or moved after {start}: the log in between is gone"
            )
    elif kept.begins > _place(start) + 1:
        raise Unknown(
            f"the witness slot begins after {start}, where the copy does: nobody kept the log between"
        )
    if kept.ends <= _place(copy.at):
        raise Unknown("the server's log ends before what is certified: it was put back to an earlier state")
    return start


def _base(run: Run) -> str:
    return [segment.upto for segment in run.segments if segment.kind == "base"][-1]


def _is_of(run: Run, before: Compared) -> bool:
    """Whether what was compared is the beginning of this very chain."""
    return any(step.claim is not None and step.head.hex() == before.evidence for step in run.steps)


@dataclass(slots=True)
class _Following:
    """One copy's evidence beside the log."""

    found: Examined
    run: Run
    copy: Copy
    secret: bytes
    start: str
    delimiters: Mapping[int, str]  # by the oids of types: what divides their arrays
    compared: int = 0
    finding: Finding | None = None
    _pending: list[_Told] = field(default_factory=list)
    _evidence: Iterator[tuple[Copy, Event]] | None = None

    def take(self, change: Change) -> None:
        """The log's next change of this table."""
        if self.finding is None and _place(self.start) < change.place <= _place(self.copy.at):
            try:
                self._pending += _told(change, self.copy)
                if len(self._pending) >= AT_ONCE:
                    self._compare()
            except Finding as finding:
                self.finding = finding

    def end(self) -> None:
        """There is no more of the log."""
        try:
            if self.finding is None:
                self._compare()
                more = next(self._events(), None)
                if more is not None:
                    raise self._apart("the evidence tells a change that the log does not have", more[1][0])
        except Finding as finding:
            self.finding = finding

    def check(self) -> Check:
        """What came of it."""
        if self.finding is not None:
            return _of(self.copy, self.finding)
        detail = f"the log says the same, read again after {self.start}: {self.compared:,} changes"
        return Check("V3", "pass", detail, self.copy.table, self.copy.sink, self.copy.at)

    def _events(self) -> Iterator[tuple[Copy, Event]]:
        """The evidence's changes, each with the claim that tells its columns."""
        self._evidence = self._evidence or self._told_events()
        return self._evidence

    def _told_events(self) -> Iterator[tuple[Copy, Event]]:
        claim = self.copy
        steps = list[tuple[Copy, Any]]()
        for step in reversed(self.run.steps):
            claim = step.claim or claim
            if step.segment is not None and step.segment.kind == "changes" and step.segment.upto > self.start:
                steps.append((claim, step.segment))
        for claim, segment in reversed(steps):
            for event in events(self.found.folder, segment, 0, BUCKETS):
                if event[0] > _place(self.start):
                    yield claim, event

    def _compare(self) -> None:
        """What waits, beside the evidence; the first difference is raised."""
        pairs, apart = list[tuple[Copy, Event, _Told]](), None
        for told in self._pending:
            more = next(self._events(), None)
            if more is None or more[1][0] > told.place:
                apart = self._apart("the log tells a change that the evidence does not have", told.place)
            elif more[1][0] < told.place:
                apart = self._apart("the evidence tells a change that the log does not have", more[1][0])
            if more is None or apart is not None:
                break
            pairs.append((*more, told))
        self._pending = []
        for claim, event, told, key, row in self._digested(pairs):
            same = (event[2], event[3], event[4]) == (told.op_of(self.copy.mode), key, row)
            if not same or sorted(event[5] or ()) != sorted(told.absent_of(claim)):
                raise self._apart("the evidence tells another change than the log", event[0], seq=event[1])
            self.compared += 1
        if apart is not None:
            raise apart

    def _apart(self, what: str, place: int, **more: Any) -> Fail:
        position = f"{self.copy.at[:9]}{place:016X}"
        return Fail(f"{what}, at {position}", at=position, **more)

    def _digested(
        self, pairs: Sequence[tuple[Copy, Event, _Told]]
    ) -> Iterator[tuple[Copy, Event, _Told, bytes | None, bytes | None]]:
        """With the digests of what the log told, under the columns that were then claimed."""
        first = 0
        while first < len(pairs):
            claim, last = pairs[first][0], first
            while last < len(pairs) and pairs[last][0] is claim:
                last += 1
            group = pairs[first:last]
            rows = [told.raws(claim, event, self.delimiters) for _, event, told in group]
            columns: dict[str, Raw] = {name: [row[name] for row in rows] for name, _, _ in claim.columns}
            digests = list(digests_of(self.secret, _table(claim), columns))
            for (_, event, told), (key, total, _) in zip(group, digests, strict=True):
                keyless = told.kind == pgoutput.TRUNCATE and claim.mode == "mirror"
                rowless = keyless or (told.kind == pgoutput.DELETE and claim.mode == "mirror")
                yield (
                    claim,
                    event,
                    told,
                    None if keyless else key,
                    None if rowless else total.to_bytes(16, "big"),
                )
            first = last


def _table(copy: Copy) -> Table:
    forms = {name: form for name, _, form in copy.columns}
    own = [column for column in copy.columns if column[0] not in copy.key]
    return Table(copy.scope, [(name, forms[name]) for name in copy.key], own)


# --- what a message comes to --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Told:
    """A change as a copy is to have it: an update of the key is two."""

    place: int
    kind: str
    relation: Relation
    values: Values
    untold: frozenset[str] = frozenset()  # columns whose values were not sent

    def op_of(self, mode: str) -> int:
        """Every change is a row of an append table."""
        return INSERT if mode == "append" else _OPS.get(self.kind, TRUNCATE)

    def absent_of(self, claim: Copy) -> list[int]:
        """The numbers of the columns that were not sent, where a mirror takes them from the row before."""
        if claim.mode == "append" or self.kind == pgoutput.DELETE:
            return []
        return [number for name, number, _ in claim.columns if name in self.untold]

    def raws(self, claim: Copy, event: Event, delimiters: Mapping[int, str]) -> dict[str, bytes | None]:
        """The canonical bytes of its row's columns. A place tells nothing of seq: that is the evidence's."""
        names = {name for name, _, _ in claim.columns if name not in _BESIDE}
        if names != {name for name, _ in self.relation.columns}:
            raise Unknown(
                "its columns changed on the way: what the log tells has others than the certificate"
            )
        oids = dict(self.relation.columns)
        found: dict[str, bytes | None] = {}
        try:
            for name, _, form in claim.columns:
                if name in oids:
                    value, oid = self.values.get(name), oids[name]
                    found[name] = None
                    if isinstance(value, bytes):
                        found[name] = canonical(value, form, oid, delimiters.get(oid))
        except Unencodable as error:
            raise Unknown(f"a value of the log that cannot be compared: {error}") from error
        if claim.mode == "append":
            found |= self._beside(claim, event[1])
        return found

    def _beside(self, claim: Copy, seq: int) -> dict[str, bytes | None]:
        untold = [name.encode() for name, _ in self.relation.columns if name in self.untold]
        return {
            "_truecut_position": f"{claim.at[:9]}{self.place:016X}".encode(),
            "_truecut_seq": f"{seq % (1 << 64):016X}".encode(),
            "_truecut_op": self.kind.encode(),
            "_truecut_unchanged": list_bytes(list(untold)) if untold else None,
        }


def _told(change: Change, copy: Copy) -> list[_Told]:
    place, relation, old = change.place, change.relation, change.old
    if change.kind == pgoutput.TRUNCATE:
        return [_Told(place, change.kind, relation, {})]
    if change.kind == pgoutput.DELETE:
        untold = {name for name, _ in relation.columns} - relation.identity if change.old_is_key else set()
        return [_Told(place, change.kind, relation, old or {}, frozenset(untold))]
    new = dict(change.new or {})
    for name, value in (old or {}).items():
        if new[name] is ABSENT and isinstance(value, bytes):  # not sent anew, but told of the row before
            new[name] = value
    untold = {name for name, value in new.items() if value is ABSENT}
    after = _Told(place, change.kind, relation, new, frozenset(untold))
    if old is None or not _moved(old, new, _key(change, copy)):
        return [after]
    gone = {name for name, _ in relation.columns} - relation.identity if change.old_is_key else set()
    return [
        _Told(place, pgoutput.DELETE, relation, old, frozenset(gone)),
        _Told(place, pgoutput.INSERT, relation, new, frozenset(untold)),
    ]


def _key(change: Change, copy: Copy) -> Sequence[str]:
    """An append table's own key says nothing of its source's."""
    if copy.mode == "mirror":
        return copy.key
    if not change.old_is_key:
        raise Unknown(
            "an append table of a source that sends whole rows: which of their columns are the key?"
        )
    return sorted(change.relation.identity)


def _moved(old: Values, new: Values, key: Sequence[str]) -> bool:
    return any(old.get(name) != new.get(name) for name in key)
