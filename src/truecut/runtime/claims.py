"""What is certified of copies where they stand, and where their source is read.

By the last certificate where that is the very place; else by its ledger, extended by the evidence of what was
delivered since. Promises: while it is frozen nobody issues a certificate (the lease of those who do), so that
no ledger goes beyond a place that is about to be asked for; what cannot be extended is not claimed.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from truecut.certificate.extension import Extended, Extension
from truecut.certificate.folding import Target
from truecut.certificate.issue import Copies, last_issued
from truecut.certificate.segment import columns_text
from truecut.config.settings import Pipeline
from truecut.errors import TruecutError
from truecut.model.cursor import CopyState
from truecut.model.position import Position
from truecut.runtime.certificate_lease import alone
from truecut.spark.fold import run_extensions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 60.0  # for whoever issues one now


@dataclass(frozen=True, slots=True)
class Place:
    """A copy as its cursor shows it, and where its source is read: `source_at` is not beyond it."""

    table: str
    sink: str
    state: CopyState
    source_at: Position


@dataclass(frozen=True, slots=True)
class Claimed:
    """What is certified where the source is read, and where the copy stands."""

    source_at: Position
    source: Extended
    sink: Extended
    extension: Extension | None = None

    def touched(self) -> frozenset[bytes] | None:
        """The keys of what happened between the two; None: perhaps all."""
        return frozenset() if self.extension is None else self.extension.touched(after=self.source_at.place)


class Claims:
    """Of one pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        assert pipeline.certificate is not None
        self._pipeline, self._folder = pipeline, pipeline.certificate.path
        self._held = ExitStack()
        self._frozen = self._alone = False
        self._copies: Copies = {}

    def freeze(self) -> None:
        """The last certificate stays the last one. Where that cannot be had, only what it claims itself is
        told."""
        if self._frozen:
            return
        self._frozen = True
        try:
            held = alone(self._pipeline, f"claims-{secrets.token_hex(4)}", patience_s=PATIENCE_S)
            self._alone = self._held.enter_context(held) is not None
        except TruecutError:  # the store does not answer, or cannot be written
            self._alone = False
        try:
            self._copies = last_issued(self._folder).copies
        except (OSError, ValueError, KeyError):  # gone, or hurt: V0 says so
            self._copies = {}

    def release(self) -> None:
        """The next one may be issued."""
        self._frozen = self._alone = False
        self._held.close()

    def of(self, spark: SparkSession, places: Sequence[Place | None]) -> list[Claimed | None]:
        """Of each of these, if it is certified."""
        found = [None if one is None else self._as_issued(one) for one in places]
        wanted = {
            number: extension
            for number, one in enumerate(places)
            if one is not None and found[number] is None and (extension := self._extension(one)) is not None
        }
        for (number, extension), told in zip(
            wanted.items(), run_extensions(spark, list(wanted.values())), strict=True
        ):
            one = places[number]
            if one is not None and not isinstance(told, str):
                found[number] = Claimed(one.source_at, told[0], told[-1], extension)
        return found

    def _as_issued(self, one: Place) -> Claimed | None:
        """It stands where the certificate says, with the evidence that the certificate names."""
        claim, state = self._copies.get((one.table, one.sink)), one.state
        if claim is None or claim["verdict"] != "certified" or one.source_at != state.at:
            return None
        if (claim["edition"], claim["at"], claim["evidence"]) != (
            state.edition,
            str(state.at),
            state.evidence,
        ):
            return None
        told = Extended(claim["root"], claim["rows"])
        return Claimed(state.at, told, told)

    def _extension(self, one: Place) -> Extension | None:
        claim, state = self._copies.get((one.table, one.sink)), one.state
        if not self._alone or claim is None or claim["verdict"] != "certified":
            return None
        stands = Position.parse(claim["at"])
        one_history = stands.generation == state.at.generation == one.source_at.generation
        if claim["edition"] != state.edition or not one_history:
            return None
        if not stands <= one.source_at <= state.at:
            return None
        target = Target(
            one.table,
            one.sink,
            state.mode,
            state.edition,
            str(state.at),
            state.evidence,
            columns_text(state.columns),
            claim["evidence"],
        )
        places = dict.fromkeys((one.source_at.place, state.at.place))
        return Extension(str(self._folder), target, claim["root"], tuple(places))


def frozen_claims(pipeline: Pipeline, stack: ExitStack) -> Claims | None:
    """Frozen at once, until the stack ends; None where no certificates are issued."""
    if pipeline.certificate is None:
        return None
    claims = Claims(pipeline)
    stack.callback(claims.release)
    claims.freeze()
    return claims
