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
            raise ValueError("certificate and key belong together")
        token = token_file.read_text().strip() if token_file else os.environ.get(TOKEN_VARIABLE)
        return Security(
            Secret(token) if token else None,
            authority.read_bytes() if authority else None,
            certificate.read_bytes() if certificate else None,
            Secret(key.read_text()) if key else None,
        )
