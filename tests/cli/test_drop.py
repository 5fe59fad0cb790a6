"""`truecut drop` takes away what Truecut made, by name, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.certificate.test_retention import Chain
from tests.cli.inside import call
from tests.e2e.world import World, tenants_document
from truecut.certificate import durable
from truecut.certificate.sign import signer
from truecut.runtime.control import open_control
from truecut.runtime.pauses import pause, resume

LEFT = "acme.main.t-0123456789ab.again"  # a ledger that was to take the place of another one
BESIDE_CERTIFICATES = (
    "notes.txt",
    "copies/2024.parquet",
    "evidence/photos/1.jpg",
    "evidence/photos-2024/1.jpg",
    "ledgers/sales.duckdb",
    "secret.txt",
    "1.json",
)
USERS = ("notes.txt", "pause/reminder", "spark-warehouse/mine/data", "spark.log.1", "deep/control.db")


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path, None, tenants_document(tenants=["t0"], state="./state"))
    world.save()
    return world


def _use(world: World) -> Path:
    """Everything that runs and commands leave in the state folder."""
    pipeline = world.pipeline()
    store = open_control(pipeline.control, pipeline=pipeline.name)
    store.claim("a", ["t0"], duration_ms=1000, count_max=1)
    store.leave("a")
    store.close()
    for table in (None, "main.events"):
        pause(pipeline.state, table=table)
    pause(pipeline.state, sink="t 0/*")
    resume(pipeline.state, table="main.other")
    (pipeline.state / "spark-warehouse").mkdir()
    (pipeline.state / "spark.log").write_text("hello")
    return pipeline.state


def _files(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_all_of_ours_goes(world: World) -> None:
    """A folder that holds nothing else goes, too."""
    state = _use(world)
    answer = call("drop", world.file)
    assert answer.code == 0, answer.stderr
    assert not state.exists()
    assert "kept" not in answer.stdout


def test_what_is_not_ours_stays_and_is_named(world: World) -> None:
    """Files of users, also in folders of ours and with names like ours."""
    state = _use(world)
    for name in USERS:
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_text(f"the user's {name}")
    answer = call("drop", world.file)
    assert answer.code == 0, answer.stderr
    assert _files(state) == {name: f"the user's {name}" for name in USERS}
    assert f"kept in {state}: deep, notes.txt, pause, spark-warehouse, spark.log.1" in answer.stdout


def test_a_folder_in_the_place_of_a_request_stays(world: World) -> None:
    """Truecut makes files there."""
    state = _use(world)
    (state / "pause/table=mine").mkdir()
    (state / "pause/table=mine/notes").write_text("mine")
    assert call("drop", world.file).code == 0
    assert _files(state) == {"pause/table=mine/notes": "mine"}


def _certify(folder: Path) -> None:
    """A certificate with its evidence and keys, and what was in the making when a run was killed."""
    signer(folder)
    chain = Chain(folder)
    chain.days(2)
    assert chain.pieces()  # of a base that several tasks have written
    shutil.copy(next((folder / "ledgers").iterdir()), folder / "ledgers" / LEFT)
    for where in (folder, folder / "copies", *(folder / "evidence").iterdir()):
        durable.unfinished(where).write_text("half")


def test_certificates_go_and_what_is_beside_them_stays(world: World) -> None:
    """Users name their folder, which may hold folders and files of their own; empty, it goes, too. Only for
    whoever asks: they are proof, and a cursor at a sink names the last of them."""
    world.document["spec"]["certificate"] = {"path": "./proof"}
    world.save()
    proof = world.folder / "proof"
    proof.mkdir()
    _certify(proof)
    for name in BESIDE_CERTIFICATES:
        (proof / name).parent.mkdir(parents=True, exist_ok=True)
        (proof / name).write_text(f"the user's {name}")
    everything = {path: path.read_bytes() for path in proof.rglob("*") if path.is_file()}
    answer = call("drop", world.file)
    assert answer.code == 0
    assert f"kept the certificates in {proof}" in answer.stdout
    assert {path: path.read_bytes() for path in proof.rglob("*") if path.is_file()} == everything
    assert call("drop", world.file, "--certificates").code == 0
    assert _files(proof) == {name: f"the user's {name}" for name in BESIDE_CERTIFICATES}
    shutil.rmtree(proof)
    proof.mkdir()
    _certify(proof)
    assert "kept" not in call("drop", world.file, "--certificates").stdout
    assert not proof.exists()


def test_links_are_not_followed(world: World) -> None:
    """What a link in the folder leads to is somebody's own."""
    state = _use(world)
    elsewhere = world.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "all").write_text("mine")
    (elsewhere / "log").write_text("mine, too")
    for path in (state / "pause").iterdir():
        path.unlink()
    (state / "pause").rmdir()
    (state / "pause").symlink_to(elsewhere)
    (state / "spark.log").unlink()
    (state / "spark.log").symlink_to(elsewhere / "log")
    assert call("drop", world.file).code == 0
    assert _files(elsewhere) == {"all": "mine", "log": "mine, too"}


def test_a_store_that_another_pipeline_uses_stays(world: World) -> None:
    """Only this pipeline is forgotten in it."""
    pipeline = world.pipeline()
    other = open_control(pipeline.control, pipeline="other")
    other.report_sinks({"s": {"state": "current"}})
    other.close()
    _use(world)
    assert call("drop", world.file).code == 0
    again = open_control(pipeline.control, pipeline="other")
    assert again.reports().sinks == {"s": {"state": "current"}}
    again.close()


def test_nothing_is_touched_where_the_state_folder_is_the_users(world: World) -> None:
    """`state: .` once cost a user the pipeline file, the source and the sinks."""
    (world.folder / "source.db").write_text("the source")
    world.document["spec"]["state"] = "."
    world.save()
    before = _files(world.folder)
    answer = call("drop", world.file)
    assert (answer.code, "TC1069" in answer.stderr) == (2, True)
    assert _files(world.folder) == before
