"""Options that the journal's commands share: which log, and how its processes know each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truecut.cli.parameters import ADDRESS
from truecut.journal.log_name import is_log_name

if TYPE_CHECKING:
    from truecut.journal.contract import Journal, JournalReader
    from truecut.journal.security import Security

_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


@dataclass(frozen=True, slots=True)
class SecurityFiles:
    """What was given on the command line."""

    token_file: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    tls_ca: Path | None

    def read(self) -> Security:
        """The contents."""
        from truecut.journal.security import Security

        try:
            return Security.read(
                token_file=self.token_file, authority=self.tls_ca, certificate=self.tls_cert, key=self.tls_key
            )
        except ValueError as error:
            raise click.UsageError(f"{error} (--token-file; --tls-cert, --tls-key)") from None


@dataclass(frozen=True, slots=True)
class Place:
    """Which log, where."""

    data: Path | None
    coordinator: str | None
    log: str
    files: SecurityFiles

    def writer(self, *, replicas: int) -> Journal:
        """Opened for writing."""
        if self.coordinator is None:
            from truecut.journal.local import LocalJournal

            return LocalJournal(self._folder)
        from truecut.journal.replicated.producer import ReplicatedJournal

        return ReplicatedJournal(self.coordinator, self.log, security=self.files.read(), replicas=replicas)

    def reader(self) -> JournalReader:
        """Opened for reading."""
        if self.coordinator is None:
            from truecut.journal.reader import LocalReader

            return LocalReader(self._folder)
        from truecut.journal.replicated.reader import ReplicatedReader

        return ReplicatedReader(self.coordinator, self.log, security=self.files.read())

    @property
    def _folder(self) -> Path:
        assert self.data is not None
        return self.data / self.log


def security_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """How the processes of a log know each other; becomes the argument `files`."""

    @click.option("--token-file", type=_FILE, help="The shared token [or TRUECUT_JOURNAL_TOKEN].")
    @click.option("--tls-cert", type=_FILE, help="This process's certificate (PEM); makes a server use TLS.")
    @click.option("--tls-key", type=_FILE, help="Its key (PEM).")
    @click.option("--tls-ca", type=_FILE, help="Whose certificates are believed (PEM); of both sides.")
    @wraps(function)
    def with_files(
        *args: Any, token_file: Path, tls_cert: Path, tls_key: Path, tls_ca: Path, **rest: Any
    ) -> Any:
        return function(*args, files=SecurityFiles(token_file, tls_cert, tls_key, tls_ca), **rest)

    return with_files


def place_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Which log; becomes the argument `place`."""

    @click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="The folder of the logs.")
    @click.option("--coordinator", type=ADDRESS, metavar="HOST:PORT", help="Of a log on several nodes.")
    @click.option("--log", required=True, metavar="NAME", help="Which log.")
    @security_options
    @wraps(function)
    def with_place(
        *args: Any, data: Path | None, coordinator: str | None, log: str, files: SecurityFiles, **rest: Any
    ) -> Any:
        if (data is None) == (coordinator is None):
            raise click.UsageError("give --data DIR (one folder) or --coordinator HOST:PORT (several nodes)")
        if not is_log_name(log):
            raise click.BadParameter("a log's name is that of a folder", param_hint="--log")
        return function(*args, place=Place(data, coordinator, log, files), **rest)

    return with_place
