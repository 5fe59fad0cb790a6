"""Authorities and certificates for tests, made with `openssl`; without it the tests fail."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files on disk."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates for 127.0.0.1."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self.own = _files(folder, name)
        _openssl("req", "-x509", *_KEY, "-days", "2", "-subj", f"/CN={name}", *_into(self.own))

    def sign(self, name: str) -> Certificate:
        made = _files(self._folder, f"{self._name}-{name}")
        request, extensions = made.key.with_suffix(".csr"), made.key.with_suffix(".ext")
        extensions.write_text("subjectAltName=IP:127.0.0.1\n")
        _openssl("req", *_KEY, "-subj", f"/CN={name}", "-keyout", str(made.key), "-out", str(request))
        signer = ["-CA", str(self.own.certificate), "-CAkey", str(self.own.key), "-CAcreateserial"]
        rest = ["-days", "2", "-extfile", str(extensions), "-out", str(made.certificate)]
        _openssl("x509", "-req", "-in", str(request), *signer, *rest)
        return made


def _files(folder: Path, name: str) -> Certificate:
    return Certificate(folder / f"{name}.pem", folder / f"{name}.key")


def _into(files: Certificate) -> list[str]:
    return ["-keyout", str(files.key), "-out", str(files.certificate)]


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
