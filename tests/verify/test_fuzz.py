"""Garbage is "not a certificate": never a crash, never a pass."""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.verify import issuer
from truecut_verify import documents, folder, pgoutput
from truecut_verify.live import standing_of
from truecut_verify.main import main
from truecut_verify.verdict import Fail, NotACertificate, Unknown


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that passes."""
    found = tmp_path_factory.mktemp("honest") / "c"
    issuer.live(found, 11, certificates=3)
    return found


def verdict(path: Path) -> int:
    with contextlib.redirect_stdout(io.StringIO()):
        return main(["--json", str(path)])


def mutated(raw: bytes, chance: random.Random) -> bytes:
    """Bytes flipped, cut out, repeated or put in."""
    found = bytearray(raw)
    for _ in range(chance.choice([1, 1, 2, 5])):
        at = chance.randrange(len(found) + 1)
        match chance.randrange(4):
            case 0 if at < len(found):
                found[at] = chance.randrange(256)
            case 1:
                del found[at : at + chance.randrange(1, 50)]
            case 2:
                found[at:at] = found[at : at + chance.randrange(1, 50)]
            case _:
                found[at:at] = chance.randbytes(chance.randrange(1, 9))
    return bytes(found)


@pytest.mark.parametrize("kind", ["*.json", "copies/*.parquet", "evidence/*.parquet", "public.pem"])
def test_no_damaged_file_passes(kind: str, honest: Path, tmp_path: Path) -> None:
    """Each kind of file, damaged in twenty ways: fail (or unknown for want of a key)."""
    chance = random.Random(kind)
    here = tmp_path / "c"
    shutil.copytree(honest, here)
    files = sorted(here.glob(kind))
    for _ in range(20):
        file = chance.choice(files)
        raw = file.read_bytes()
        changed = mutated(raw, chance)
        file.write_bytes(changed)
        if changed != raw:
            allowed = (4, 5, 0) if kind == "public.pem" else (4,)
            assert verdict(here) in allowed, (file, changed)
        file.write_bytes(raw)
    assert verdict(here) == 0


def test_no_damaged_table_that_was_signed_crashes(tmp_path: Path) -> None:
    """An issuer that signs the hash of damaged evidence: the parser is reached."""
    for seed in range(20):
        chance = random.Random(seed)
        world = issuer.World(tmp_path / str(seed), [issuer.CopyOf("main.t", "lake")])
        write = world.evidence_file

        def damaged(events: list[issuer.Json], write=write, world=world, chance=chance) -> tuple[str, bytes]:  # type: ignore[no-untyped-def]
            name, raw = write(events)
            (world.folder / name).write_bytes(mutated(raw, chance))
            return name, (world.folder / name).read_bytes()

        world.evidence_file = damaged  # type: ignore[method-assign]
        world.base(world.copies[0], [{"id": n} for n in range(20)], upto=1)
        world.certify()
        assert verdict(world.folder) in (0, 4), seed  # 0: what was changed is not read by anybody


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=2100) | st.text(max_size=600).map(str.encode))
def test_any_bytes_are_refused(raw: bytes) -> None:
    """Of a certificate."""
    with pytest.raises(NotACertificate):
        documents.parse_certificate(raw, "x")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_in_any_place_is_refused_or_parsed(honest: Path, data: st.DataObject) -> None:
    """Of a certificate, a copy's row and a segment: another value is another certificate, or none."""
    raw = (honest / "0000000002.json").read_bytes()
    value = json.loads(raw)
    value[data.draw(st.sampled_from(sorted(value)))] = data.draw(_json)
    with contextlib.suppress(NotACertificate, ValueError):  # ValueError: what the test itself cannot write
        documents.parse_certificate(documents.dump(value) + b"\n", "x")
    segment: issuer.Json = {"after": None, "edition": 1, "files": [], "kind": "base", "rows": 0,
               "sha256": "0" * 64,
               "sink": "s", "table": "t", "upto": issuer.position(1)}  # fmt: skip
    segment[data.draw(st.sampled_from(sorted(segment)))] = data.draw(_json)
    with contextlib.suppress(NotACertificate, ValueError):
        documents.parse_segment(segment, "x")


_RELATION = b"R" + bytes(3) + b"\7public\0t\0d" + b"\0\1\1id\0" + bytes(3) + b"\x17" + bytes(4)
_INSERT = b"I" + bytes(3) + b"\7N\0\1t" + bytes(3) + b"\0011"


def test_no_damaged_log_crashes() -> None:
    """Messages of a server's log, damaged, cut short or without what announces them: unknown, or changes."""
    honest = [b"B" + bytes(20), _RELATION, _INSERT, b"C" + bytes(25)]
    assert [one.relation.table for one in pgoutput.changes(honest)] == ["public.t"]
    chance = random.Random(3)
    for n in range(2000):
        damaged = [mutated(one, chance) if chance.random() < 0.5 else one for one in honest[n % 3 :]]
        with contextlib.suppress(Unknown):
            list(pgoutput.changes(damaged))


@settings(max_examples=150, deadline=None)
@given(
    st.text(max_size=60) | _json.map(lambda value: json.dumps({"copies": {"t": value}, "certificate": ""}))
)
def test_any_text_of_a_cursor_is_refused_or_told(text: str) -> None:
    """Whoever may write to a sink may write its cursor."""
    with contextlib.suppress(Fail):
        standing_of(text, "t")


@pytest.fixture(scope="module")
def archive(honest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, exported."""
    found = tmp_path_factory.mktemp("archive") / "c.zip"
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as file:
        for one in sorted(honest.rglob("*")):
            file.write(one, one.relative_to(honest))
    return found


def test_no_damaged_archive_crashes(archive: Path, tmp_path: Path) -> None:
    """It is refused, or the damage was where nobody looks (dates, permissions)."""
    raw, chance = archive.read_bytes(), random.Random(7)
    assert verdict(archive) == 0
    for n in range(30):
        changed = mutated(raw, chance)
        (tmp_path / f"{n}.zip").write_bytes(changed)
        assert verdict(tmp_path / f"{n}.zip") in (0, 4, 5), n
    assert folder.ARCHIVE_INFLATION_MAX == 100
