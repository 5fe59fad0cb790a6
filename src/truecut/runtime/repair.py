"""Copies repaired: what a verification has found to differ is made what the source holds, and nothing else.

A repair is an order like any other: the sink is ours (a lease, and the fence raised to its token), the copy
is as it was when it was compared, and rows and cursor are one transaction. The copy holds then what its
version says that it holds, so it has the same one, and its certificates, which tell what was delivered, are
true of it. Where that cannot be said, nothing is repaired. Run twice, it has one effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from truecut.certificate.comparison import NONE, Difference
from truecut.config.settings import Pipeline, SinkSettings
from truecut.model.order import Order, Receipt, TableOrder
from truecut.model.table import TableSchema
from truecut.runtime.certified import claims_of
from truecut.runtime.checked import Checked
from truecut.runtime.ownership import Ownership, owned
from truecut.runtime.verification import Copy, Sides, Verification
from truecut.spark.repair import Repair, run_repair
from truecut.spark.wave.job import RecoverJob, run_recover

Outcome = Literal["repaired", "would_repair", "refused", "failed"]
KEYS_TOLD = 10
_FAILED: Mapping[str, str] = {
    "late": "the sink has not answered in time; nobody knows whether it was done",
    "aborted": "the rows could not be read again; nothing was changed",
}


@dataclass(frozen=True, slots=True)
class Mended:
    """One copy that was not what it should be, and what came of it."""

    table: str
    sink: str
    outcome: Outcome
    detail: str = ""
    difference: Difference = NONE
    keys: tuple[Mapping[str, Any], ...] = ()

    def document(self) -> dict[str, Any]:
        """As JSON shows it."""
        return {
            "table": self.table,
            "sink": self.sink,
            "outcome": self.outcome,
            "missing": self.difference.missing,
            "extra": self.difference.extra,
            "differs": self.difference.differs,
            "keys": list(self.keys),
            "detail": self.detail,
        }


Mend = Literal["no", "preview", "carry out"]


def verified(asked: Verification, mend: Mend) -> tuple[list[Checked], list[Mended]]:
    """What was found at last, and what was repaired before."""
    preview = Preview(asked.pipeline)
    checks = claims_of(asked.pipeline, replace(asked, on_failed=None if mend == "no" else preview)).run()
    wanted = [one for one in preview.found if one.outcome == "would_repair"]
    if mend != "carry out" or not wanted:
        return checks, preview.found
    told = [one for one in preview.found if one.outcome != "would_repair"]
    done = _repaired(asked, wanted)
    touched = {(one.table, one.sink) for one in wanted}
    asked.on_step("verifying what was repaired")
    sinks, tables = frozenset(one.sink for one in wanted), frozenset(one.table for one in wanted)
    again = claims_of(asked.pipeline, replace(asked, sinks=sinks, tables=tables)).run()
    anew = {key: [check for check in again if (check.table, check.sink) == key] for key in touched}
    return _with(checks, anew), told + done


def _with(checks: Sequence[Checked], anew: Mapping[tuple[str, str], Sequence[Checked]]) -> list[Checked]:
    """In their order; a copy that was looked at again is told of once."""
    found: dict[tuple[str, str], list[Checked]] = {}
    for check in checks:
        found.setdefault((check.table, check.sink), []).append(check)
    return [check for key, before in found.items() for check in anew.get(key, before)]


def _repaired(asked: Verification, wanted: Sequence[Mended]) -> list[Mended]:
    """The sinks are taken over first: what is compared then changes by nobody who heeds the fence."""
    names = dict.fromkeys(one.sink for one in wanted)
    with owned(asked.pipeline, names) as owner:
        repairer = Repairer(Preview(asked.pipeline), owner, claims_of(asked.pipeline, asked))
        refused = repairer.take_over([sink for sink in asked.pipeline.sinks if sink.name in names])
        ours = [one for one in wanted if one.sink not in refused]
        for one in ours:
            replace(
                repairer.verification,
                sinks=frozenset({one.sink}),
                tables=frozenset({one.table}),
                on_failed=repairer,
            ).run()
    lost = [replace(one, outcome="failed", detail=refused[one.sink]) for one in wanted if one.sink in refused]
    return [*lost, *repairer.preview.found]


def refusal(copy: Copy, checks: Sequence[Checked]) -> str | None:
    """Why the rows that differ cannot be put right one by one."""
    table = str(copy.table.name)
    (failed,) = [check for check in checks if check.level == "V5"]
    anew = f'"truecut backfill FILE --table {table} --sink {copy.sink.name}" makes the copy anew'
    if copy.state.mode == "append":
        return "an append table holds events, which the source does not tell again"
    if copy.state.hold is not None:
        return f"it is held ({copy.state.hold.code}); {anew}"
    if not failed.odd:
        return f"{failed.detail}, and no row is known to differ from the source; {anew}"
    if any(check.level == "V4" and check.verdict != "pass" for check in checks):
        return f"the source is not what was certified as delivered; {anew}"
    if not failed.all_odd:
        return f"too many rows differ to be put right one by one; {anew}"
    return None


@dataclass(slots=True)
class Preview:
    """What a repair would do: counts and the first keys."""

    pipeline: Pipeline
    found: list[Mended] = field(default_factory=list)

    def __call__(self, copy: Copy, checks: Sequence[Checked], sides: Sides) -> None:
        """A copy has failed."""
        self.found.append(self._of(copy, checks))

    def _of(self, copy: Copy, checks: Sequence[Checked]) -> Mended:
        why = refusal(copy, checks)
        (failed,) = [check for check in checks if check.level == "V5"]
        return Mended(
            str(copy.table.name),
            copy.sink.name,
            "would_repair" if why is None else "refused",
            why or "",
            failed.difference,
            failed.witnesses[:KEYS_TOLD],
        )


@dataclass(slots=True)
class Repairer:
    """Puts copies right as they fail, while both of their sides are still pinned."""

    preview: Preview
    owner: Ownership
    verification: Verification

    def take_over(self, sinks: Sequence[SinkSettings]) -> Mapping[str, str]:
        """Raise the fence of these sinks; those that did not let us, and why."""
        pipeline, spark = self.verification.pipeline, self.verification.spark
        refused: dict[str, str] = {}
        waiting = {sink.name: sink for sink in sinks}
        while waiting:
            wanted = tuple((sink, 0, self.owner.tokens[name]) for name, sink in waiting.items())
            job = RecoverJob(pipeline.name, wanted, slots=1, deadline_ms=pipeline.batch.deadline_ms)
            receipts = {receipt.sink: receipt for receipt in run_recover(spark, job)}
            above = {name: one.fenced_by for name, one in receipts.items() if one.fenced_by is not None}
            self.owner.raise_tokens(above)
            refused |= {
                name: _why(one)
                for name, one in receipts.items()
                if one.outcome != "applied" and name not in above
            }
            waiting = {name: waiting[name] for name in above}
        return refused

    def __call__(self, copy: Copy, checks: Sequence[Checked], sides: Sides) -> None:
        """A copy has failed, and its sink is ours."""
        self.preview(copy, checks, sides)
        plan = self.preview.found[-1]
        if plan.outcome == "would_repair":
            self.preview.found[-1] = self._carried_out(plan, copy, checks, sides)

    def _carried_out(self, plan: Mended, copy: Copy, checks: Sequence[Checked], sides: Sides) -> Mended:
        pipeline = self.verification.pipeline
        (failed,) = [check for check in checks if check.level == "V5"]
        self.verification.on_step(f"repairing {plan.table} at {plan.sink}")
        receipt = run_repair(
            self.verification.spark,
            Repair(
                pipeline.name,
                copy.sink,
                order_of(copy, token=self.owner.tokens[copy.sink.name]),
                sides.pieces,
                self.verification.keyed,
                frozenset({sides.expected, sides.found}),
                frozenset(one.key for one in failed.odd),
                pipeline.batch.deadline_ms,
            ),
        )
        if receipt.outcome in ("applied", "already"):
            return replace(plan, outcome="repaired")
        return replace(plan, outcome="failed", detail=_why(receipt))


def order_of(copy: Copy, *, token: int) -> Order:
    """The copy as it was compared, at the place where it stands."""
    state, table = copy.state, str(copy.table.name)
    wanted = TableOrder(
        "repair",
        state.mode,
        tuple(copy.table.key),
        TableSchema(state.table_id, state.columns),
        state.version,
        state.version,
        fingerprint=state.fingerprint,
        source_position=state.source_position,
    )
    return Order(copy.sink.name, 0, token, state.at, state.source_identity, {table: wanted})


def _why(receipt: Receipt) -> str:
    if receipt.fault is not None:
        return f"{receipt.fault.code} {receipt.fault.message}"
    unread = "; ".join(fault.message for fault in receipt.unread.values())
    told = _FAILED.get(receipt.outcome, receipt.outcome)
    return f"{told}: {unread}" if unread else told
