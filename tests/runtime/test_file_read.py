"""What a runner does with a file that was changed: the parts that hear of it, and a file that is no good."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from tests.e2e.world import tenants_document
from tests.runtime.quiet import StillSource
from tests.runtime.test_bulletin import AtOnce
from tests.runtime.test_joining_tables import FOUND, lake, written
from truecut.certificate.folding import Claim, Folding
from truecut.config.beginning import FoundTable
from truecut.config.load import load
from truecut.config.settings import Pipeline, copy_fingerprint
from truecut.model.cursor import CopyState, Cursor
from truecut.model.order import Receipt
from truecut.model.position import Position
from truecut.model.table import Column
from truecut.runtime.control import ControlStore, open_control
from truecut.runtime.pipeline_file import PipelineFile
from truecut.runtime.runner import Runner
from truecut.runtime.settled_tables import settle
from truecut.runtime.trace import Trace
from truecut.runtime.until import Until

T = "main.events"


class FoldingJobs:
    """Finds nothing wrong."""

    def of(self, pipeline: Pipeline) -> FoldingJobs:
        return self

    def fold(self, foldings: Sequence[Folding]) -> list[Claim]:
        return [Claim("certified", "", 0, bytes(32), ()) for _ in foldings]


def runner_of(began: Pipeline, running: Pipeline, control: ControlStore) -> Runner:
    """That does not run: it is told what a loop would tell it."""
    return Runner(
        running,
        name="r",
        jobs=cast(Any, FoldingJobs()),
        open_source=lambda _: cast(Any, StillSource()),
        control=control,
        trace=Trace(None),
        until=Until(),
        file=PipelineFile(began, os.environ),
        background=cast(Any, AtOnce()),
    )


def test_a_file_that_only_the_source_shows_to_be_wrong_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two tables would have one name at a sink: it is told, and the run goes on as it was."""
    found = [*FOUND, FoundTable("s3", "t", (), ("id",))]
    began = written(tmp_path, lake("a"))
    good = written(tmp_path, lake("a"), lake("b"))
    one_schema = {"name": "pg", "type": "postgres", "dsn": "host=sink dbname=d", "schema": "one"}
    wrong = written(tmp_path, lake("a"), one_schema)
    with closing(open_control(began.control, pipeline=began.name)) as control:
        runner = runner_of(began, settle(began, found), control)
        for file in (good, wrong):
            runner._file_read(file)
        assert [sink.name for sink in runner.taken.sinks] == ["a", "b"]
    assert [record.__dict__["facts"].code for record in caplog.records if record.levelname != "INFO"] == [
        "TC1093"
    ]


def shown(pipeline: Pipeline, sink: str, place: int) -> Receipt:
    (settings,) = [one for one in pipeline.sinks if one.name == sink]
    copy = CopyState(
        "mirror",
        "1",
        (Column(1, "id", "INTEGER"),),
        fingerprint=copy_fingerprint(pipeline.tables[0], settings),
        at=Position(1, place),
        edition=1,
        source_identity="source",
    )
    return Receipt(sink, 1, "applied", cursor=Cursor(Position(1, place), 1, {T: copy}))


def test_certificates_are_of_the_sinks_that_the_file_has_now(tmp_path: Path) -> None:
    """One that came is certified, one that went no longer claimed; put back, it is claimed by what it shows
    then, not by what it had shown before."""

    def saved(*tenants: str) -> Pipeline:
        document = tenants_document(tenants=list(tenants), certificate={})
        (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(document))
        return load(tmp_path / "pipeline.yaml", environ=os.environ)

    began = saved("t0", "t1")
    began.state.mkdir(parents=True)
    with closing(open_control(began.control, pipeline=began.name)) as control:
        runner = runner_of(began, began, control)
        certifier = runner._certifier
        assert certifier is not None

        every = saved("t0", "t1", "t2")

        def claimed(**places: int) -> dict[str, int]:
            runner._shown([shown(every, sink, place) for sink, place in places.items()])
            certifier.tend(often_ms=0)
            certifier._times.at_once("certificate")
            return {sink: Position.parse(row["at"]).place for (_, sink), row in certifier.last.copies.items()}

        assert claimed(t0=1, t1=1) == {"t0": 1, "t1": 1}
        runner._file_read(saved("t0", "t2"))
        assert claimed(t0=2, t1=3, t2=2) == {"t0": 2, "t2": 2}
        runner._file_read(every)
        assert claimed(t0=4) == {"t0": 4, "t2": 2}
        assert claimed(t1=5) == {"t0": 4, "t1": 5, "t2": 2}
