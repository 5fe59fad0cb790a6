"""The tables that a pipeline means, where its file leaves it to the source: wildcards, and keys.

Asks the source once. An exact name beats a wildcard, and the first of two wildcards the second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from truecut.config.beginning import FoundTable
from truecut.config.kinds import SINKS, SOURCES
from truecut.config.settings import Pipeline, SinkSettings, TableSettings
from truecut.errors import ExitCode, Fault, Retry, TruecutError
from truecut.model.table import Mode, TableName

PAUSE_S = 1.0


def settled(pipeline: Pipeline) -> Pipeline:
    """With every table by its name, and with its key where the source knows one."""
    kind = SOURCES[pipeline.source.type]
    asks = any(table.is_pattern or (kind.knows_keys and not table.key) for table in pipeline.tables)
    if not asks:
        return pipeline
    return settle(pipeline, kind.tables(pipeline.source))


def settled_or_not(pipeline: Pipeline) -> tuple[Pipeline, Fault | None]:
    """The same; where the source cannot say, the tables that the file names, and why."""
    try:
        return settled(pipeline), None
    except TruecutError as error:
        return settle(pipeline, ()), error.fault


def settled_patiently(pipeline: Pipeline, wait: Callable[[float], object]) -> Pipeline:
    """The same, for whoever can wait until the source answers."""
    while True:
        try:
            return settled(pipeline)
        except TruecutError as error:
            if error.fault.retry is not Retry.RETRYABLE:
                raise
        wait(PAUSE_S)


def settle(pipeline: Pipeline, found: Sequence[FoundTable]) -> Pipeline:
    """What the file means, if these are the source's tables."""
    there = {TableName(one.schema, one.name): one for one in found}
    meant: dict[str, list[TableSettings]] = {}  # by the name in the file
    taken = {table.name for table in pipeline.tables if not table.is_pattern}
    for table in pipeline.tables:
        names = [table.name] if not table.is_pattern else list(_matches(table, there, taken))
        taken.update(names)
        meant[str(table.name)] = [_of(table, name, there.get(name)) for name in names]
    tables = tuple(one for group in meant.values() for one in group)
    if found and not tables:
        raise _nothing_matches()
    return replace(
        pipeline,
        tables=tables,
        source=replace(pipeline.source, tables=tables),
        sinks=tuple(_sink(sink, meant) for sink in pipeline.sinks),
    )


def _matches(
    pattern: TableSettings, there: Mapping[TableName, FoundTable], taken: set[TableName]
) -> Iterator[TableName]:
    for name in sorted(there):
        like = fnmatchcase(name.schema, pattern.name.schema) and fnmatchcase(name.table, pattern.name.table)
        out = any(fnmatchcase(str(name), one) for one in pattern.exclude)
        if like and not out and name not in taken:
            yield name


def _of(table: TableSettings, name: TableName, found: FoundTable | None) -> TableSettings:
    key = table.key or (found.key if found is not None else None) or ()
    return replace(table, name=name, key=key, exclude=())


def _sink(sink: SinkSettings, meant: Mapping[str, Sequence[TableSettings]]) -> SinkSettings:
    modes: dict[str, Mode] = {}
    for name, mode in sink.modes.items():
        for table in meant[name]:
            modes.setdefault(str(table.name), mode)
    known: dict[str, str] = {}
    for name in modes:
        other = known.setdefault(SINKS[sink.type].called(sink.address, name).lower(), name)
        if other != name:
            raise _meeting(sink.name, other, name)
    return replace(sink, modes=modes)


def _nothing_matches() -> TruecutError:
    return TruecutError(
        "TC1092",
        "no table of the source is one that the pipeline file means",
        fix="Correct the names under `tables`; `truecut init --dsn …` lists what is there.",
        exit_code=ExitCode.WRONG_INPUT,
    )


def _meeting(sink: str, one: str, other: str) -> TruecutError:
    return TruecutError(
        "TC1093",
        f"{one} and {other} would have one name at the sink {sink}",
        fix="Exclude one of them, or give it a sink of its own.",
        exit_code=ExitCode.WRONG_INPUT,
    )
