"""Pieces that cannot be read a second time, when keys are looked for: told as data, never a failed job."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from truecut.certificate.digest import Keyed, Rows
from truecut.errors import Fault, TruecutError
from truecut.spark.comparison import _FAULT, _chosen, _keys

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
