"""Who a node is, in the one file that makes its folder a node: `node.json`.

Beside its name and its cluster it holds, for each log, the highest segment that the node ever had something
of, or knows to be trimmed. That outlives the segments' own files: it tells a replica that is lost from one
that was never begun. (Folders of older versions do not say; theirs is taken from what they have.)
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from truecut.journal import disk
from truecut.journal.document import read_document, write_document
from truecut.journal.replicated import faults

_NAME = "node.json"


@dataclass(frozen=True, slots=True)
class Identity:
    """What the file says."""

    node: str
    cluster: str | None = None  # whose logs it holds
    held: Mapping[str, int] = field(default_factory=dict)  # by log

    def reaching(self, segments: Mapping[str, int]) -> Identity:
        """Having had these, too; itself when that is nothing new."""
        higher = {log: number for log, number in segments.items() if number > self.held.get(log, 0)}
        return replace(self, held={**self.held, **higher}) if higher else self


def find_identity(folder: Path) -> Identity:
    """Made once, where there is nothing yet."""
    if not (folder / _NAME).exists() and not any((folder / "logs").iterdir()):
        write_identity(folder, Identity(str(uuid.uuid4())))
    return read_identity(folder)


def read_identity(folder: Path) -> Identity:
    """Without it nobody could say whose data this is."""
    path = folder / _NAME
    try:
        document = read_document(path)
        held = {str(log): int(number) for log, number in document.get("held", {}).items()}
        return Identity(document["node"], document["cluster"], held)
    except FileNotFoundError:
        raise faults.identity_damaged(path, "it is missing") from None
    except OSError as error:
        raise faults.identity_damaged(path, f"it cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise faults.identity_damaged(path, "it is not what was written") from error


def write_identity(folder: Path, identity: Identity) -> None:
    """Atomic and durable."""
    document = {"node": identity.node, "cluster": identity.cluster, "held": dict(identity.held)}
    write_document(folder / _NAME, document, disk.IDENTITY)
