"""V4 and V5: what a source or a sink holds now, read here, against what is certified.

Content is streamed and summed up, so memory does not grow with it. Only where the sums differ are rows read
again, some buckets at a time, to name the keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any, Protocol

from truecut_verify.batches import Raw, digests_of, shown
from truecut_verify.chain import check_told
from truecut_verify.digest import Table, bucket
from truecut_verify.documents import Copy, Segment
from truecut_verify.evidence import Run, Step, extension
from truecut_verify.files import Examined
from truecut_verify.folder import Folder, WrongUsage
from truecut_verify.replay import Buckets, Tally, parts_of, replay_all
from truecut_verify.verdict import Check, Fail, Finding, Unknown


@dataclass(frozen=True, slots=True)
class Standing:
    """What a sink's cursor says of one copy."""

    at: str
    edition: int
    evidence: str
    identity: str
    certificate: str


def standing_of(state: str, table: str) -> Standing | None:
    """Of the text that a cursor keeps its copies in."""
    try:
        document = json.loads(state)
        if (copy := document["copies"].get(table)) is None:
            return None
        at, edition, head = str(copy["at"]), int(copy["edition"]), str(copy.get("evidence", ""))
        return Standing(at, edition, head, str(copy["source_identity"]), str(document["certificate"]))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise Fail("the sink's cursor cannot be read") from error


class Reader(Protocol):
    """A sink or a source, in one snapshot of it."""

    def standing(self, pipeline: str, sink: str, table: str) -> Standing | None:
        """Of the cursor that was written with the data."""

    def identity(self) -> str:
        """What a certificate's `source` says of it, or how that begins."""

    def position(self, copy: Copy) -> str:
        """How the content that is read lies to the copy's position: at, beyond or before."""

    def rows(self, copy: Copy) -> Iterator[list[Raw]]:
        """The copy's columns as canonical bytes, in the order of `copy.columns`, batch by batch."""


Look = Callable[[Reader, Copy], Check]


def open_reader(dsn: str, *, is_source: bool) -> AbstractContextManager[Reader]:
    """By what the DSN begins with; what reads it is imported here, as it may not be installed."""
    extra = "duckdb" if dsn.startswith("ducklake:") else "postgres"
    try:
        if extra == "duckdb":
            from truecut_verify.lake import open_lake

            return open_lake(dsn)
        from truecut_verify.postgres import open_postgres

        return open_postgres(dsn, is_source=is_source)
    except ImportError as error:
        raise WrongUsage(f"to read that, install truecut-verify[{extra}]: {error}") from error


# --- V5 ---------------------------------------------------------------------------------------------------


def check_sinks(found: Examined, asked: Sequence[str], secret: bytes) -> list[Check]:
    """Every copy at the sinks that were named."""
    assert found.chain is not None
    names = sorted({sink for _, sink in found.chain.current})
    checks = []
    for dsn in asked:
        name, separator, rest = dsn.partition("=")
        if separator and name in names:
            names_here, dsn = [name], rest
        elif len(names) == 1:
            names_here = names
        else:
            raise WrongUsage(f"which sink is it? Write NAME=DSN, with one of: {', '.join(names)}")
        told = [copy for copy in found.chain.current.values() if copy.sink in names_here]
        copies = (replace(one, route_by=None) for one in told)  # all that is there, of whatever route
        checks += _each(copies, "V5", dsn, lambda reader, copy: _check_sink(found, reader, copy, secret))
    return checks


def _each(
    copies: Iterable[Copy], level: str, dsn: str, check: Look, *, is_source: bool = False
) -> list[Check]:
    checks: list[Check] = []
    with ExitStack() as stack:
        reader: Reader | None = None
        for copy in copies:
            try:
                reader = reader or stack.enter_context(open_reader(dsn, is_source=is_source))
                checks.append(check(reader, copy))
            except Finding as finding:
                checks.append(Check.of(level, finding, table=copy.table, sink=copy.sink, frontier=copy.at))
    return checks


def _check_sink(found: Examined, reader: Reader, copy: Copy, secret: bytes) -> Check:
    """Cursor first: which claim the content is measured by. Then the content."""
    assert found.chain is not None
    last = found.chain.certificates[-1]
    standing = reader.standing(last.pipeline, copy.sink, copy.table)
    if standing is None:
        raise Fail("the sink has no cursor for it")
    more = _check_standing(found, standing, copy)
    place = replace(copy, at=max(copy.at, standing.at))
    if not more:
        return _compare(found, reader, place, secret, "V5")
    steps = [*found.runs[copy.name][-1].steps, *(Step(0, segment=segment) for segment in more)]
    run = Run(copy.mode, steps)
    checked = _compare(found, reader, _extended(found.folder, run, place), secret, "V5", run)
    return replace(checked, detail=f"{checked.detail}, extended by {len(more)} unsigned segments")


def _extended(folder: Folder, run: Run, copy: Copy) -> Copy:
    """The claim as it will be: what the evidence up to the cursor comes to."""
    tally = Tally()
    for low, high in parts_of(run):
        tally.take(replay_all(folder, run, low, high).buckets)
    return replace(copy, root=tally.root(), rows=tally.rows)


def _check_standing(found: Examined, standing: Standing, copy: Copy) -> list[Segment]:
    """The head in the cursor is the head that was certified; where the sink has gone on since, the
    segments in between."""
    assert found.chain is not None
    beyond = (standing.edition, standing.at) > (copy.edition, copy.at)
    if standing.identity != copy.scope.rpartition("\n")[0]:
        raise Fail("the copy at the sink is of another source", cursor=standing.at)
    check_told(found.folder, found.chain, standing.certificate, beyond=beyond)
    if standing.evidence == copy.evidence and standing.edition == copy.edition:
        return []
    if beyond:
        more = extension(found.folder, copy, standing.evidence)
        if more and copy.name in found.runs and standing.edition == copy.edition:
            return more
        raise Unknown("the sink has gone on: it takes a certificate from after that", cursor=standing.at)
    if copy.verdict == "unknown":
        raise Unknown(f"the certificate itself says that it does not know: {copy.reason}")
    raise Fail("the sink's cursor is not where it was certified: set back, or another's", cursor=standing.at)


# --- V4 ---------------------------------------------------------------------------------------------------


def check_source(found: Examined, dsn: str, secret: bytes) -> list[Check]:
    """Every copy, as the source has it at the copy's position."""
    assert found.chain is not None
    identity = found.chain.certificates[-1].source["identity"]

    def check(reader: Reader, copy: Copy) -> Check:
        here = reader.identity()
        if not here or not identity.startswith(here):
            raise Fail("it is another source than that of the certificate")
        if copy.scope.rpartition("\n")[0] != identity:
            raise Unknown("it was copied from another source, before that of the certificate")
        if copy.mode == "append":
            raise Unknown("a source has no log of changes that could be read again")
        if copy.route is not None and copy.route_by is None:
            raise Unknown("it has the rows of one route only, and no column of texts is named that tells it")
        where = reader.position(copy)
        try:
            checked = _compare(found, reader, copy, secret, "V4")
        except Fail as finding:
            checked = Check.of("V4", finding, table=copy.table, sink=copy.sink, frontier=copy.at)
        if checked.verdict == "fail" and where != "at":
            raise Unknown(f"the source stands {where} what is certified: {checked.detail}", **checked.witness)
        return checked

    copies = [replace(copy, called=None) for copy in found.chain.current.values()]
    return _each(copies, "V4", dsn, check, is_source=True)


# --- content ----------------------------------------------------------------------------------------------


def _compare(
    found: Examined, reader: Reader, copy: Copy, secret: bytes, level: str, run: Run | None = None
) -> Check:
    """By the root. `run`: the evidence, where it is more than what is certified."""
    assert found.chain is not None
    if hashlib.sha256(secret).hexdigest()[:16] != found.chain.certificates[-1].secret:
        raise Unknown("the secret that was given is not that of the certificate")
    if copy.verdict == "unknown":
        raise Unknown(f"the certificate itself says that it does not know: {copy.reason}")
    buckets = Buckets()
    for key, row, _ in _digests(reader, copy, secret):
        buckets.add(key, row)
    if (buckets.root(), buckets.rows) == (copy.root, copy.rows):
        return Check(level, "pass", f"its {copy.rows} rows, read now", copy.table, copy.sink, copy.at)
    detail = f"{buckets.rows} rows with another content than the {copy.rows} that are certified"
    if copy.name not in found.runs:
        raise Fail(f"{detail}; without evidence no key can be named")
    return _named(found.folder, run or found.runs[copy.name][-1], reader, copy, secret, level, detail)


def _digests(
    reader: Reader, copy: Copy, secret: bytes
) -> Iterator[tuple[bytes, int, tuple[bytes | None, ...]]]:
    """Each row: the digest of its key, its sum, and its key's bytes."""
    forms = {name: form for name, _, form in copy.columns}
    table = Table(
        copy.scope,
        [(name, forms[name]) for name in copy.key],
        [column for column in copy.columns if column[0] not in copy.key],
    )
    for columns in reader.rows(copy):
        mine = copy.of_route(dict(zip(forms, columns, strict=True)))
        for name in copy.key:
            if None in mine[name]:
                raise Fail("a row whose key is NULL, or is so in part", column=name)
        yield from digests_of(secret, table, mine)


def _named(
    folder: Folder, run: Run, reader: Reader, copy: Copy, secret: bytes, level: str, detail: str
) -> Check:
    """Which keys: those of the evidence beside those that were read, some buckets at a time."""
    totals, witness = {"missing": 0, "extra": 0, "differs": 0}, dict[str, Any]()
    forms = {name: form for name, _, form in copy.columns}
    for low, high in parts_of(run):
        state = replay_all(folder, run, low, high)
        wanted = {key: row for key, (row, _) in state.rows.items()}
        for key, row, values in _digests(reader, copy, secret):
            if not low <= bucket(key) < high:
                continue
            what = "extra" if key not in wanted else "differs" if wanted[key] != row else ""
            wanted[key] = -1  # met; once more would be one too many
            if what:
                totals["extra" if what == "extra" else what] += 1
                told = {name: shown(raw, forms[name]) for name, raw in zip(copy.key, values, strict=True)}
                witness = witness or {"key": told, "at_sink": what, "key_digest": key.hex()}
        for key, _ in ((key, row) for key, row in wanted.items() if row >= 0):
            totals["missing"] += 1
            witness = witness or {"at_sink": "missing", "key_digest": key.hex()}
    return Check(level, "fail", detail, copy.table, copy.sink, copy.at, **totals, witness=witness)
