"""What is said to whoever slips: where it was looked, what was expected, and nothing that is not so."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml

from tests.cli.inside import call
from tests.e2e.world import World, tenants_document
from truecut.config.load import load
from truecut.lake import connect

CREATE = "CREATE TABLE lake.main.events (id INTEGER, tenant VARCHAR, v INTEGER)"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lake whose catalog has its folder from where its maker stood; we stand in another one."""
    lake = tmp_path / "lake"
    lake.mkdir()
    monkeypatch.chdir(lake)
    with connect() as owner:
        owner.execute("ATTACH 'ducklake:source.db' AS lake (DATA_PATH 'files', DATA_INLINING_ROW_LIMIT 0)")
        owner.execute("CREATE TABLE lake.main.events AS SELECT i AS id, 't0' AS tenant FROM range(20) r(i)")
    return lake


def _file(folder: Path) -> Path:
    document = tenants_document(tenants=["t0"], source=str(folder / "source.db"))
    del document["spec"]["source"]["data_path"]
    file = folder.parent / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def test_a_folder_that_depends_on_where_one_stands_is_named(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`doctor` and `run` name the folder that was looked in; from the maker's folder it is a warning."""
    file = _file(elsewhere)
    near = call("doctor", file)
    assert (near.code, "TC2026" in near.stdout) == (0, True)
    monkeypatch.chdir(elsewhere.parent)
    far = call("doctor", file)
    ran = call("run", file, "--until-caught-up")
    for answer, said in ((far, far.stdout), (ran, ran.stderr)):
        assert answer.code == 3
        assert "TC2025" in said
        assert f"looked for in {elsewhere.parent / 'files'}" in said


def test_init_writes_such_a_folder_out(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the file can be used from anywhere."""
    assert call("init", "--dsn", "source.db", "--output", "../p.yaml").code == 0
    monkeypatch.chdir(os.sep)
    address = load(elsewhere.parent / "p.yaml", environ={}).source.address
    assert address.data_folder() == elsewhere / "files"


def test_a_position_may_be_given_as_the_source_has_it(tmp_path: Path) -> None:
    """A snapshot's number is a position; anything else says what is expected."""
    world = World(tmp_path, None, tenants_document(tenants=["t0"]))
    world.source(CREATE)
    file = world.save()
    for text in ("5x", "-1", "0/16B3"):
        refused = call("run", file, f"--until-position={text}")
        assert refused.code == 2
        assert "expected a snapshot's number, or a position such as" in refused.stderr
    from truecut.cli.run import _position

    assert str(_position(world.pipeline(), "258")) == "00000001-0000000000000102"


def test_folders_that_cannot_be_written_are_not_full_disks(tmp_path: Path) -> None:
    """Their room means nothing."""
    (tmp_path / "blocked").write_text("a file where a folder should be")
    document = tenants_document(tenants=["t0"], catalog="blocked/{tenant}.db", state="blocked/state")
    document["spec"]["sinks"][0]["data_path"] = "blocked/data"
    world = World(tmp_path, None, document)
    world.source(CREATE)
    said = call("doctor", world.save()).stdout
    assert "disk space: not looked at: no folder can be written to" in said
    assert "0 MiB" not in said


def test_a_file_system_that_tells_no_size_is_not_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `/proc` and some network disks are: nothing in all is no figure."""
    world = World(tmp_path, None, tenants_document(tenants=["t0"]))
    world.source(CREATE)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(0, 0, 0))
    told = call("doctor", world.save())
    assert (told.code, "0 MiB" in told.stdout) == (0, False)
    assert "disk space: not looked at: no disk tells how much it has" in told.stdout


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_state_folder_that_refuses_a_request_is_named(command: str, tmp_path: Path) -> None:
    """It is no bug: the environment is not fit, and nothing is said to be paused."""
    (tmp_path / "blocked").write_text("a file where a folder should be")
    world = World(tmp_path, None, tenants_document(tenants=["t0"], state="blocked/state"))
    world.source(CREATE)
    told = call(command, world.save(), "--table", "main.events")
    assert (told.code, told.stdout) == (3, "")
    assert f"TC5012 the state folder {tmp_path / 'blocked/state'} cannot be made or written to" in told.stderr
