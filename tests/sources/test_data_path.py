"""A catalog whose data path was written down relative to its maker's folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from truecut.lake import connect, parse_address
from truecut.model.table import TableName
from truecut.sources.contract import TableRead
from truecut.sources.ducklake.source import DuckLakeSource


@pytest.mark.parametrize("prefix", ["", "sqlite:"])
def test_a_relative_data_path_is_read_from_anywhere(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`data_path` of the pipeline file says where the files are, whatever the catalog says."""
    lake = tmp_path / "lake"
    lake.mkdir()
    monkeypatch.chdir(lake)
    owner = connect()
    owner.execute(
        f"ATTACH 'ducklake:{prefix}source.db' AS lake (DATA_PATH 'files', DATA_INLINING_ROW_LIMIT 0)"
    )
    owner.execute("CREATE TABLE lake.main.t AS SELECT i AS id FROM range(20) r(i)")
    owner.close()
    monkeypatch.chdir(os.sep)
    source = DuckLakeSource(parse_address(f"{prefix}source.db", "files", base=lake), generation=1)
    window = source.plan_seed(
        [TableRead(TableName("main", "t"), ("id",), None)], at=source.observe().head, parallelism=1
    )
    batches = [batch for task in window.tasks for _, batch in task.read()]
    assert sorted(i for batch in batches for i in batch.column("id").to_pylist()) == list(range(20))
