"""The ledger against a plain replay: what segments tell makes the state of the source."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.certificate.lives import Life
from truecut.certificate.ledger import Contradiction, Ledger, Standing
from truecut.certificate.segment import copy_folder, segments_between
from truecut.model.change import DELETE, INSERT, TRUNCATE


def folder_of(life: Life) -> Path:
    return copy_folder(life.folder, sink="acme", table="main.t")


def fold(life: Life, path: Path) -> None:
    with Ledger.open(path, read_only=False) as ledger:
        segments = segments_between(folder_of(life), after=ledger.standing.evidence, head=life.head)
        assert segments is not None
        ledger.fold(segments, Standing(life.edition, "", life.head, "", "certified", ""))


@pytest.mark.parametrize("number", range(6))
def test_a_folded_ledger_has_the_root_of_the_source(tmp_path: Path, number: int) -> None:
    """Seeds, changes of one key in one window, truncates, values left out, packets in any order: whenever it
    is folded, buckets and rows are those of the source's rows, digested by the verifier's code; and so they
    are where the file is not changed but extended."""
    life = Life(tmp_path, random.Random(number))
    path = tmp_path / "ledger.duckdb"
    life.seed()
    fold(life, path)
    for _ in range(14):
        (life.seed if life.chance.random() < 0.08 else life.window)()
        if life.chance.random() < 0.5:
            fold(life, path)
            with Ledger.open(path) as ledger:
                assert ledger.buckets().root() == life.root()
                assert ledger.rows(0, 4095).num_rows == len(life.state)
    fold(life, path)
    life.window()
    with Ledger.open(path) as ledger:
        more = segments_between(folder_of(life), after=ledger.standing.evidence, head=life.head)
        assert more is not None
        extended = ledger.extended(more, life.place)
        assert extended.buckets().root() == life.root()
        assert extended.rows(0, 4095).num_rows == len(life.state)


def test_a_lost_ledger_is_made_again_of_the_segments(tmp_path: Path) -> None:
    """From the last base on."""
    life = Life(tmp_path, random.Random(1))
    life.seed()
    for _ in range(5):
        life.window()
    fold(life, tmp_path / "one.duckdb")
    with Ledger.open(tmp_path / "one.duckdb") as ledger:
        assert ledger.buckets().root() == life.root()


def test_a_segment_that_is_gone_or_changed_is_missed(tmp_path: Path) -> None:
    """Every segment between two heads, as it was, or none."""
    life = Life(tmp_path, random.Random(2))
    life.seed()
    for _ in range(3):
        life.window()
    whole = segments_between(folder_of(life), after="", head=life.head)
    assert whole is not None
    assert len(whole) == 4
    data = bytearray(whole[2].files[0].read_bytes())
    data[len(data) // 3] ^= 1
    whole[2].files[0].write_bytes(bytes(data))
    assert segments_between(folder_of(life), after="", head=life.head) is None
    whole[2].files[0].unlink()
    assert segments_between(folder_of(life), after="", head=life.head) is None


def test_what_contradicts_is_no_state(tmp_path: Path) -> None:
    """A segment told twice that inserts or deletes finds its keys there, or gone."""
    life = Life(tmp_path, random.Random(3))
    life.seed()
    for _ in range(4):
        life.window()
    segments = segments_between(folder_of(life), after="", head=life.head)
    assert segments is not None
    tried = 0
    for n, segment in enumerate(segments[1:], 1):
        ops = set(pq.read_table(segment.files[0]).column("op").to_pylist())
        if not ops & {INSERT, DELETE} or TRUNCATE in ops:
            continue
        tried += 1
        with Ledger.open(tmp_path / f"{n}.duckdb", read_only=False) as ledger, pytest.raises(Contradiction):
            ledger.fold(segments[: n + 1] + segments[n:], Standing())
    assert tried


def test_events_are_in_the_order_of_place_and_seq(tmp_path: Path) -> None:
    """Whatever the order of the packets was."""
    life = Life(tmp_path, random.Random(4))
    life.seed()
    life.window()
    segments = segments_between(folder_of(life), after="", head=life.head)
    assert segments is not None
    told = pq.read_table(segments[1].files[0])
    order = list(zip(told.column("place").to_pylist(), told.column("seq").to_pylist(), strict=True))
    assert order == sorted(order)
