"""What the certificates' folder tells whoever only looks, and how it goes when its pipeline does."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from truecut.certificate import belongings
from truecut.certificate.digest import Keyed
from truecut.certificate.issue import certificate_paths, last_issued, told_of
from truecut.certificate.segment import SECRET
from truecut.config.settings import Pipeline
from truecut.runtime.certificate_lease import control_name
from truecut.runtime.claims import Claims
from truecut.runtime.control import open_control

if TYPE_CHECKING:
    from truecut.runtime.verification import Verification


def certified_upto(pipeline: Pipeline) -> Mapping[tuple[str, str], str]:
    """(table, sink) → the position up to which the last certificate claims it."""
    if pipeline.certificate is None:
        return {}
    try:
        copies = last_issued(pipeline.certificate.path).copies
    except (OSError, ValueError, KeyError):  # gone, or hurt: `verify` says so
        return {}
    return {key: row["at"] for key, row in copies.items() if row["verdict"] == "certified"}


def is_behind(pipeline: Pipeline, standing: Mapping[tuple[str, str], str]) -> bool:
    """Whether some copy, (table, sink) → its durable place, is ahead of the last certificate."""
    if pipeline.certificate is None:
        return False
    try:
        copies = last_issued(pipeline.certificate.path).copies
    except (OSError, ValueError, KeyError):
        return True
    return any(key not in copies or copies[key]["at"] < at for key, at in standing.items())


def claims_of(pipeline: Pipeline, asked: Verification) -> Verification:
    """The same question beside what is certified, under the certificates' secret; where there is none, as it
    was asked."""
    if pipeline.certificate is None:
        return asked
    folder = pipeline.certificate.path
    try:
        known = bool(last_issued(folder).copies)
        keyed = Keyed((folder / SECRET).read_bytes())
    except (OSError, ValueError, KeyError):  # gone, or hurt: V0 says so
        return asked
    claims = asked.claims or Claims(pipeline)
    return (
        replace(asked, claims=claims, keyed=keyed, told_of=lambda digest: told_of(folder, digest))
        if known
        else asked
    )


def forget_certificates(pipeline: Pipeline, *, proof: bool) -> Path | None:
    """Who issues them; and, where the `proof` is given up, what Truecut made there, by name, with keys and
    secret. Returns the folder where certificates stay."""
    if pipeline.certificate is None:
        return None
    with closing(open_control(pipeline.control, pipeline=control_name(pipeline.name))) as control:
        control.forget()
    folder = pipeline.certificate.path
    if proof:
        belongings.remove(folder)
    return folder if certificate_paths(folder) else None
