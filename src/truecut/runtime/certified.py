"""What the certificates' folder tells whoever only looks, and how it goes when its pipeline does."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from truecut.certificate.digest import Keyed
from truecut.certificate.durable import UNFINISHED
from truecut.certificate.folding import LEDGERS
from truecut.certificate.issue import COPIES, certificate_paths, last_issued
from truecut.certificate.segment import EVIDENCE, SECRET
from truecut.certificate.sign import PUBLIC, SIGNING
from truecut.config.settings import Pipeline
from truecut.runtime.certifier import control_name
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
    """The same question beside what the last certificate claims, under its secret; where there is none, as it
    was asked."""
    if pipeline.certificate is None:
        return asked
    try:
        last = last_issued(pipeline.certificate.path)
        keyed = Keyed((pipeline.certificate.path / SECRET).read_bytes())
    except (OSError, ValueError, KeyError):  # gone, or hurt: V0 says so
        return asked
    return replace(asked, claims=last.copies, keyed=keyed) if last.copies else asked


def forget_certificates(pipeline: Pipeline) -> None:
    """What Truecut made there, by name; keys and secrets, too: nothing is left that they are for."""
    if pipeline.certificate is None:
        return
    with closing(open_control(pipeline.control, pipeline=control_name(pipeline.name))) as control:
        control.forget()
    folder = pipeline.certificate.path
    if not folder.is_dir() or folder.is_symlink():
        return
    for path in (*certificate_paths(folder), *folder.glob(f"*{UNFINISHED}"), *_single(folder)):
        path.unlink(missing_ok=True)
    for name in (COPIES, EVIDENCE, LEDGERS):
        if not (folder / name).is_symlink():
            shutil.rmtree(folder / name, ignore_errors=True)
    with suppress(OSError):  # not empty: then it is somebody else's, too
        folder.rmdir()


def _single(folder: Path) -> list[Path]:
    return [folder / name for name in (SECRET, SIGNING, PUBLIC)]
