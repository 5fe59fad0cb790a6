"""Pieces that cannot be read a second time, when keys are looked for: told as data, never a failed job."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from truecut.certificate.digest import Keyed, Rows
from truecut.errors import Fault, TruecutError
from truecut.spark.comparison import _FAULT, _chosen, _keys, differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYED = Keyed(bytes(16))


@dataclass(frozen=True)
class Gone:
    """A piece whose snapshot has ended in the meantime."""

    error: Exception
    sides: tuple[int, ...] = (0, 1)

    def digests(self, keyed: Keyed) -> Iterator[tuple[int, Rows]]:
        yield 0, Rows(np.zeros((2, 16), np.uint8), np.zeros((2, 4), np.uint64))
        raise self.error

    def keys(self, keyed: Keyed, wanted: Collection[bytes]) -> Iterator[tuple[bytes, dict[str, Any]]]:
        yield bytes(16), {"id": 1}
        raise self.error

    def repairs(
        self, keyed: Keyed, wanted: Collection[bytes], *, place: int
    ) -> Iterator[tuple[int, pa.Table]]:
        yield 0, pa.table({"id": [1]})
        raise self.error


@pytest.mark.parametrize(
    ("error", "code"),
    [(TruecutError("TC4042", "ended", fix="Verify again."), "TC4042"), (KeyError("a value"), "TC7051")],
)
def test_a_piece_that_cannot_be_read_again_says_so(error: Exception, code: str) -> None:
    """After the rows that it had: a row of no side and of no bucket, with the fault."""
    *before, last = _chosen(Gone(error), KEYED, np.ones(1 << 12, np.bool_), (0, 1))
    assert [batch.num_rows for batch in before] == [2]
    assert (last.column("side").to_pylist(), last.column("bucket").to_pylist()) == ([-1], [_FAULT])
    fault = pickle.loads(last.column("key")[0].as_py())
    assert isinstance(fault, Fault)
    assert fault.code == code
    assert "value" not in fault.message
    (named,) = _keys(Gone(error), KEYED, [bytes(16)])
    assert pickle.loads(named.column("payload")[0].as_py()) == {}


@dataclass(frozen=True)
class Counted:
    """A side with a row for each of some numbers, that tells when it is read."""

    side: int
    numbers: tuple[int, ...]
    folder: Path
    error: str = ""

    @property
    def sides(self) -> tuple[int, ...]:
        return (self.side,)

    def digests(self, keyed: Keyed) -> Iterator[tuple[int, Rows]]:
        (self.folder / f"{self.side}-{uuid.uuid4()}").touch()
        keys = np.array([[0] * 15 + [abs(number)] for number in self.numbers], np.uint8)
        yield (
            self.side,
            Rows(keys, np.array([[number & 0xFF, 0, 0, 0] for number in self.numbers], np.uint64)),
        )
        if self.error:
            raise TruecutError("TC4042", self.error, fix="Verify again.")

    keys, repairs = Gone.keys, Gone.repairs  # nobody asks


@pytest.mark.parametrize(("limit", "reads"), [(100, 1), (3, 2)])
def test_keys_that_differ_are_found_in_one_reading(
    spark: SparkSession, tmp_path: Path, limit: int, reads: int
) -> None:
    """A second one is made only where not all of them are asked for, and they still have to be counted."""
    pieces = [Counted(0, (1, 2, 3, 4), tmp_path), Counted(1, (1, -2, 4, 4, 4, 9), tmp_path)]
    sides: dict[str, Any] = {"expected": 0, "found": 1, "buckets": range(1 << 12), "rows": 10}
    difference, odd = differences(spark, pieces, KEYED, limit=limit, **sides)
    assert (difference.missing, difference.extra, difference.differs) == (1, 3, 1)
    told = [(one.key[-1], one.at_sink) for one in odd]
    assert told == [(2, "differs"), (3, "missing"), (4, "extra"), (9, "extra")][:limit]
    assert len(list(tmp_path.iterdir())) == 2 * reads


@pytest.mark.parametrize("limit", [100, 2])
def test_a_piece_that_is_gone_by_the_second_reading_is_no_difference(
    spark: SparkSession, tmp_path: Path, limit: int
) -> None:
    """Nobody can say then."""
    pieces = [Counted(0, (1, 2, 3), tmp_path), Counted(1, (1, 5, 6), tmp_path, error="ended")]
    sides: dict[str, Any] = {"expected": 0, "found": 1, "buckets": range(1 << 12), "rows": 10}
    with pytest.raises(TruecutError, match="TC4042"):
        differences(spark, pieces, KEYED, limit=limit, **sides)
