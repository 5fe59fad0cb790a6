"""The key that signs certificates and the secret of their digests: made on first use, kept with 0600."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from truecut.certificate import durable
from truecut.certificate.issue import certificate_paths
from truecut.certificate.segment import SECRET
from truecut.errors import ExitCode, TruecutError

SIGNING, PUBLIC = "signing.pem", "public.pem"


@dataclass(frozen=True, slots=True)
class Signer:
    """Never printed."""

    key: Ed25519PrivateKey
    secret: bytes

    def __repr__(self) -> str:
        return "Signer(…)"

    @property
    def public_hash(self) -> str:
        """The name of the public key."""
        return hashlib.sha256(self.key.public_key().public_bytes_raw()).hexdigest()

    @property
    def secret_name(self) -> str:
        """By which an auditor knows that it is the right secret."""
        return hashlib.sha256(self.secret).hexdigest()[:16]

    def signature(self, text: str) -> str:
        """Over these bytes, hexadecimal."""
        return self.key.sign(text.encode()).hex()


def signer(folder: Path) -> Signer:
    """Of this folder; whoever comes first makes key and secret. Once there are certificates both are those of
    the last: others would begin a chain that nobody can follow."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        issued = certificate_paths(folder)
        if not issued:
            _make(folder / SECRET, secrets.token_bytes(16), 0o600)
            _make(folder / SIGNING, _private_pem(), 0o600)
        key = serialization.load_pem_private_key((folder / SIGNING).read_bytes(), None)
        secret = (folder / SECRET).read_bytes()
    except (OSError, ValueError, TypeError) as error:
        lost = isinstance(error, FileNotFoundError) and bool(certificate_paths(folder))
        raise (_lost(folder) if lost else _unusable(folder, error)) from error
    if not isinstance(key, Ed25519PrivateKey) or len(secret) != 16:
        raise _unusable(folder, None)
    found = Signer(key, secret)
    if issued and not _is_that_of(found, issued[-1]):
        raise _lost(folder)
    _make(folder / PUBLIC, _public_pem(key), 0o644)
    return found


def _is_that_of(signer: Signer, certificate: Path) -> bool:
    """One that cannot be read says nothing; whoever issues the next tells of it."""
    try:
        told = json.loads(certificate.read_bytes())
        return (told["secret"], told["key"]) == (signer.secret_name, signer.public_hash)
    except (OSError, ValueError, KeyError, TypeError):
        return True


def _make(path: Path, data: bytes, mode: int) -> None:
    if not path.exists():
        durable.keep_first(durable.write(path.parent, data, mode=mode), path)


def _private_pem() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _public_pem(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _unusable(folder: Path, error: Exception | None) -> TruecutError:
    return _without(folder, "not of their form" if error is None else type(error).__name__)


def _lost(folder: Path) -> TruecutError:
    return _without(folder, "its certificates were made with others than are there now")


def _without(folder: Path, why: str) -> TruecutError:
    return TruecutError(
        "TC7002",
        f"the certificates' folder {folder} has no key or secret that can be used ({why})",
        fix="Make the folder writable, and restore signing.pem (an Ed25519 key in PEM) and secret (16 bytes) "
        "where they were lost. Without them, move the folder away and copy all tables again.",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )
