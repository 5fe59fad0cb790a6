"""V0: are these certificates, one unbroken chain of them, signed, and whole in what they claim?

Owns what is checked without evidence: form, signatures and the hand-over of keys, numbers and hashes of the
chain, claims of a copy that fit those before, units that cover every key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from truecut_verify.documents import (
    CERTIFICATE_BYTES_MAX,
    COPIES_BYTES_MAX,
    Certificate,
    Copy,
    Segment,
    Unit,
    parse_certificate,
    read_copies,
)
from truecut_verify.folder import Folder
from truecut_verify.verdict import Fail, Finding, NotACertificate, Unknown

_PEM_END = b"-----END PUBLIC KEY-----"
Keys = dict[str, bytes]  # raw public keys, by their hash


@dataclass(slots=True)
class History:
    """All that the certificates say of one copy, in order, and the first thing that is wrong with it."""

    claims: list[tuple[Certificate, Copy]] = field(default_factory=list)
    wrong: Finding | None = None

    @property
    def last(self) -> Copy:
        """What is claimed now."""
        return self.claims[-1][1]


@dataclass(frozen=True, slots=True)
class Chain:
    """Certificates that follow each other. `trusted`: by a key that the auditor gave."""

    certificates: Sequence[Certificate]
    copies: dict[tuple[str, str], History]
    trusted: bool

    @property
    def current(self) -> dict[tuple[str, str], Copy]:
        """What the last certificate claims: copies that it does not name are of the pipeline no more."""
        return {of: one.last for of, one in self.copies.items() if one.claims[-1][0] is self.certificates[-1]}


def read_chain(folder: Folder, given: bytes | None) -> Chain:
    """V0 of a folder. What is wrong with one copy alone is left in its history."""
    certificates = _certificates(folder)
    if not certificates:
        raise NotACertificate(folder.root.name, "there is no certificate in it")
    for before, after in pairwise([None, *certificates]):
        assert after is not None
        _check_link(before, after)
    trusted = _check_signatures(certificates, folder, given)
    copies: dict[tuple[str, str], History] = {}
    begins_late = certificates[0].number > 1
    for certificate in certificates:
        if folder.find(certificate.name) is None:
            continue  # trimmed since it was read
        _take_copies(folder, certificate, copies, begins_late and certificate is certificates[0])
    return Chain(certificates, copies, trusted)


def _certificates(folder: Folder) -> list[Certificate]:
    """The newest first: what a run trims meanwhile goes from the oldest on."""
    found: list[Certificate] = []
    for name in reversed(folder.names):
        if found and folder.find(name) is None:
            break
        found.append(parse_certificate(folder.read(name, bytes_max=CERTIFICATE_BYTES_MAX), name))
    return found[::-1]


def check_told(folder: Folder, chain: Chain, digest: str, *, beyond: bool) -> None:
    """What a sink's cursor names is of the chain, or follows it; `beyond`: the sink has gone on since. Where
    the chain's beginning was trimmed it may be one of those."""
    if not digest or _leads_to(folder, chain, digest):
        return
    if beyond:
        told = "the sink knows a certificate that is not here: a newer one, or one of another chain"
        raise Unknown(told, certificate_digest=digest)
    if chain.certificates[0].number == 1:
        raise Fail("the sink knows a certificate that is not of this chain", certificate_digest=digest)


def _leads_to(folder: Folder, chain: Chain, digest: str) -> bool:
    """What was issued since the chain was read is looked at, too."""
    known = {one.digest for one in chain.certificates} | {chain.certificates[0].previous}
    last = chain.certificates[-1]
    while digest not in known:
        name = f"{last.number + 1:010}.json"
        if folder.find(name) is None:
            return False
        now = parse_certificate(folder.read(name, bytes_max=CERTIFICATE_BYTES_MAX), name)
        _check_link(last, now)
        known, last = {now.digest}, now
    return True


# --- links and signatures ---------------------------------------------------------------------------------


def _check_link(before: Certificate | None, now: Certificate) -> None:
    """Its file's name, its number, and the hash of the one before."""
    if now.name != f"{now.number:010}.json":
        raise Fail("a certificate under another's name", certificate=now.number, file=now.name)
    if now.kept_from > max(1, now.number - 1) or (before is not None and now.kept_from < before.kept_from):
        raise Fail("it does not keep what it has to keep", certificate=now.number)
    if before is None:
        if (now.number == 1) != (now.previous == ""):
            raise Fail("only the first certificate has none before it", certificate=now.number)
        return
    if now.number != before.number + 1:
        raise Fail("a certificate is missing", certificate=before.number + 1)
    if now.previous != before.digest:
        raise Fail("it does not follow the one before", certificate=now.number)
    if (now.pipeline, now.secret) != (before.pipeline, before.secret):
        raise Fail("it is of another pipeline, or under another secret", certificate=now.number)


def _check_signatures(certificates: Sequence[Certificate], folder: Folder, given: bytes | None) -> bool:
    """Each is signed, by the key of the one before or by that to which it was handed over.

    A key that the auditor trusts and that signed any of them speaks for all: for later ones by hand-over, for
    earlier ones by their hashes.
    """
    beside = folder.find("public.pem")
    keys = read_keys(given or b"") | read_keys(beside.read_bytes()[:65536] if beside else b"")
    for one in certificates:
        if one.next_key is not None:
            raw = bytes.fromhex(one.next_key)
            keys[hashlib.sha256(raw).hexdigest()] = raw
    for before, now in pairwise([None, *certificates]):
        assert now is not None
        if before is not None and now.key != _next_key(before):
            raise Fail("it is signed by a key that was not handed over to", certificate=now.number)
        _check_signature(now, keys)
    own = set(read_keys(given or b""))
    if given is not None and not own & {one.key for one in certificates}:
        if _next_key(certificates[-1]) in own:  # which anybody may write
            raise Unknown("the public key that was given signs from the next certificate on: none of these")
        stranger = "none of them is signed by the public key that was given"
        if certificates[0].number > 1:
            raise Unknown(f"{stranger}; those before were trimmed", certificate=certificates[0].number)
        raise Fail(stranger, certificate=certificates[0].number)
    return given is not None


def _next_key(before: Certificate) -> str:
    if before.next_key is None:
        return before.key
    return hashlib.sha256(bytes.fromhex(before.next_key)).hexdigest()


def _check_signature(one: Certificate, keys: Keys) -> None:
    if one.key not in keys:
        raise Unknown("the public key that signed it is not here (--public-key)", certificate=one.number)
    try:
        Ed25519PublicKey.from_public_bytes(keys[one.key]).verify(one.signature, one.signed)
    except InvalidSignature:
        raise Fail("its signature is wrong", certificate=one.number) from None


def read_keys(pem: bytes) -> Keys:
    """All Ed25519 keys of a PEM file."""
    keys: Keys = {}
    for part in pem.split(_PEM_END)[:-1]:
        try:
            key = load_pem_public_key(part + _PEM_END)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise NotACertificate("public key", "no public key that can be read") from error
        if isinstance(key, Ed25519PublicKey):
            raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
            keys[hashlib.sha256(raw).hexdigest()] = raw
    return keys


# --- claims -----------------------------------------------------------------------------------------------


def _take_copies(
    folder: Folder, certificate: Certificate, copies: dict[tuple[str, str], History], is_late: bool
) -> None:
    """The certificate's table of copies, each row beside what was claimed before; `is_late`: nobody knows
    what was."""
    name, number = certificate.copies["file"], certificate.number
    path = folder.find(name)
    if path is None or path.stat().st_size > COPIES_BYTES_MAX:
        raise Fail("its table of copies is not there, or too large", certificate=number, file=name)
    if (folder.sha256(name) or b"").hex() != certificate.copies["sha256"]:
        raise Fail("its table of copies has another hash", certificate=number, file=name)
    last: tuple[str, str] | None = None
    lowest: list[str] = []
    for copy in read_copies(path, certificate):
        if last is not None and copy.name <= last:
            raise Fail("its copies are not in order, or one is there twice", certificate=number)
        last = copy.name
        lowest = [min([*lowest, copy.at])]
        history = copies.setdefault(copy.name, History())
        try:
            before = copy if is_late else history.last if history.claims else None
            _check_claim(before, copy, certificate)
        except Finding as finding:
            history.wrong = history.wrong or finding
        history.claims.append((certificate, copy))
    if certificate.frontier != "".join(lowest):
        raise Fail("its frontier is not the lowest position of its copies", certificate=number)


def _check_claim(before: Copy | None, now: Copy, certificate: Certificate) -> None:
    """A claim fits the one before it, and is whole in itself."""
    number, anew = certificate.number, _is_anew(now)
    same = before is not None and before.edition == now.edition and not anew
    if before is not None and now.edition < before.edition and not anew:
        raise Fail("its edition goes back", certificate=number)
    back = before is not None and before.edition == now.edition and now.at < before.at
    if before is not None and back and (now.at[:8] == before.at[:8] or not anew):
        raise Fail("its position goes back within an edition", certificate=number)
    if before is not None and same:
        if now.at[:8] != before.at[:8]:
            raise Fail("its position goes into another history within an edition", certificate=number)
        if (now.scope, now.mode, now.route, now.key) != (before.scope, before.mode, before.route, before.key):
            raise Fail("it became a copy of something else within an edition", certificate=number)
        if before.route_by is not None and now.route_by != before.route_by:
            raise Fail("another column tells its route within an edition", certificate=number)
    inherited = before is not None and before.edition == now.edition and now.scope == before.scope
    if now.scope != f"{certificate.source['identity']}\n{now.table}" and not inherited:
        raise Fail("it is of another source or another table", certificate=number)
    _check_names(now, number)
    _check_units(now, number)


def _is_anew(now: Copy) -> bool:
    """Whether nothing counts that was claimed before: it begins with a base, or claims nothing at all."""
    return now.verdict == "unknown" or any(begins(one, now) for one in now.segments)


def begins(segment: Segment, copy: Copy) -> bool:
    """Whether a chain begins with it: every base of a mirror; of an append table that from which on the heads
    fit from zero, another one stands beside the rows before it."""
    if segment.kind != "base" or copy.mode == "mirror":
        return segment.kind == "base"
    head = bytes(32)
    for one in copy.segments[copy.segments.index(segment) :]:
        head = hashlib.sha256(head + one.header).digest()
    return head.hex() == copy.evidence


def _check_names(now: Copy, number: int) -> None:
    names = [name for name, _, _ in now.columns]
    numbers = [column for name, column, _ in now.columns if name not in now.key]
    if len(set(names)) != len(names) or len(set(numbers)) != len(numbers):
        raise Fail("a column is there twice", certificate=number)
    if not now.key or not set(now.key) <= set(names):
        raise Fail("its key is not of its columns", certificate=number)
    for segment in now.segments:
        other = (segment.table, segment.sink) != now.name or segment.edition > now.edition
        if other or segment.upto > now.at:
            raise Fail(
                "a segment of another copy, or from after its position", certificate=number, upto=segment.upto
            )


def _check_units(now: Copy, number: int) -> None:
    """From no bound to no bound, each where the one before ends; lo ≤ hi ≤ the base: the last told."""
    if not now.units:
        return
    base = ([one.upto for one in now.segments if one.kind == "base"] or [now.at])[-1]
    if now.units[0].low is not None:
        raise Fail("its first unit leaves out what lies before it", certificate=number, unit=0)
    if now.units[-1].high is not None:
        raise Fail("its last unit ends before the last key", certificate=number, unit=len(now.units) - 1)
    _check_neighbours(now.units, number)
    for n, unit in enumerate(now.units):
        if not unit.lo <= unit.hi <= base:
            raise Fail("lo ≤ hi ≤ base does not hold of a unit", certificate=number, unit=n)


def _check_neighbours(units: Iterable[Unit], number: int) -> None:
    for n, (one, following) in enumerate(pairwise(units)):
        if one.high is None or one.high != following.low or type(one.high) is not type(following.low):
            raise Fail("a unit does not begin where the one before ends", certificate=number, unit=n + 1)
