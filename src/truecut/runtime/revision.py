"""What a pipeline file that was changed means to a run that goes on. Pure.

Sinks come and go: one that the file names now is taken up, one that it no longer names is retired. Whatever
else was changed waits for a restart, and is named. A file that has become another pipeline (another name,
source or state) changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace

from truecut.config.beginning import FoundTable
from truecut.config.settings import Pipeline, SinkSettings
from truecut.runtime.settled_tables import settle

_ANOTHER = ("metadata.name", "source", "control", "state", "journal")
_NAMES = {"name": "metadata.name", "lease_ms": "lease", "path": "", "sinks": "", "files": "", "source": ""}


@dataclass(frozen=True, slots=True)
class Revision:
    """What to run from now on, and what the file says that waits for a restart, by the names in the file.
    `taken`: the file as far as it is carried out, not settled; its sinks are those of the pipeline."""

    pipeline: Pipeline
    taken: Pipeline
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()


def revise(running: Pipeline, *, began: Pipeline, written: Pipeline) -> Revision:
    """`began`: the file as the run began, with the sinks that it has taken up since and without those that it
    has retired; `written`: as it is now. Neither is settled."""
    restart = tuple(_differences(began, written))
    if any(name in _ANOTHER for name in restart):
        return Revision(running, began, restart=restart)
    meant = replace(began, sinks=tuple(_with_known_tables(began, written)), files=written.files)
    now = {sink.name: sink for sink in with_sinks_of(meant, running).sinks}
    kept = [sink for sink in running.sinks if sink.name in now]
    known = {sink.name for sink in running.sinks}
    new = [sink for sink in now.values() if sink.name not in known]
    changed = [sink.name for sink in kept if now[sink.name] != sink]
    added, apart = _able_to_begin(kept, new)
    return Revision(
        replace(running, sinks=(*kept, *added)),
        replace(meant, sinks=(*_named(kept, began), *_named(added, meant))),
        tuple(sink.name for sink in added),
        tuple(sink.name for sink in running.sinks if sink.name not in now),
        (*restart, *(f"sinks.{name}" for name in (*changed, *apart))),
    )


def _differences(began: Pipeline, written: Pipeline) -> Iterator[str]:
    """Settings that differ, but for the sinks, by their names in the file."""
    for field in fields(Pipeline):
        name = _NAMES.get(field.name, field.name)
        if name and getattr(began, field.name) != getattr(written, field.name):
            yield name
    if began.source.journal != written.source.journal:
        yield "journal"
    before, after = (
        replace(one.source, journal=None, tables=(), pipeline="", units=None, witness=None)
        for one in (began, written)
    )
    if began.source.witness != written.source.witness and began.certificate == written.certificate:
        yield "certificate"
    if before != after:
        yield "source"


def with_sinks_of(file: Pipeline, running: Pipeline) -> Pipeline:
    """What runs, with the sinks of a file that is not settled: they get the tables that run."""
    found = [FoundTable(t.name.schema, t.name.table, (), t.key) for t in running.tables]
    return replace(running, sinks=settle(file, found).sinks)


def _with_known_tables(began: Pipeline, written: Pipeline) -> Iterator[SinkSettings]:
    """The sinks of the file, with the tables that it had when the run began: others wait for a restart."""
    meant = {str(table.name) for table in began.tables}
    for sink in written.sinks:
        yield replace(sink, modes={table: mode for table, mode in sink.modes.items() if table in meant})


def _named(sinks: Iterable[SinkSettings], file: Pipeline) -> Iterator[SinkSettings]:
    """These, as the file has them."""
    known = {sink.name: sink for sink in file.sinks}
    return (known[sink.name] for sink in sinks)


def _able_to_begin(kept: list[SinkSettings], new: list[SinkSettings]) -> tuple[list[SinkSettings], list[str]]:
    """A new sink where another still writes, which the file has moved: both wait for the restart. So does
    one that has none of the tables that run."""
    folders: dict[str, str] = {}
    occupied = {sink.address.identity(folders) for sink in kept}
    apart = [sink.name for sink in new if not sink.modes or sink.address.identity(folders) in occupied]
    return [sink for sink in new if sink.name not in apart], apart


def told(reports: Mapping[str, Mapping[str, object]]) -> list[str]:
    """What live runners say of themselves that a restart would apply, each once."""
    found: dict[str, None] = {}
    for report in reports.values():
        names = report.get("restart")
        found |= dict.fromkeys(str(name) for name in names) if isinstance(names, list) else {}
    return list(found)
