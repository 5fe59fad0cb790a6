"""Where the state folder may not be: around the pipeline file, a source or a sink."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath

from truecut.config import rules
from truecut.config.finding import show
from truecut.config.report import Problem
from truecut.config.settings import SinkSettings, SourceSettings
from truecut.config.sinks import Place

STATE = ("spec", "state")


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The folder, and whether the file names it (else it is the default one)."""

    path: FilePath
    named: bool
    base: FilePath  # the pipeline file's folder

    def problems(
        self, source: SourceSettings, sinks: Sequence[tuple[SinkSettings, Place]]
    ) -> Iterator[Problem]:
        """One for the folder that the file names; without a name, one for each thing that is in the way."""
        ours = os.path.realpath(self.path)
        found = self._in_the_way(ours, source, sinks)
        if self.named:
            first = next(found, None)
            if first is not None:
                message = f"is or holds {first[0]}; name a folder that holds nothing else"
                yield Problem(rules.STATE_FOLDER, STATE, message)
            return
        for _, short, place in found:
            message = f"{short} lies in the state folder {os.path.relpath(self.path, self.base)}; "
            yield place.problem(rules.STATE_FOLDER, message + "put it elsewhere, or name another `state`")

    def _in_the_way(
        self, ours: str, source: SourceSettings, sinks: Sequence[tuple[SinkSettings, Place]]
    ) -> Iterator[tuple[str, str, Place]]:
        """(what, in a sentence about the folder; what, in one about its place; that place)."""
        if _holds(ours, str(self.base)):
            yield "the folder of the pipeline file", "the pipeline file", Place(())
        for what, path in source.address.places():
            if _holds(ours, path):
                yield f"the source's {what}", f"its {what}", Place(("spec", "source", what))
        for sink, place in sinks:
            for what, path in sink.address.places():
                if _holds(ours, path):
                    whose = "a sink" if place.name is None else f"the sink {show(place.name)}"
                    yield f"the {what} of {whose}", f"its {what}", place


def _holds(folder: str, path: str) -> bool:
    """Whether the path is the folder or lies in it, links followed."""
    real = os.path.realpath(path)
    return real == folder or real.startswith(folder.rstrip(os.sep) + os.sep)
