"""Issues certificates of what sinks have shown as committed: aside of the waves, from time to time.

Promises: only cursors that a sink has told are claimed, never what is in memory alone; one runner issues at a
time (a lease of its own), and a number is used once even if two believe they have it; nothing is issued when
nothing moved. What cannot be issued now is tried again, and delays nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from truecut.certificate import retention
from truecut.certificate.chain import NO_HEAD, canonical
from truecut.certificate.events import OP_COLUMN, UNCHANGED_COLUMN
from truecut.certificate.folding import Claim, Folding, Target
from truecut.certificate.forms import form_of
from truecut.certificate.issue import Copies, Issued, issue, last_readable, recent
from truecut.certificate.scope import scope_text
from truecut.certificate.segment import Wanted, columns_text
from truecut.certificate.sign import signer
from truecut.config.kinds import SINKS, SOURCES
from truecut.config.settings import Pipeline, SinkSettings, TableSettings, copy_fingerprint
from truecut.errors import Fault, TruecutError
from truecut.events import tell_fault
from truecut.model.change import OP, POSITION, SEQ, UNCHANGED
from truecut.model.cursor import CopyState, Cursor
from truecut.model.order import Receipt
from truecut.runtime.background import Background
from truecut.runtime.certificate_lease import IsOurs, alone
from truecut.runtime.timetable import Timetable

log = logging.getLogger(__name__)
_SHARE = 4  # of the time at most a quarter is spent on it
Fold = Callable[[Sequence[Folding]], list[Claim]]


def wanted_of(pipeline: Pipeline) -> Wanted | None:
    """What waves have to gather."""
    if pipeline.certificate is None:
        return None
    return Wanted(str(pipeline.certificate.path), SOURCES[pipeline.source.type].captured)


@dataclass(frozen=True, slots=True)
class Shown:
    """A cursor, and the sink's own name for the commit."""

    cursor: Cursor
    sink_version: str


class Certifier:
    """Of one run."""

    def __init__(
        self, pipeline: Pipeline, fold: Fold, background: Background, times: Timetable, *, runner: str
    ) -> None:
        assert pipeline.certificate is not None
        self._pipeline, self._settings = pipeline, pipeline.certificate
        self._fold, self._background, self._times = fold, background, times
        self._runner = runner
        self.last = self._known()
        signer(self._settings.path)  # without a key and a secret a run does not start
        self._shown: dict[str, Shown] = {}
        self._moved = False
        self._rest_ms = self._settings.interval_ms
        self.busy = False
        self.faults = 0  # tries that came to nothing
        self._unknown: dict[tuple[str, str], str] = {}  # copies, and the reason that was told of each

    def _known(self) -> Issued:
        """A folder that is hurt keeps nothing from being delivered; it is told again whenever one is due."""
        try:
            return last_readable(self._settings.path)
        except TruecutError as error:
            tell_fault(log, error.fault)
            return Issued()

    @property
    def digest(self) -> str:
        """For the next orders to carry."""
        return self.last.digest

    def heard(self, receipts: Iterable[Receipt]) -> None:
        """Sinks have told their cursors."""
        for receipt in receipts:
            if receipt.cursor is not None and receipt.cursor.copies:
                version = receipt.sink_version
                before = self._shown.get(receipt.sink)
                self._shown[receipt.sink] = Shown(receipt.cursor, version)
                self._moved |= before is None or before.cursor.copies != receipt.cursor.copies

    def revised(self, pipeline: Pipeline, changed: Iterable[str]) -> None:
        """The pipeline has other sinks by now. What those that came and went have shown before is void."""
        self._pipeline = pipeline
        for sink in changed:
            self._shown.pop(sink, None)

    @property
    def unsettled(self) -> bool:
        """Whether something was shown that no certificate tells yet."""
        return self.busy or self._moved

    def tend(self, *, often_ms: int | None = None) -> None:
        """Begin another one, if it is time and something moved."""
        rest_ms = self._rest_ms if often_ms is None else often_ms
        if self.busy or not self._moved or not self._times.is_due("certificate", rest_ms):
            return
        self.busy, self._moved = True, False
        shown = dict(self._shown)
        began = datetime.now(UTC)
        self._background.submit(
            lambda: self._issue(shown), lambda done: self._issued(done, began), self._failed
        )

    def _issued(self, done: Issued | None, began: datetime) -> None:
        self.busy = False
        if done is None:
            self._moved = True  # somebody else is at it
            return
        self.last = done
        took_ms = int((datetime.now(UTC) - began).total_seconds() * 1000)
        self._rest_ms = max(self._settings.interval_ms, _SHARE * took_ms)
        for key, row in done.copies.items():
            if row["verdict"] != "unknown":
                self._unknown.pop(key, None)
            elif row["segments"] != "[]" and self._unknown.get(key) != row["reason"]:
                self._unknown[key] = row["reason"]
                tell_fault(log, _uncertain(row["table"], row["sink"], row["reason"]))

    def _failed(self, fault: Fault) -> None:
        self.busy, self._moved, self.faults = False, True, self.faults + 1
        tell_fault(log, fault)

    # --- in the background --------------------------------------------------------------------------------

    def _issue(self, shown: dict[str, Shown]) -> Issued | None:
        with alone(self._pipeline, self._runner) as is_ours:
            return None if is_ours is None else self._issue_next(shown, is_ours)

    def _issue_next(self, shown: dict[str, Shown], is_ours: IsOurs = lambda: True) -> Issued | None:
        folder, pipeline = self._settings.path, self._pipeline  # one and the same from here to the end
        before = last_readable(folder)
        moved = list(self._moved_copies(pipeline, shown, before))
        kept = {key: row for key, row in before.copies.items() if _is_wanted(pipeline, key)}
        identity = _source_of(moved, kept)
        moved = [one for one in moved if one.goes_with(identity, kept)]
        if not moved:
            return before
        claims = self._fold([Folding(str(folder), _target(one, before.copies)) for one in moved])
        if not is_ours():
            return None
        rows = {key: {**row, "segments": "[]", "units": "[]"} for key, row in kept.items()}
        rows |= {
            (one.table, one.sink.name): _row(one, claim, before.copies)
            for one, claim in zip(moved, claims, strict=True)
        }
        until = self._kept_until()
        issued = issue(
            folder,
            signer(folder),  # another one since a hand-over
            before=before,
            pipeline=pipeline.name,
            source={"type": pipeline.source.type, "identity": identity},
            captured=SOURCES[pipeline.source.type].captured,
            copies=list(rows.values()),
            issued_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            kept_from=1 if until is None else retention.kept_from(folder, before, until=until),
        )
        if issued is not None and until is not None:
            self._trim(issued, until)
        return issued

    def _kept_until(self) -> datetime | None:
        keep_ms = self._settings.keep_ms
        return None if keep_ms is None else datetime.now(UTC) - timedelta(milliseconds=keep_ms)

    def _trim(self, issued: Issued, until: datetime) -> None:
        """What stays although it may go does no harm: the next certificate tries again."""
        try:
            retention.trim(self._settings.path, issued, until=until)
        except OSError as error:
            tell_fault(log, _untrimmed(self._settings.path, error))

    def _moved_copies(self, pipeline: Pipeline, shown: dict[str, Shown], before: Issued) -> Iterable[_Moved]:
        """Those that stand elsewhere than the last certificate says; an older look changes nothing."""
        tables = {str(table.name): table for table in pipeline.tables}
        for sink in pipeline.sinks:
            for name in sink.modes if sink.name in shown else ():
                copy = shown[sink.name].cursor.copies.get(name)
                if copy is None or not copy.columns:
                    continue
                if copy.fingerprint != copy_fingerprint(tables[name], sink):
                    continue  # of other settings than those of today, and about to be made anew
                one = _Moved(name, sink, tables[name], copy, shown[sink.name].sink_version)
                known = before.copies.get((name, sink.name))
                stood = (0, "") if known is None else (known["edition"], known["at"])
                if (copy.edition, str(copy.at)) > stood or self._was_made_anew(one, before, shown[sink.name]):
                    yield one

    def _was_made_anew(self, one: _Moved, last: Issued, shown: Shown) -> bool:
        """Whether a sink that counts its editions from the beginning was lost: its cursor tells a certificate
        that claims a later edition, so it was written after that. An older look tells none."""
        known = last.copies[one.table, one.sink.name]
        if one.copy.edition >= known["edition"]:
            return False
        told = recent(self._settings.path, last, shown.cursor.certificate)
        claim = None if told is None else told.copies.get((one.table, one.sink.name))
        return claim is not None and one.copy.edition < claim["edition"]


def _is_wanted(pipeline: Pipeline, key: tuple[str, str]) -> bool:
    return any(sink.name == key[1] and key[0] in sink.modes for sink in pipeline.sinks)


@dataclass(frozen=True, slots=True)
class _Moved:
    table: str
    sink: SinkSettings
    settings: TableSettings
    copy: CopyState
    sink_version: str

    def goes_with(self, identity: str, before: Copies) -> bool:
        """One of another source than the certificate's is about to be made anew: it may go on as it was."""
        known = before.get((self.table, self.sink.name))
        scope = scope_text(self.copy.source_identity, self.table)
        inherits = known is not None and (known["edition"], known["scope"]) == (self.copy.edition, scope)
        return self.copy.source_identity == identity or inherits


def _source_of(moved: Sequence[_Moved], kept: Copies) -> str:
    """A source that takes another's place has later positions: a larger generation."""
    places = [(str(one.copy.at), one.copy.source_identity) for one in moved]
    places += [(row["at"], row["scope"].rpartition("\n")[0]) for row in kept.values()]
    return max(places, default=("", ""))[1]


def _told_head(one: _Moved, before: Copies) -> str:
    """Up to which certificates have told the copy's segments: the next one goes on from there."""
    known = before.get((one.table, one.sink.name))
    return NO_HEAD if known is None else str(known["evidence"])


def _target(one: _Moved, before: Copies) -> Target:
    copy = one.copy
    return Target(
        one.table,
        one.sink.name,
        copy.mode,
        copy.edition,
        str(copy.at),
        copy.evidence,
        columns_text(copy.columns),
        _told_head(one, before),
    )


def _row(one: _Moved, claim: Claim, before: Copies) -> dict[str, Any]:
    copy, settings = one.copy, one.settings
    routed = one.sink.route is not None and settings.route_by is not None and not settings.broadcast
    append = copy.mode == "append"
    called = SINKS[one.sink.type].called(one.sink.address, one.table)
    return {
        "table": one.table,
        "sink": one.sink.name,
        "mode": copy.mode,
        "route": one.sink.route if routed else None,
        "scope": scope_text(copy.source_identity, one.table),
        "key": canonical([POSITION, SEQ] if append else sorted(settings.key)),
        "columns": canonical(_columns(copy)),
        "edition": copy.edition,
        "at": str(copy.at),
        "source_at": copy.source_position,
        "verdict": claim.verdict,
        "reason": claim.reason,
        "rows": claim.rows,
        "root": claim.root,
        "evidence": _told_head(one, before) if claim.untold else copy.evidence,
        "segments": canonical(list(claim.segments)),
        "units": claim.units,
        "sink_version": one.sink_version,
        "route_by": settings.route_by if routed else None,
        "called": None if called == one.table else called,
    }


def _columns(copy: CopyState) -> list[list[Any]]:
    own: list[list[Any]] = [[column.name, column.id, form_of(column.parsed)] for column in copy.columns]
    if copy.mode == "mirror":
        return own
    beside: list[list[Any]] = [[POSITION, 0, "text"], [SEQ, 0, "text"], [OP, OP_COLUMN, "text"]]
    return [*beside, [UNCHANGED, UNCHANGED_COLUMN, {"list": "text"}], *own]


def _untrimmed(folder: Path, error: OSError) -> Fault:
    return Fault(
        "TC7010",
        f"old files in the certificates' folder {folder} cannot be removed ({error.strerror})",
        "Check that this machine may write there; it is tried again with the next certificate.",
    )


def _uncertain(table: str, sink: str, reason: str) -> Fault:
    return Fault(
        "TC7003",
        f"{table} at {sink} cannot be certified: {reason}",
        "It is copied as before; see docs/certificates.md for what makes it certain again.",
    )
