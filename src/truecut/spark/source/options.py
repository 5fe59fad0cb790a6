"""The options of the data source, read once: what they say, or an error that says what to write."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from truecut.journal.opening import Where
from truecut.journal.security import Security
from truecut.model.position import Position
from truecut.spark.source.faults import wrong_option

BYTES_MAX = 256 << 20  # of a micro-batch, unless told otherwise

_WHERE = ("path", "coordinator", "log")
_SECURITY = ("tokenFile", "tlsCa", "tlsCert", "tlsKey")
_BATCH = ("after", "upto")
_STREAM = ("startingPosition", "maxBytesPerTrigger", "maxRecordsPerTrigger")
_NAMES = (*_WHERE, *_SECURITY, *_BATCH, *_STREAM, "table")
_ADDRESS = re.compile(r"[^\s:]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")
_SIZE = re.compile(r"(\d+)(KiB|MiB|GiB)?")
_UNITS = {None: 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for. `given` are the names, for errors."""

    where: Where
    given: frozenset[str]
    table: str | None = None
    after: Position | None = None
    upto: Position | None = None
    start: Position | str = "earliest"  # or "latest"
    bytes_max: int = BYTES_MAX
    rows_max: int | None = None

    def for_batch(self) -> Options:
        """Refuses what only a stream understands."""
        return self._without(_STREAM, "is for readStream", 'use "after" and "upto" to choose a range')

    def for_stream(self) -> Options:
        """Refuses what only a batch understands."""
        return self._without(_BATCH, "is for read", 'use "startingPosition" to choose where to begin')

    def _without(self, names: tuple[str, ...], what: str, fix: str) -> Options:
        for name in names:
            if name in self.given:
                raise wrong_option(name, what, fix=f"Leave it out; {fix}.")
        return self


def parse(options: Mapping[str, str]) -> Options:
    """From Spark's options, whose names are taken in upper and lower case alike."""
    spelled = {name.lower(): name for name in _NAMES}
    for name in options:
        if name.lower() not in spelled:
            near = difflib.get_close_matches(name.lower(), spelled, n=1)
            fix = f'Did you mean "{spelled[near[0]]}"?' if near else f"There are: {', '.join(_NAMES)}."
            raise wrong_option(name, "unknown", fix=fix)
    given = {spelled[name.lower()]: value for name, value in options.items()}
    return Options(
        where=_where(given),
        given=frozenset(given),
        table=_table(given.get("table")),
        after=_position("after", given),
        upto=_position("upto", given),
        start=_start(given),
        bytes_max=_size(given, "maxBytesPerTrigger") or BYTES_MAX,
        rows_max=_count(given, "maxRecordsPerTrigger"),
    )


def _where(given: Mapping[str, str]) -> Where:
    path, coordinator, log = (given.get(name) for name in _WHERE)
    if (path is None) == (coordinator is None):
        what = "missing" if path is None else 'stands beside "coordinator"'
        fix = 'Give "path" (the folder of a log), or "coordinator" (HOST:PORT) and "log" (its name).'
        raise wrong_option("path", what, fix=fix)
    if path is not None:
        if not path or "://" in path:
            raise wrong_option("path", "not a folder", fix="Give the folder of a log on this machine.")
        # Tasks run in other working folders than the one that the user sees.
        folder = Path(path.removeprefix("file:"))
        return Where(folder=str((folder / log if log else folder).absolute()))
    if coordinator is None or not _ADDRESS.fullmatch(coordinator):
        raise wrong_option("coordinator", "not an address", fix="Give HOST:PORT, e.g. 127.0.0.1:7000.")
    if not log:
        raise wrong_option("log", "missing", fix="Give the name of the log that the coordinator keeps.")
    return Where(coordinator=coordinator, log=log, security=_security(given))


def _security(given: Mapping[str, str]) -> Security:
    """Files are read here, on the driver; what is in them goes to the executors."""
    token, authority, certificate, key = (Path(given[name]) if name in given else None for name in _SECURITY)
    try:
        return Security.read(token_file=token, authority=authority, certificate=certificate, key=key)
    except ValueError as error:
        fix = "Give tlsCert and tlsKey together, and a tokenFile with one token."
        raise wrong_option("coordinator", str(error), fix=fix) from None
    except OSError as error:
        name = next(name for name in _SECURITY if given.get(name) == error.filename)
        raise wrong_option(name, "cannot be read", fix="Give a file that the driver can read.") from error


def _table(text: str | None) -> str | None:
    if text is not None and not text.strip():
        raise wrong_option("table", "empty", fix="Give schema.table, or leave it out to read all tables.")
    return text


def _position(name: str, given: Mapping[str, str]) -> Position | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        return Position.parse(text)
    except ValueError:
        raise wrong_option(name, "not a position", fix=_LIKE_THIS) from None


def _start(given: Mapping[str, str]) -> Position | str:
    text = given.get("startingPosition", "earliest")
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    try:
        return Position.parse(text)
    except ValueError:
        fix = f"Give earliest, latest, or the last position that you have. {_LIKE_THIS}"
        raise wrong_option("startingPosition", "not a position", fix=fix) from None


def _size(given: Mapping[str, str], name: str) -> int | None:
    if name not in given:
        return None
    match = _SIZE.fullmatch(given[name].strip())
    size = int(match[1]) * _UNITS[match[2]] if match else 0
    if not size:
        raise wrong_option(name, "not a size", fix="Give a whole number of bytes, or e.g. 64MiB.")
    return size


def _count(given: Mapping[str, str], name: str) -> int | None:
    if name not in given:
        return None
    text = given[name].strip()
    if not text.isdecimal() or not int(text):
        raise wrong_option(name, "not a number of rows", fix="Give a whole number, at least 1.")
    return int(text)


_LIKE_THIS = "A position is written e.g. 00000001-0000000001A2B3C0, as the column `position` shows it."
