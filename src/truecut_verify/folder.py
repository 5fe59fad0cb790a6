"""Where certificates lie: a folder, some of its certificates, or an exported archive of it.

Nothing outside of the folder is ever read, and an archive is unpacked only within bounds.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from truecut_verify.verdict import NotACertificate

ARCHIVE_FILES_MAX = 1_000_000
ARCHIVE_INFLATION_MAX = 100  # what is inside is compressed already
_CERTIFICATE = re.compile(r"\d{10,18}\.json")
_CHUNK = 1 << 20


class WrongUsage(Exception):
    """What was asked makes no sense, or names nothing that is there."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of certificates; `names` are those to check, in order."""

    root: Path
    names: tuple[str, ...]

    def find(self, name: str) -> Path | None:
        """A file of the folder, if it is there and not a way out of it."""
        path = (self.root / name).resolve()
        return path if path.is_file() and path.is_relative_to(self.root.resolve()) else None

    def read(self, name: str, *, bytes_max: int) -> bytes:
        """A small file."""
        path = self.find(name)
        if path is None or path.stat().st_size > bytes_max:
            raise NotACertificate(name, "it is not there, or too large")
        return path.read_bytes()

    def sha256(self, name: str) -> bytes | None:
        """Of a file's bytes; None where it is not there."""
        path = self.find(name)
        if path is None:
            return None
        found = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(_CHUNK):
                found.update(piece)
        return found.digest()


@contextmanager
def opened(paths: Sequence[Path]) -> Iterator[list[Folder]]:
    """What the command line names. Certificates of one folder are one chain: up to the last that is named."""
    with ExitStack() as stack:
        upto: dict[Path, str] = {}
        for path in paths:
            if not path.exists():
                raise WrongUsage(f"{path} does not exist")
            root, last = (path.parent, path.name) if path.suffix == ".json" else (path, "~")
            if path.is_file() and path.suffix != ".json":
                root = _unpack(path, Path(stack.enter_context(tempfile.TemporaryDirectory())))
            upto[root] = max(last, upto.get(root, ""))
        yield [Folder(root, _names(root, last)) for root, last in upto.items()]


def _names(root: Path, last: str) -> tuple[str, ...]:
    found = sorted(
        one.name for one in root.iterdir() if _CERTIFICATE.fullmatch(one.name) and one.name <= last
    )
    return tuple(found) if last == "~" or last in found else (*found, last)


def _unpack(archive: Path, into: Path) -> Path:
    """Every file, within bounds; the folder that holds the certificates."""
    try:
        with zipfile.ZipFile(archive) as file:
            members = file.infolist()
            _check_members(members, archive)
            for member in members:
                if not member.is_dir():
                    _copy_out(file, member, into)
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, RuntimeError, EOFError) as error:
        raise NotACertificate(archive.name, "no archive that can be read") from error
    holding = {one.parent for one in into.rglob("*.json") if _CERTIFICATE.fullmatch(one.name)}
    if len(holding) != 1:
        raise NotACertificate(archive.name, "no archive of one folder of certificates")
    return holding.pop()


def _check_members(members: Sequence[zipfile.ZipInfo], archive: Path) -> None:
    size = archive.stat().st_size
    inflated = sum(member.file_size for member in members)
    if len(members) > ARCHIVE_FILES_MAX or inflated > ARCHIVE_INFLATION_MAX * size:
        raise NotACertificate(archive.name, "it would be far larger unpacked than it is")
    names = [member.filename for member in members]
    if len(set(names)) != len(names) or any(
        ".." in Path(one).parts or Path(one).is_absolute() for one in names
    ):
        raise NotACertificate(archive.name, "a file twice, or outside of the folder")


def _copy_out(file: zipfile.ZipFile, member: zipfile.ZipInfo, into: Path) -> None:
    """At most as many bytes as the archive's directory says: it is what the bounds were checked by."""
    target = into / member.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    left = member.file_size
    with file.open(member) as packed, target.open("wb") as plain:
        while piece := packed.read(min(_CHUNK, left + 1)):
            left -= len(piece)
            if left < 0:
                raise ValueError("more than the archive's directory says")
            plain.write(piece)
