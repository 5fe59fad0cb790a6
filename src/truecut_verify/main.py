"""`truecut-verify [--public-key K] [--secret FILE] [--sink DSN] [--source DSN] [--json] FILE…`

Exit codes: 0 pass, 4 fail, 5 unknown, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from truecut_verify.files import Examined, examine
from truecut_verify.folder import WrongUsage, opened
from truecut_verify.live import check_sinks, check_source
from truecut_verify.verdict import (
    EXIT_CODES,
    WRONG_USAGE,
    Check,
    NotACertificate,
    claims,
    document,
    overall,
    sentences,
)

_HELP = """Checks certificates of what was copied, from their files alone; with --sink and --source also what
is there now. FILE is a certificate, a folder of certificates or an exported archive. A DSN is
ducklake:PATH, ducklake:sqlite:PATH, ducklake:postgres:CONNINFO, postgresql://… or NAME=DSN for one of
several sinks."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser("truecut-verify", description=_HELP)
    parser.add_argument("--public-key", type=Path, help="PEM, from somebody whom you trust")
    parser.add_argument("--secret", type=Path, help="of the digests; needed to read a sink or a source")
    parser.add_argument("--sink", action="append", default=[], metavar="[NAME=]DSN")
    parser.add_argument("--source", metavar="DSN")
    parser.add_argument("--json", action="store_true", help="one document on standard output")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    asked = parser.parse_args(arguments)
    try:
        checks = _checks(asked)
    except (WrongUsage, OSError) as error:
        print(f"truecut-verify: {error}", file=sys.stderr)
        return WRONG_USAGE
    if asked.json:
        print(json.dumps(document(checks)))
    else:
        print("\n".join([*sentences(checks), f"verdict: {overall(checks)}", *claims(checks)]))
    return EXIT_CODES[overall(checks)]


def _checks(asked: argparse.Namespace) -> list[Check]:
    public_key = None if asked.public_key is None else asked.public_key.read_bytes()
    secret = _secret(asked)
    checks: list[Check] = []
    try:
        with opened(asked.files) as folders:
            for folder in folders:
                found = examine(folder, public_key)
                checks += found.checks + _live(found, asked, secret)
    except NotACertificate as finding:
        checks.append(Check.of("V0", finding))
    return checks


def _secret(asked: argparse.Namespace) -> bytes:
    """Sixteen bytes, or 32 hexadecimal digits."""
    if asked.secret is None:
        if asked.sink or asked.source:
            raise WrongUsage("--sink and --source need the digests' secret: --secret FILE")
        return b""
    raw: bytes = asked.secret.read_bytes()
    try:
        found = raw if len(raw) == 16 else bytes.fromhex(raw.decode().strip())
    except ValueError:
        found = b""
    if len(found) != 16:
        raise WrongUsage(f"{asked.secret} does not hold a secret of 16 bytes")
    return found


def _live(found: Examined, asked: argparse.Namespace, secret: bytes) -> list[Check]:
    """V4 and V5, of what the certificates say if they say anything."""
    if found.chain is None or (not asked.sink and asked.source is None):
        return []
    source = check_source(found, asked.source, secret) if asked.source else []
    return source + check_sinks(found, asked.sink, secret)


if __name__ == "__main__":
    sys.exit(main())
