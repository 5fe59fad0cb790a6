"""Tables that come while it runs: what the loops go on with, whatever became of the sinks meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from tests.patience import PATIENCE_S
from tests.sources.postgres.piped import pipeline_document
from truecut.cli.one_run import Run
from truecut.config.beginning import FoundTable
from truecut.config.load import load
from truecut.config.settings import Pipeline
from truecut.errors import TruecutError
from truecut.runtime import joining_tables
from truecut.runtime.joining_tables import Joined, with_joined
from truecut.runtime.revision import revise
from truecut.runtime.settled_tables import settle
from truecut.runtime.until import Until

FOUND = [FoundTable("s1", "t", (), ("id",)), FoundTable("s2", "u", (), ("id",))]
COME = FoundTable("s1", "u", (), ("id",))


def lake(name: str, *, catalog: str | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "type": "ducklake",
        "catalog": f"sqlite:{catalog or name}.db",
        "data_path": f"{name}-data",
    }


def written(folder: Path, *sinks: dict[str, Any], **spec: Any) -> Pipeline:
    document = pipeline_document("shop", "host=source dbname=d", [{"name": "*.*"}], sinks=list(sinks))
    document["spec"].update(spec)
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document))
    return load(file, environ=os.environ)


@dataclass
class Loop:
    """What a runner and its watch leave behind when tables have come."""

    taken: Pipeline
    joined: Joined | None = None


def following(began: Pipeline, *edits: Pipeline, late: tuple[Pipeline, ...] = ()) -> Run:
    """The run that follows one that has carried out these edits, the late ones after the tables had come."""
    running, loop = settle(began, FOUND), Loop(began)
    for edit in edits:
        revision = revise(running, began=loop.taken, written=edit)
        running, loop.taken = revision.pipeline, revision.taken
    loop.joined = with_joined(loop.taken, running, [*FOUND, COME])
    for edit in late:
        loop.taken = revise(running, began=loop.taken, written=edit).taken
    no: Any = None
    before = Run(settle(began, FOUND), Until(), True, no, no, no, 0.0, began)
    found = before._following(cast(Any, loop), cast(Any, loop))
    assert found is not None
    return found


def test_sinks_that_came_and_went_stay_as_they_are_when_tables_come(tmp_path: Path) -> None:
    """Whether the file was changed before the tables came or just then; the new tables are at all of them. A
    sink that was put back elsewhere stays there. `--accept` was for what there was."""
    first, second = lake("a"), lake("old")
    began = written(tmp_path, first, second)
    swapped = written(tmp_path, first, lake("new"))
    for edits, late in (([swapped], ()), ([], (swapped,))):
        found = following(began, *edits, late=late)
        assert [sink.name for sink in found.pipeline.sinks] == ["a", "new"]
        assert {frozenset(sink.modes) for sink in found.pipeline.sinks} == {
            frozenset({"s1.t", "s1.u", "s2.u"})
        }
        assert found.written is not None
        assert [table.is_pattern for table in found.written.tables] == [True]
        assert [sink.name for sink in found.written.sinks] == ["a", "new"]
        assert not found.accept
    moved = lake("old", catalog="elsewhere")
    found = following(began, written(tmp_path, first), moved_file := written(tmp_path, first, moved))
    assert found.pipeline.sinks[1].address == moved_file.sinks[1].address != began.sinks[1].address


def test_a_table_that_is_gone_stays_and_all_stay_as_they_were(tmp_path: Path) -> None:
    """What the source says of other tables when some have come does not matter to them."""
    began = written(tmp_path, lake("a"))
    running = settle(began, FOUND)
    other_key = FoundTable("s1", "t", (), ("other",))
    joined = with_joined(began, running, [other_key, COME])
    assert joined is not None
    tables = {str(table.name): table.key for table in joined.pipeline.tables}
    assert tables == {"s1.t": ("id",), "s1.u": ("id",), "s2.u": ("id",)}
    assert joined.pipeline.source.tables == joined.pipeline.tables
    assert with_joined(began, running, [other_key]) is None


def test_a_file_that_has_become_another_pipeline_leaves_the_sinks_that_it_had(tmp_path: Path) -> None:
    """Those of its last good state, not those with which the run began."""
    began = written(tmp_path, lake("a"), lake("old"))
    edits = written(tmp_path, lake("a"), lake("new")), written(tmp_path, lake("a"), state="elsewhere")
    assert [sink.name for sink in following(began, *edits).pipeline.sinks] == ["a", "new"]


def test_a_sink_that_cannot_have_the_new_tables_waits(tmp_path: Path) -> None:
    """Two of them would have one name there. Taken up before the tables came, it keeps them out; taken up
    just then, it is left out, and the next loop says why when it reads the file."""
    one_schema = {"name": "pg", "type": "postgres", "dsn": "host=sink dbname=d", "schema": "one"}
    began = written(tmp_path, lake("a"))
    edit = written(tmp_path, lake("a"), one_schema)
    with pytest.raises(TruecutError, match="TC1093"):
        following(began, edit)
    found = following(began, late=(edit,))
    assert [sink.name for sink in found.pipeline.sinks] == ["a"]
    with pytest.raises(TruecutError, match="TC1093"):
        revise(found.pipeline, began=cast(Pipeline, found.written), written=edit)


def test_whatever_goes_wrong_the_source_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What nobody has thought of is told once, by its kind alone; then the tables that have come are seen."""
    began = written(tmp_path, lake("a"))
    answers: Iterator[Any] = iter([ValueError("secret"), ValueError("secret"), [*FOUND, COME]])

    def tables(_: object) -> Any:
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    monkeypatch.setattr(joining_tables, "LOOK_S", 0.001)
    monkeypatch.setattr(joining_tables, "SOURCES", {"postgres": SimpleNamespace(tables=tables)})
    seen = threading.Event()
    watch = joining_tables.TableWatch(lambda: began, settle(began, FOUND), seen.set)
    assert seen.wait(PATIENCE_S)
    watch.close()
    assert watch.joined is not None
    said = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 1
    assert "ValueError" in said[0]
    assert "secret" not in caplog.text
