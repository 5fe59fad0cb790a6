"""What a changed pipeline file means to a run that goes on, and when the file is read."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.world import tenants_document
from truecut.config.load import load
from truecut.config.settings import Pipeline
from truecut.errors import TruecutError
from truecut.runtime.pipeline_file import PipelineFile
from truecut.runtime.revision import Revision, revise

Edit = Callable[[dict[str, Any]], None]


def saved(folder: Path, document: dict[str, Any]) -> Pipeline:
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document))
    return load(file, environ=os.environ)


def revised(folder: Path, edit: Edit) -> Revision:
    document = tenants_document(tenants=["t0", "t1"])
    began = saved(folder, document)
    changed = copy.deepcopy(document)
    edit(changed["spec"])
    return revise(began, began=began, written=saved(folder, changed))


def moved(spec: dict[str, Any]) -> None:
    """t1 goes to another lake, and somebody else gets its old one."""
    new = {**spec["sinks"][1], "name": "t2", "route": "t2"}
    spec["sinks"][1]["catalog"] = "sqlite:elsewhere.db"
    spec["sinks"].append(new)


def of_a_new_table(spec: dict[str, Any]) -> None:
    """All that t2 is to have comes with the restart."""
    spec["tables"].append({"name": "main.u", "key": ["id"], "broadcast": True})
    new = {"name": "t2", "catalog": "x", "tables": [{"name": "main.u"}]}
    spec["sinks"].append({**spec["sinks"][0], **new})


@pytest.mark.parametrize(
    ("edit", "added", "removed", "restart"),
    [
        (lambda spec: None, (), (), ()),
        (
            lambda spec: spec["sinks"].append({**spec["sinks"][0], "name": "t2", "catalog": "x"}),
            ("t2",),
            (),
            (),
        ),
        (lambda spec: spec["sinks"].pop(), (), ("t1",), ()),
        (lambda spec: spec.update(batch={"interval": "3s"}), (), (), ("batch",)),
        (lambda spec: spec["sinks"][0].update(route="else"), (), (), ("sinks.t0",)),
        (
            lambda spec: spec["tables"].append({"name": "main.u", "key": ["id"], "broadcast": True}),
            (),
            (),
            ("tables",),
        ),
        (
            lambda spec: spec.update(spark={"conf": {"a.b": "1"}}, lease={"duration": "7s"}),
            (),
            (),
            ("lease", "spark"),
        ),
        (moved, (), (), ("sinks.t1", "sinks.t2")),
        (of_a_new_table, (), (), ("tables", "sinks.t2")),
    ],
)
def test_sinks_come_and_go_and_everything_else_waits_for_a_restart(
    edit: Edit, added: tuple[str, ...], removed: tuple[str, ...], restart: tuple[str, ...], tmp_path: Path
) -> None:
    """By the names in the file. A sink that is still there keeps the settings that it had; a new one never
    gets a place where another still writes."""
    revision = revised(tmp_path, edit)
    assert (revision.added, revision.removed, revision.restart) == (added, removed, restart)
    names = [sink.name for sink in revision.pipeline.sinks]
    assert names == [sink.name for sink in revision.taken.sinks]
    assert names == [*(name for name in ("t0", "t1") if name not in removed), *added]


def test_a_file_that_has_become_another_pipeline_changes_nothing(tmp_path: Path) -> None:
    """Its sinks are not taken up into this one."""
    began = saved(tmp_path, tenants_document(tenants=["t0"]))
    other = tenants_document(tenants=["t5"], source="sqlite:another.db")
    revision = revise(began, began=began, written=saved(tmp_path, other))
    assert revision == Revision(began, began, restart=("source",))


def test_a_file_is_read_when_it_has_changed_and_rested(tmp_path: Path) -> None:
    """Not while it is being written; once for each change; one that cannot be used is told once."""
    began = saved(tmp_path, document := tenants_document(tenants=["t0"]))
    file = PipelineFile(began, os.environ)
    assert file.read_again() is None, "not at first sight"
    assert file.read_again() == began, "it may have changed since it was loaded"
    assert [file.read_again() for _ in range(3)] == [None] * 3
    csv = tmp_path / "tenants.csv"
    csv.write_text("tenant\nx\n")
    document["spec"]["sinks"][0].update(
        {"name": "{tenant}", "catalog": "{tenant}.db", "data_path": "{tenant}", "route": "{tenant}"},
        for_each={"file": "tenants.csv"},
    )
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(document))
    assert file.read_again() is None
    csv.write_text("tenant\nx\ny\n")  # written at the same time, but nobody knows of it yet
    written = file.read_again()
    assert written is not None
    assert [sink.name for sink in written.sinks] == ["x", "y"]
    csv.write_text("tenant\nx\ny\nz\n")
    assert file.read_again() is None, "it may be half written"
    written = file.read_again()
    assert written is not None
    assert [sink.name for sink in written.sinks] == ["x", "y", "z"]
    csv.write_text("tenant\n")
    assert file.read_again() is None
    with pytest.raises(TruecutError, match=r"TC1161.*tenants\.csv"):
        file.read_again()
    assert [file.read_again() for _ in range(3)] == [None] * 3
    csv.write_text("tenant\nx\n")
    file.read_again()
    written = file.read_again()
    assert written is not None
    assert [sink.name for sink in written.sinks] == ["x"]


def test_what_is_saved_while_the_file_is_parsed_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was parsed is told, and at the next looks what is there now."""
    began = saved(tmp_path, tenants_document(tenants=["t0"]))
    file = PipelineFile(began, os.environ)

    def then_saved(path: Path, **given: Any) -> Pipeline:
        parsed = load(path, **given)
        (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(tenants_document(tenants=["t0", "t1"])))
        return parsed

    assert file.read_again() is None
    with monkeypatch.context() as patched:
        patched.setattr("truecut.runtime.pipeline_file.load", then_saved)
        assert file.read_again() == began
    written = [file.read_again() for _ in range(4)]
    assert [[sink.name for sink in one.sinks] for one in written if one is not None] == [["t0", "t1"]]


def test_a_file_that_comes_after_the_one_that_names_it_is_seen(tmp_path: Path) -> None:
    """Which was told once as unusable meanwhile."""
    began = saved(tmp_path, document := tenants_document(tenants=["t0"]))
    file = PipelineFile(began, os.environ)
    document["spec"]["sinks"][0].update(
        {"name": "{tenant}", "catalog": "{tenant}.db", "data_path": "{tenant}", "route": "{tenant}"},
        for_each={"file": "tenants.csv"},
    )
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(document))
    assert file.read_again() is None
    with pytest.raises(TruecutError, match=r"TC1161.*tenants\.csv"):
        file.read_again()
    assert [file.read_again() for _ in range(3)] == [None] * 3
    (tmp_path / "tenants.csv").write_text("tenant\nx\n")
    written = [file.read_again() for _ in range(5)]
    assert [[sink.name for sink in one.sinks] for one in written if one is not None] == [["x"]]
