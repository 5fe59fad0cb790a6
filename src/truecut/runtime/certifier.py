"""Issues certificates of what sinks have shown as committed: aside of the waves, from time to time.

Promises: only cursors that a sink has told are claimed, never what is in memory alone; one runner issues at a
time (a lease of its own), and a number is used once even if two believe they have it; nothing is issued when
nothing moved. What cannot be issued now is tried again, and delays nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from truecut.certificate.chain import canonical
from truecut.certificate.events import OP_COLUMN, UNCHANGED_COLUMN
from truecut.certificate.folding import Claim, Folding, Target
from truecut.certificate.forms import form_of
from truecut.certificate.issue import Copies, Issued, issue, last_readable
from truecut.certificate.scope import scope_text
from truecut.certificate.segment import Wanted, columns_text
from truecut.certificate.sign import signer
from truecut.config.kinds import SOURCES
from truecut.config.settings import Pipeline, SinkSettings, TableSettings, copy_fingerprint
from truecut.errors import Fault, TruecutError
from truecut.events import tell_fault
from truecut.model.change import OP, POSITION, SEQ, UNCHANGED
from truecut.model.cursor import CopyState, Cursor
from truecut.model.order import Receipt
from truecut.runtime.background import Background
from truecut.runtime.control import open_control
from truecut.runtime.timetable import Timetable

log = logging.getLogger(__name__)
_SHARE = 4  # of the time at most a quarter is spent on it
Fold = Callable[[Sequence[Folding]], list[Claim]]


def control_name(pipeline: str) -> str:
    """The store of the lease: those who issue are not counted among those that share the sinks."""
    return f"{pipeline}/certificates"


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
        self._signer = signer(self._settings.path)
        self._shown: dict[str, Shown] = {}
        self._moved = False
        self._rest_ms = self._settings.interval_ms
        self.busy = False
        self.faults = 0  # tries that came to nothing

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
        for row in done.copies.values():
            if row["verdict"] == "unknown" and row["segments"] != "[]":
                tell_fault(log, _uncertain(row["table"], row["sink"], row["reason"]))

    def _failed(self, fault: Fault) -> None:
        self.busy, self._moved, self.faults = False, True, self.faults + 1
        tell_fault(log, fault)

    # --- in the background --------------------------------------------------------------------------------

    def _issue(self, shown: dict[str, Shown]) -> Issued | None:
        with closing(
            open_control(self._pipeline.control, pipeline=control_name(self._pipeline.name))
        ) as control:
            claimed = control.claim(
                self._runner, ["certificates"], duration_ms=self._pipeline.lease_ms, count_max=1
            )
            if not claimed:
                return None
            try:
                return self._issue_next(shown)
            finally:
                control.leave(self._runner)

    def _issue_next(self, shown: dict[str, Shown]) -> Issued | None:
        folder, pipeline = self._settings.path, self._pipeline  # one and the same from here to the end
        before = last_readable(folder)
        moved = list(self._moved_copies(pipeline, shown, before.copies))
        if not moved:
            return before
        claims = self._fold([Folding(str(folder), _target(one, before.copies)) for one in moved])
        rows = {
            key: {**row, "segments": "[]"} for key, row in before.copies.items() if _is_wanted(pipeline, key)
        }
        rows |= {
            (one.table, one.sink.name): _row(one, claim) for one, claim in zip(moved, claims, strict=True)
        }
        identity = next(iter(moved)).copy.source_identity
        return issue(
            folder,
            self._signer,
            before=before,
            pipeline=pipeline.name,
            source={"type": pipeline.source.type, "identity": identity},
            captured=SOURCES[pipeline.source.type].captured,
            copies=list(rows.values()),
            issued_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )

    def _moved_copies(self, pipeline: Pipeline, shown: dict[str, Shown], before: Copies) -> Iterable[_Moved]:
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
                known = before.get((name, sink.name))
                if known is None or (known["edition"], known["at"]) < (copy.edition, str(copy.at)):
                    yield one


def _is_wanted(pipeline: Pipeline, key: tuple[str, str]) -> bool:
    return any(sink.name == key[1] and key[0] in sink.modes for sink in pipeline.sinks)


@dataclass(frozen=True, slots=True)
class _Moved:
    table: str
    sink: SinkSettings
    settings: TableSettings
    copy: CopyState
    sink_version: str


def _target(one: _Moved, before: Copies) -> Target:
    copy, known = one.copy, before.get((one.table, one.sink.name))
    return Target(
        one.table,
        one.sink.name,
        copy.mode,
        copy.edition,
        str(copy.at),
        copy.evidence,
        columns_text(copy.columns),
        "" if known is None else known["evidence"],
    )


def _row(one: _Moved, claim: Claim) -> dict[str, Any]:
    copy, settings = one.copy, one.settings
    routed = one.sink.route is not None and settings.route_by is not None and not settings.broadcast
    append = copy.mode == "append"
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
        "evidence": copy.evidence,
        "segments": canonical(list(claim.segments)),
        "units": "[]",
        "sink_version": one.sink_version,
    }


def _columns(copy: CopyState) -> list[list[Any]]:
    own: list[list[Any]] = [[column.name, column.id, form_of(column.parsed)] for column in copy.columns]
    if copy.mode == "mirror":
        return own
    beside: list[list[Any]] = [[POSITION, 0, "text"], [SEQ, 0, "text"], [OP, OP_COLUMN, "text"]]
    return [*beside, [UNCHANGED, UNCHANGED_COLUMN, {"list": "text"}], *own]


def _uncertain(table: str, sink: str, reason: str) -> Fault:
    return Fault(
        "TC7003",
        f"{table} at {sink} cannot be certified: {reason}",
        "It is copied as before; see docs/certificates.md for what makes it certain again.",
    )
