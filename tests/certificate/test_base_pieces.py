"""A base that many tasks have written: one segment, whoever of them ran twice, and whoever commits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.certificate.lives import pieces_of, written_by_tasks
from truecut.certificate.base_pieces import EventPiece, PieceEvidence, told
from truecut.certificate.chain import chained
from truecut.certificate.folding import Folding, Target
from truecut.certificate.segment import Wanted, columns_text, copy_folder, read_segment
from truecut.errors import TruecutError
from truecut.model.cursor import Version
from truecut.model.order import Order
from truecut.sinks.parts import KeySpan, Part, StagedPlace, StagedTable
from truecut.sinks.passage import settled_of_parts
from truecut.testing.orders import ITEMS, order, position, rows, seed

PARTS = [rows([(4, 1, 1), (4, 1, 2)], ITEMS), rows([(4, 1, 3)], ITEMS)]


@pytest.fixture
def wanted(tmp_path: Path) -> Wanted:
    (tmp_path / "secret").write_bytes(bytes(16))
    return Wanted(str(tmp_path), leaves_out=False)


def folder_of(wanted: Wanted) -> Path:
    return copy_folder(Path(wanted.folder), sink="acme", table="main.t")


def names_in(wanted: Wanted) -> set[str]:
    return {path.name for path in folder_of(wanted).iterdir()}


def test_whoever_commits_twice_tells_the_same(wanted: Wanted) -> None:
    """An order may run twice: the pieces have their names already, and the head is the same. Of a task that
    ran twice only the run that succeeded counts."""
    first = order(None, 1, t=seed())
    pieces = pieces_of(wanted, first, PARTS)
    pieces_of(wanted, first, PARTS[:1])  # its answer was lost
    headers = told(wanted, first, {"main.t": pieces})
    named = names_in(wanted)
    assert told(wanted, first, {"main.t": pieces}) == headers
    assert names_in(wanted) == named
    assert sorted(name.partition(".")[2] for name in named) == [
        "parquet", "piece.parquet", "piece.parquet", "unfinished"
    ]  # fmt: skip
    segment = read_segment(folder_of(wanted), chained("", headers["main.t"]))
    assert segment is not None
    assert (segment.header.rows, len(segment.files)) == (3, 3)


@pytest.mark.parametrize("hurt", ["gone", "changed", "another's"])
def test_a_piece_that_is_not_what_it_was_is_missed(wanted: Wanted, hurt: str) -> None:
    """The head counts the bytes of every piece."""
    first = order(None, 1, t=seed())
    head = chained("", written_by_tasks(wanted, first, PARTS))
    segment = read_segment(folder_of(wanted), head)
    assert segment is not None
    one, other = segment.files[1:]
    if hurt == "gone":
        one.unlink()
    elif hurt == "changed":
        data = bytearray(one.read_bytes())
        data[len(data) // 2] ^= 1
        one.write_bytes(bytes(data))
    else:
        one.write_bytes(other.read_bytes())
    assert read_segment(folder_of(wanted), head) is None


def test_a_piece_that_never_came_is_not_committed(wanted: Wanted) -> None:
    """Somebody has removed it: nothing is told, and the order is tried again."""
    first = order(None, 1, t=seed())
    pieces = pieces_of(wanted, first, PARTS)
    (folder_of(wanted) / pieces[0].name).unlink()
    with pytest.raises(FileNotFoundError):
        told(wanted, first, {"main.t": pieces})
    part = Part(0, {"main.t": staged(2)}, evidence={"main.t": pieces[0]})
    with pytest.raises(TruecutError) as caught:
        settled_of_parts(first, wanted, [part])
    assert caught.value.fault.code == "TC7001"


def test_an_append_table_is_told_twice_over_and_again(wanted: Wanted) -> None:
    """By the head that goes on, and by the one that begins anew; also when the order runs twice. So is one
    that one process writes."""
    again = order(
        None, 2, t=replace(seed("append", ITEMS), before=Version(1, position(1), evidence="ab" * 32))
    )
    pieces = pieces_of(wanted, again, PARTS)
    header = told(wanted, again, {"main.t": pieces})["main.t"]
    assert told(wanted, again, {"main.t": pieces}) == {"main.t": header}
    for before in ("ab" * 32, ""):
        segment = read_segment(folder_of(wanted), chained(before, header))
        assert segment is not None
        assert segment.header.rows == 3


def test_a_table_without_rows_has_a_segment(wanted: Wanted) -> None:
    """Without pieces."""
    first = order(None, 1, t=seed())
    header = written_by_tasks(wanted, first, [])
    segment = read_segment(folder_of(wanted), chained("", header))
    assert segment is not None
    assert (segment.header.rows, len(segment.files)) == (0, 1)
    target = Target(
        "main.t", "acme", "mirror", 1, str(position(1)), chained("", header), columns_text(ITEMS.columns), ""
    )
    claim = Folding(wanted.folder, target).run()
    assert (claim.verdict, claim.rows) == ("certified", 0)


def staged(rows: int) -> StagedTable:
    return StagedTable((StagedPlace("f", rows, 0, KeySpan(True)),))


def test_digests_of_other_rows_than_were_staged_are_refused(wanted: Wanted) -> None:
    """More, fewer, or none, of any piece: nothing is committed. A table that stops needs none."""
    first: Order = order(None, 1, t=seed())
    one, other = pieces_of(wanted, first, PARTS)
    good = [
        Part(0, {"main.t": staged(2)}, {"main.t": one}),
        Part(1, {"main.t": staged(1)}, {"main.t": other}),
    ]
    assert settled_of_parts(first, wanted, good).tables["main.t"].evidence

    def refused(*parts: Part) -> bool:
        with pytest.raises(TruecutError) as caught:
            settled_of_parts(first, wanted, parts)
        return caught.value.fault.code == "TC5081"

    assert refused(good[0], replace(good[1], evidence={}))
    assert refused(good[0], replace(good[1], tables={}))
    assert refused(good[0], replace(good[1], tables={"main.t": staged(2)}))
    stopped = Part(1, {"main.t": replace(staged(0), stop=("TC3020", "twice"))}, {"main.t": other})
    assert settled_of_parts(first, wanted, [good[0], stopped]).tables["main.t"].evidence == ""
    assert settled_of_parts(first, wanted, [good[0]], ["main.t"]).tables["main.t"].evidence == ""


def test_what_was_not_finished_is_taken_away(wanted: Wanted) -> None:
    """A piece that could not be staged leaves nothing."""
    evidence = PieceEvidence(wanted, order(None, 1, t=seed()))
    evidence.add("main.t", PARTS[0])
    assert names_in(wanted)
    evidence.close()
    assert not names_in(wanted)


def test_names_of_pieces_stay_in_their_folder(wanted: Wanted) -> None:
    """Whatever a file says: what it names is looked for beside it alone."""
    first = order(None, 1, t=seed())
    (piece,) = pieces_of(wanted, first, PARTS[:1])
    outside = Path(wanted.folder) / "outside.piece.parquet"
    outside.write_bytes((folder_of(wanted) / piece.name).read_bytes())
    lying = EventPiece("../../outside.unfinished", piece.rows, piece.sha256)
    header = told(wanted, first, {"main.t": [lying]})["main.t"]
    assert read_segment(folder_of(wanted), chained("", header)) is None
