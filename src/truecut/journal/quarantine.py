"""Damaged files are kept: beside the log, for whoever wants to look at them or to put something together."""

from __future__ import annotations

from pathlib import Path

from truecut.journal import disk

FOLDER = "quarantine"


def keep(path: Path) -> None:
    """The file as it is, durably, under a second name; what was kept of it before stays."""
    quarantine = path.parent / FOLDER
    disk.make(quarantine)
    if not (quarantine / path.name).exists():
        disk.link(path, quarantine / path.name)
    disk.sync_folder(quarantine, "quarantine")
    disk.sync_folder(path.parent, "quarantine_name")
