"""What the processes of a replicated log know each other by."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from truecut.config.secret import Secret

TOKEN_VARIABLE = "TRUECUT_JOURNAL_TOKEN"


@dataclass(frozen=True, slots=True)
class Security:
    """What proves who somebody is. Holds contents, not paths: it travels to executors."""

    token: Secret | None = None
    authority: bytes | None = None  # whose certificates are believed (PEM)
    certificate: bytes | None = None
    key: Secret | None = None

    @property
    def encrypted(self) -> bool:
        """Whether connections are TLS."""
        return self.authority is not None or self.certificate is not None

    @staticmethod
    def read(
        *,
        token_file: Path | None = None,
        authority: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> Security:
        """From files; the token also from the environment. Certificate and key belong together."""
        if (certificate is None) != (key is None):
            raise ValueError("a certificate and its key belong together")
        return Security(
            _token(token_file),
            authority.read_bytes() if authority else None,
            certificate.read_bytes() if certificate else None,
            Secret(key.read_text(errors="replace")) if key else None,
        )


def _token(file: Path | None) -> Secret | None:
    """Something that fits into a header, or an error: an empty file would let everybody in."""
    given = os.environ.get(TOKEN_VARIABLE, "")
    if file is not None:
        given = file.read_text(errors="replace").strip()
    elif not given:
        return None
    if not given or not given.isascii() or not given.isprintable() or " " in given:
        where = "the token file" if file else TOKEN_VARIABLE
        raise ValueError(f"{where}: expected one line of letters, digits and signs, without spaces")
    return Secret(given)
