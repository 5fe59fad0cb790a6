"""V3: does the source's log say the same once more, by another reader? Asked only when the user asks.

The log is read by the independent verifier from the witness slot. What has been compared is noted in the
state folder, and the slot is moved up to there: so the server may forget that part of its log, and the next
time goes on from it. Promises: the note is durable before the slot moves, so nothing is ever taken for
compared that was not; the verdict is *unknown*, never *pass*, wherever a part of the log is gone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from truecut.certificate import durable
from truecut.certificate.segment import SECRET
from truecut.config.kinds import SOURCES
from truecut.config.settings import Pipeline
from truecut.model.position import Position
from truecut.runtime.certificate_files import examined
from truecut.runtime.checked import Checked
from truecut.sources.captured import Witness
from truecut.sources.registry import captured_source
from truecut.state_folder import WITNESS

if TYPE_CHECKING:
    from truecut_verify.files import Examined
    from truecut_verify.verdict import Check
    from truecut_verify.witness import Compared

NO_SLOT = "the source's log is not read again: the pipeline names no witness slot (certificate.witness)"
NO_LOG = "the source keeps its history itself; --level source reads that"


def checked(pipeline: Pipeline, *, whole: bool) -> list[Checked]:
    """V0 to V3 of every copy. `whole`: nothing was left out, so that the slot may move."""
    if pipeline.certificate is None:
        return [Checked("", "", "unknown", "the pipeline issues no certificates", level="V0")]
    return examined(pipeline.certificate.path, lambda found: _read(pipeline, found, whole=whole))


def _read(pipeline: Pipeline, found: Examined, *, whole: bool) -> Sequence[Check]:
    if not SOURCES[pipeline.source.type].captured:
        return _unknown(found, NO_LOG)
    witness = captured_source(pipeline.source).witness()
    if witness is None or pipeline.certificate is None:
        return _unknown(found, NO_SLOT)
    from truecut_verify.witness import Log, check_log

    try:
        secret = (pipeline.certificate.path / SECRET).read_bytes()
    except OSError:
        return _unknown(found, "the digests' secret is not here")
    log = Log(witness.dsn.reveal(), witness.slot, witness.publication)
    note = pipeline.state / WITNESS
    checks = check_log(found, log, secret, _noted(note, log.slot))
    if whole and checks and all(check.verdict == "pass" for check in checks):
        _let_go(witness, found, note)
    return checks


def _unknown(found: Examined, why: str) -> list[Check]:
    from truecut_verify.verdict import Check

    copies = found.chain.current.values() if found.chain else ()
    return [Check("V3", "unknown", why, copy.table, copy.sink, copy.at) for copy in copies]


# --- what has been compared ---------------------------------------------------------------------------------


def _noted(note: Path, slot: str) -> dict[tuple[str, str], Compared]:
    """Of this slot; whatever cannot be read was never compared."""
    from truecut_verify.witness import Compared

    with suppress(OSError, ValueError, KeyError, TypeError):
        told = json.loads(note.read_text())
        if told["slot"] == slot:
            return {(one.pop("table"), one.pop("sink")): Compared(**one) for one in told["copies"]}
    return {}


def _let_go(witness: Witness, found: Examined, note: Path) -> None:
    """The slot moves to the place of the copy that is furthest behind. A copy that is ahead of it is compared
    again from its own place, which the slot still has."""
    from truecut_verify.witness import Compared

    assert found.chain is not None
    copies = list(found.chain.current.values())
    target = min(Position.parse(copy.at).place for copy in copies) + 1

    def write(slot_at: int) -> None:
        told = [
            {"table": copy.table, "sink": copy.sink, **asdict(Compared(copy.at, copy.evidence, slot_at))}
            for copy in copies
        ]
        text = json.dumps({"slot": witness.slot, "copies": told})
        durable.keep(durable.write(note.parent, text.encode()), note)

    write(target)
    moved = witness.let_go(target)
    if moved is not None:
        write(max(target, moved))  # the end of the record that the place is in
