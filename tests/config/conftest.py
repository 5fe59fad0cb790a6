from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.pipelines import TENANTS, Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty folder but for the tenants' file."""
    folder = Folder(tmp_path)
    folder.write("tenants.csv", TENANTS)
    return folder
