"""What `truecut doctor` examines: machine, source and control store. Sinks have a module of their own.

Promises: everything is connected to and nothing is left written; a check that fails does not keep the others
from being made; findings tell counts and names, never a row's values.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truecut.config.kinds import SINKS, SOURCES, Kind
from truecut.config.settings import Pipeline, TableSettings
from truecut.core.delivery import GAP_CODE
from truecut.errors import Fault, TruecutError
from truecut.folders import fault_of, not_writable
from truecut.model.finding import Check, Finding
from truecut.model.table import Mode
from truecut.runtime.control_readonly import Known, peek
from truecut.runtime.database import is_postgres
from truecut.runtime.doctor_sinks import check_layout, check_sinks, check_space
from truecut.runtime.dry_run import Outlook, foresee
from truecut.sinks.registry import look_at_sinks
from truecut.sources.contract import Observation, Survey, TableRead
from truecut.sources.registry import survey_source
from truecut.spark.session import check_java
from truecut.spark.settings import refused, refused_master
from truecut.spark.trial import TooSlow, refusal


def examine(pipeline: Pipeline, unsettled: Fault | None = None) -> Iterator[Check]:
    """Every check in turn. Without what the connectors are made of the rest cannot be asked. `unsettled`: why
    the source could not say which tables the file means."""
    java = _java()
    yield java
    if java.outcome == "ok" and (pipeline.spark.master or pipeline.spark.conf):
        yield _spark(pipeline)
    engines = list(_engines(pipeline))
    yield from engines
    if any(engine.outcome == "error" for engine in engines):
        return
    store, known = _control(pipeline)
    yield store
    source, seen = _source(pipeline)
    yield source
    if unsettled is not None and source.outcome == "ok":
        yield Check("tables", "the source does not tell which there are", [Finding("source", unsettled)])
    looks = look_at_sinks(pipeline.sinks, pipeline=pipeline.name)
    if seen is not None:
        survey = survey_source(pipeline.source, generation=seen.head.generation)
        yield from (_table(survey, table, seen) for table in pipeline.tables)
        yield _retention(pipeline, foresee(pipeline, seen, known, looks))
    yield check_sinks(pipeline, looks)
    yield check_layout(pipeline)
    yield check_space(pipeline)


# --- the machine --------------------------------------------------------------------------------------


def _java() -> Check:
    try:
        check_java()
    except TruecutError as error:
        return Check("java", "Spark cannot start", [Finding("java", error.fault)])
    return Check("java", "found, and new enough for Spark")


def _spark(pipeline: Pipeline) -> Check:
    """Whether it takes what the file says: started, for what cannot be known otherwise."""
    fault = refused_master(pipeline)
    if fault is None and pipeline.spark.conf:
        try:
            said = refusal(master=pipeline.spark.master, conf=pipeline.spark.conf)
        except TooSlow:
            return Check("spark", "was too slow to tell", [Finding("spark", _too_slow(), "warning")])
        fault = None if said is None else refused(pipeline, said).fault
    if fault is not None:
        return Check("spark", "does not start with these settings", [Finding("spark", fault)])
    return Check("spark", "takes the settings of the file")


def _too_slow() -> Fault:
    return Fault(
        "TC5015",
        "Spark neither started with the settings of the file nor refused them in time",
        "Try again when the machine or the cluster has room for it.",
    )


def _engines(pipeline: Pipeline) -> Iterator[Check]:
    """What the kinds of source and sinks need; two that need the same ask for it once."""
    kinds: list[Kind] = [SOURCES[pipeline.source.type]]
    kinds += [SINKS[name] for name in sorted({sink.type for sink in pipeline.sinks})]
    checks = (kind.check_engine() for kind in kinds)
    return iter({check.name: check for check in checks}.values())


def _control(pipeline: Pipeline) -> tuple[Check, Known]:
    address = pipeline.control.reveal()
    where = "PostgreSQL" if is_postgres(address) else address
    try:
        known = peek(pipeline.control, pipeline=pipeline.name)
    except TruecutError as error:
        return Check("control store", where, [Finding("control", error.fault)]), Known(exists=False)
    folders = [pipeline.state] if is_postgres(address) else [pipeline.state, Path(address).parent]
    journal, certificate = pipeline.source.journal, pipeline.certificate
    folders += [] if journal is None or journal.coordinator is not None else [journal.path]
    folders += [] if certificate is None else [certificate.path]
    trouble = next(filter(None, map(not_writable, folders)), None)
    if trouble is not None:
        fault = fault_of(trouble, what="the control store or a folder of the pipeline's state")
        return Check("control store", where, [Finding("control", fault)]), known
    return Check("control store", where if known.exists else f"{where}, to be made"), known


# --- the source ---------------------------------------------------------------------------------------


def _source(pipeline: Pipeline) -> tuple[Check, Observation | None]:
    survey = survey_source(pipeline.source)
    try:
        seen = survey.observe()
    except TruecutError as error:
        return Check("source", str(pipeline.source.address), [Finding("source", error.fault)]), None
    return survey.check(seen), seen


def _table(survey: Survey, table: TableSettings, seen: Observation) -> Check:
    name = str(table.name)
    read = TableRead(table.name, table.key, table.route_by)
    try:
        facts = survey.facts(read, seen)
        if isinstance(facts, Fault):
            return Check(f"table {name}", "cannot be copied", [Finding(name, facts)])
        nulls, repeated = survey.key_counts(read, seen)
    except TruecutError as error:
        return Check(f"table {name}", "cannot be read", [Finding(name, error.fault)])
    key = ", ".join(table.key)
    findings = []
    if nulls:
        fault = Fault(
            "TC2021",
            f"{name}: {nulls:,} rows have NULL in their key ({key})",
            "Give these rows a key, delete them, or choose another key.",
        )
        findings.append(Finding(name, fault))
    if repeated:
        fault = Fault(
            "TC2022",
            f"{name}: {repeated:,} keys ({key}) occur more than once",
            "Remove the duplicates at the source, or choose a key that is unique.",
        )
        findings.append(Finding(name, fault))
    rows = "rows not counted" if facts.rows is None else f"{facts.rows:,} rows"
    return Check(f"table {name}", f"{rows}, key {key}", findings)


def _retention(pipeline: Pipeline, outlook: Outlook) -> Check:
    keep = SOURCES[pipeline.source.type].words.keep
    findings = [
        found
        for sink in pipeline.sinks
        for table, mode in sink.modes.items()
        if (found := _gap(outlook, sink.name, table, mode, keep)) is not None
    ]
    return Check("retention", f"the oldest position is {outlook.seen.oldest}", findings)


def _gap(outlook: Outlook, sink: str, table: str, mode: Mode, keep: str) -> Finding | None:
    """A copy whose place the source no longer has: a mirror is read again by itself, others stop."""
    copy = outlook.state.sinks[sink].copies.get(table)
    if copy is None:
        return None
    if copy.hold is not None and copy.hold.code == GAP_CODE:
        fault = Fault(
            "TC2023",
            f"{table} at sink {sink} ({mode}): the source no longer has the history that it needs",
            f"Resume it with `truecut resume FILE --table {table}`. To prevent it, {keep}.",
        )
        return Finding(sink, fault)
    if copy.status == "unseeded" and outlook.reason(sink, table) == "gap":
        fault = Fault(
            "TC2024",
            f"{table} at sink {sink} has lost its place in the source; the next run reads it again whole",
            f"None needed. To prevent it, {keep}.",
        )
        return Finding(sink, fault, "warning")
    return None
