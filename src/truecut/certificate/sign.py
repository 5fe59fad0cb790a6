"""The key that signs certificates and the secret of their digests: made on first use, kept with 0600."""

from __future__ import annotations

import hashlib
import json
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from truecut.certificate import durable
from truecut.certificate.issue import certificate_paths
from truecut.certificate.segment import SECRET
from truecut.errors import ExitCode, TruecutError

SIGNING, PUBLIC = "signing.pem", "public.pem"
NEXT = "signing.next.pem"  # while a key is handed over


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
        return key_hash(self.key)

    @property
    def secret_name(self) -> str:
        """By which an auditor knows that it is the right secret."""
        return hashlib.sha256(self.secret).hexdigest()[:16]

    def signature(self, text: str) -> str:
        """Over these bytes, hexadecimal."""
        return self.key.sign(text.encode()).hex()


def signer(folder: Path) -> Signer:
    """Of this folder; whoever comes first makes key and secret. Once there are certificates both are those of
    the last, or the key that it hands over to: others would begin a chain that nobody can follow."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        issued = certificate_paths(folder)
        if not issued:
            _make(folder / SECRET, secrets.token_bytes(16), 0o600)
            _make(folder / SIGNING, private_pem(Ed25519PrivateKey.generate()), 0o600)
        else:
            _take_over(folder, issued[-1])
        _close(folder / SIGNING, folder / SECRET)
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
    publish(folder, key)
    return found


def key_hash(key: Ed25519PrivateKey) -> str:
    """By which certificates name a key: the hash of its raw public half."""
    return hashlib.sha256(key.public_key().public_bytes_raw()).hexdigest()


def _is_that_of(signer: Signer, certificate: Path) -> bool:
    """One that cannot be read says nothing; whoever issues the next tells of it."""
    try:
        told = json.loads(certificate.read_bytes())
        return (told["secret"], _following(told)) == (signer.secret_name, signer.public_hash)
    except (OSError, ValueError, KeyError, TypeError):
        return True


def _following(told: dict[str, str]) -> str:
    """The name of the key that signs the certificate after this one."""
    raw = told.get("next_key")
    return told["key"] if raw is None else hashlib.sha256(bytes.fromhex(raw)).hexdigest()


def _take_over(folder: Path, last: Path) -> None:
    """A hand-over that was signed and not finished: the key that was handed over to takes its place."""
    try:
        wanted = _following(json.loads(last.read_bytes()))
        key = serialization.load_pem_private_key((folder / NEXT).read_bytes(), None)
    except (OSError, ValueError, KeyError, TypeError):  # none is under way, or nobody can tell
        return
    if isinstance(key, Ed25519PrivateKey) and key_hash(key) == wanted:
        durable.keep(folder / NEXT, folder / SIGNING)


def _close(*paths: Path) -> None:
    """What somebody has put there is for nobody else's eyes; a file that is not ours stays as it is."""
    for path in paths:
        if path.stat().st_mode & 0o077:
            with suppress(PermissionError):
                path.chmod(0o600)


def publish(folder: Path, key: Ed25519PrivateKey) -> None:
    """All public keys there were, one after the other: an auditor needs those before a hand-over, too."""
    path, pem = folder / PUBLIC, _public_pem(key)
    before = path.read_bytes() if path.exists() else b""
    if pem.strip() not in before:
        durable.keep(durable.write(folder, before + pem), path)


def _make(path: Path, data: bytes, mode: int) -> None:
    if not path.exists():
        durable.keep_first(durable.write(path.parent, data, mode=mode), path)


def private_pem(key: Ed25519PrivateKey) -> bytes:
    """As it is kept."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def own_public_key(folder: Path) -> bytes | None:
    """Of the key that signs here, as PEM; None where that is kept from us."""
    with suppress(OSError, ValueError, TypeError):
        key = serialization.load_pem_private_key((folder / SIGNING).read_bytes(), None)
        return _public_pem(key) if isinstance(key, Ed25519PrivateKey) else None
    return None


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
