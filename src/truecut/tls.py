"""Why a PostgreSQL and an address do not agree upon encryption: by libpq's words, which are never shown."""

from __future__ import annotations

_SAID = {
    "server does not support SSL": "it offers no TLS, and the address asks for it",
    "root certificate file": "the certificates by which it would be known are not there (sslrootcert)",
    "certificate verify failed": "its certificate is of nobody whom sslrootcert vouches for",
    "does not match host name": "its certificate is made out to another host",
}


def disagreement(text: str, *, sslmode: object) -> str | None:
    """None: it was something else. A server refuses whoever comes without TLS as it refuses anybody; where
    the address keeps TLS away, that is why."""
    if "pg_hba.conf" in text and "no encryption" in text and sslmode in ("disable", "allow"):
        return "it does not let in who comes without TLS"
    return next((why for words, why in _SAID.items() if words in text), None)
