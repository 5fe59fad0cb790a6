"""What can be claimed of a copy when its evidence has a doubt, a hole, or another shape."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from truecut.certificate.chain import chained
from truecut.certificate.digest import Keyed
from truecut.certificate.events import Events
from truecut.certificate.folding import Claim, Folding, Target, ledger_path
from truecut.certificate.ledger import Ledger
from truecut.certificate.scope import scope_of
from truecut.certificate.segment import SegmentWriter, Wanted, columns_text, copy_folder, read_segment
from truecut.model.cursor import Version
from truecut.model.table import Column, TableSchema
from truecut.spark.fold import folded
from truecut.testing.orders import ITEMS, NOTED, order, position, rows, seed

NARROW = TableSchema("9", (Column(1, "id", "BIGINT"),))


@dataclass
class Appended:
    """An append table that is seeded again and again."""

    folder: Path
    head: str = ""
    edition: int = 0

    def __post_init__(self) -> None:
        (self.folder / "secret").write_bytes(bytes(16))

    def seed(self, schema: TableSchema, *, beside: bool) -> None:
        place = self.edition + 1
        before = Version(self.edition, position(place - 1), evidence=self.head) if beside else None
        wanted = order(None, place, t=replace(seed("append", schema), before=before))
        writer = SegmentWriter(Wanted(str(self.folder), leaves_out=False), wanted)
        writer.add("main.t", rows([(4, place, 1)], schema))
        (header,) = writer.close().values()
        self.head = chained(self.head if beside else "", header)
        self.edition += 1

    def claim(self, schema: TableSchema) -> Claim:
        at, columns = str(position(self.edition)), columns_text(schema.columns)
        target = Target("main.t", "acme", "append", self.edition, at, self.head, columns, "")
        return Folding(str(self.folder), target).run()


def test_a_doubt_lasts_until_the_table_is_made_anew(tmp_path: Path) -> None:
    """A seed beside the rows that are in doubt does not tell what these are."""
    copy = Appended(tmp_path)
    copy.seed(ITEMS, beside=False)
    assert copy.claim(ITEMS).verdict == "certified"
    assert copy.claim(NARROW).verdict == "unknown"
    copy.seed(ITEMS, beside=True)
    assert copy.claim(ITEMS).verdict == "unknown"
    copy.seed(ITEMS, beside=False)
    claim = copy.claim(ITEMS)
    assert (claim.verdict, claim.rows) == ("certified", 1)


def test_columns_that_changed_with_a_seed_beside_the_rows(tmp_path: Path) -> None:
    """The rows before it have other digests now; where the table was made anew there are none."""
    copy = Appended(tmp_path)
    copy.seed(NOTED, beside=False)
    assert copy.claim(NOTED).verdict == "certified"
    copy.seed(ITEMS, beside=True)
    assert copy.claim(ITEMS).verdict == "unknown"
    copy.seed(ITEMS, beside=False)
    assert copy.claim(ITEMS).verdict == "certified"


def test_a_folding_that_breaks_is_unknown_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it raises: its claim says so, by the class alone."""

    def broken(self: Folding) -> Claim:
        raise duckdb.OutOfMemoryException("a value")

    target = Target("main.t", "acme", "append", 1, "", "00", "[]", "")
    monkeypatch.setattr(Folding, "run", broken)
    claim = folded(Folding(str(tmp_path), target))
    assert claim.verdict == "unknown"
    assert "OutOfMemoryException" in claim.reason
    assert "value" not in claim.reason


def test_an_append_table_made_anew_is_found(tmp_path: Path) -> None:
    """That it is gone, or of other settings, is known to the sink's transaction alone: the segment that was
    written before it is found by either head."""
    copy = Appended(tmp_path)
    copy.seed(ITEMS, beside=False)
    copy.seed(ITEMS, beside=True)
    folder = copy_folder(tmp_path, sink="acme", table="main.t")
    beside = read_segment(folder, copy.head)
    assert beside is not None
    copy.head = chained("", str(beside.header))
    claim = copy.claim(ITEMS)
    assert (claim.verdict, claim.rows) == ("certified", 1)


@pytest.mark.parametrize("error", [duckdb.IOException, duckdb.OutOfMemoryException])
def test_a_ledger_is_there_after_whatever_hindered_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """A full disk, too little memory: the claim is unknown, its segments are told, the ledger stays."""
    copy = Appended(tmp_path)
    copy.seed(ITEMS, beside=False)
    copy.claim(ITEMS)
    path = ledger_path(tmp_path, sink="acme", table="main.t")
    before = path.read_bytes()
    copy.seed(ITEMS, beside=True)

    def full(*_: object) -> None:
        raise error("no space left, with a value")

    with monkeypatch.context() as context:
        context.setattr(Ledger, "fold", full)
        claim = copy.claim(ITEMS)
    assert (claim.verdict, claim.untold, len(claim.segments)) == ("unknown", False, 2)
    assert "value" not in claim.reason
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    copy_folder(tmp_path, sink="acme", table="main.t").joinpath(f"{claim_head(claim)}.parquet").unlink()
    told = copy.claim(ITEMS)
    assert (told.verdict, told.untold) == ("unknown", True)


def claim_head(claim: Claim) -> str:
    return Path(claim.segments[0]["files"][0]).stem


def test_a_ledger_that_is_hurt_is_made_again(tmp_path: Path) -> None:
    """Of the evidence, if that is whole; its write-ahead log goes with it."""
    copy = Appended(tmp_path)
    copy.seed(ITEMS, beside=False)
    copy.claim(ITEMS)
    path = ledger_path(tmp_path, sink="acme", table="main.t")
    path.write_bytes(path.read_bytes()[:5000] + bytes(5000))
    path.with_name(f"{path.name}.wal").write_bytes(b"of another file")
    assert copy.claim(ITEMS).verdict == "certified"
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert copy.claim(ITEMS).verdict == "certified"


def test_a_segment_that_names_no_head_before_it_is_none(tmp_path: Path) -> None:
    """Whatever somebody wrote there."""
    copy = Appended(tmp_path)
    copy.seed(ITEMS, beside=False)
    folder = copy_folder(tmp_path, sink="acme", table="main.t")
    path = folder / f"{copy.head}.parquet"
    table = pq.read_table(path)
    told = {**(table.schema.metadata or {}), b"truecut.previous": b"no head"}
    pq.write_table(table.replace_schema_metadata(told), path)
    assert read_segment(folder, copy.head) is None


@pytest.mark.parametrize("sink", ["-acme", ".acme", "acme"])
def test_folders_have_names_that_verifiers_take(tmp_path: Path, sink: str) -> None:
    """Whatever the sink is called."""
    name = copy_folder(tmp_path, sink=sink, table="main.t").name
    assert name[0] in "_a"
    assert name.strip("_").startswith(("-acme", ".acme", "acme"))


def test_digests_do_not_depend_on_the_order_of_key_columns() -> None:
    """Neither those of evidence nor those of what verification reads: the pipeline file may name the columns
    of a key in any order without another copy being made."""
    keyed, read = Keyed(bytes(16)), rows([(4, 1, 1, "a"), (4, 1, 2, "b")])
    keys = (("id", "value"), ("value", "id"))
    events = [Events(keyed, "scope", "mirror", key, ITEMS, 1).of(read) for key in keys]
    assert events[0].equals(events[1])
    found = [
        scope_of("s", "main.t", ITEMS.columns, key=key, mode="mirror").digest(keyed, read) for key in keys
    ]
    assert found[0].keys.tolist() == found[1].keys.tolist()
    assert found[0].sums.tolist() == found[1].sums.tolist()
