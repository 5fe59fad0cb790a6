"""Another key signs from now on: handed over by a certificate that the old one has signed.

Promises: at every moment the folder has the key that the last certificate asks for, or what is needed to put
it there (`sign.signer` finishes what was begun); whoever follows the chain sees no gap. A run that goes on
takes the new key with the next certificate that it issues.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from truecut.certificate import durable
from truecut.certificate.issue import Issued, issue, last_readable
from truecut.certificate.sign import NEXT, key_hash, private_pem, signer
from truecut.config.kinds import SOURCES
from truecut.config.settings import Pipeline
from truecut.errors import ExitCode, Retry, TruecutError
from truecut.failpoint import failpoint
from truecut.runtime.certificate_lease import alone


def rotate(pipeline: Pipeline, *, folder: Path, runner: str, given: Path | None) -> Issued:
    """Hand over to the key of a file, or to one that is made; returns the certificate that says so."""
    key = Ed25519PrivateKey.generate() if given is None else _read(given)
    with alone(pipeline, runner, patience_s=2 * pipeline.lease_ms / 1000) as is_ours:
        if is_ours is None:
            raise _busy()
        before, old = last_readable(folder), signer(folder)
        if before.number == 0:
            raise _refused("no certificate has been issued yet")
        if key_hash(key) == old.public_hash:
            raise _refused("this key signs already")
        durable.keep(durable.write(folder, private_pem(key), mode=0o600), folder / NEXT)
        failpoint("key_prepared")
        done = issue(
            folder,
            old,
            before=before,
            pipeline=pipeline.name,
            source=before.document["source"],
            captured=SOURCES[pipeline.source.type].captured,
            copies=[{**row, "segments": "[]", "units": "[]"} for row in before.copies.values()],
            issued_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            next_key=key.public_key().public_bytes_raw().hex(),
        )
        if done is None:
            raise _busy()
        failpoint("key_handed_over")
        signer(folder)  # finishes it, unless a run that begins at this moment has
    return done


def _read(path: Path) -> Ed25519PrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise _refused(f"{path} cannot be read as a key ({type(error).__name__})") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _refused(f"{path} holds a key of another kind")
    return key


def _refused(why: str) -> TruecutError:
    return TruecutError(
        "TC7007",
        f"the signing key is not replaced: {why}",
        fix="Give another Ed25519 key in PEM, without a password (`openssl genpkey -algorithm ed25519`), or "
        "none to have one made. Before the first certificate there is nothing to hand over.",
        exit_code=ExitCode.WRONG_INPUT,
    )


def _busy() -> TruecutError:
    return TruecutError(
        "TC7008",
        "the signing key is not replaced: somebody else issues certificates all the time",
        fix="Try again, or stop the run for a moment.",
        retry=Retry.RETRYABLE,
    )
