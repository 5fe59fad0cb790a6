"""What `truecut doctor` examines: machine, source and control store. Sinks have a module of their own.

Promises: everything is connected to and nothing is written; a check that fails does not keep the others
from being made; findings tell counts and names, never a row's values.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb

from truecut.config.settings import Pipeline
from truecut.core.delivery import GAP_CODE
from truecut.errors import Fault, TruecutError
from truecut.lake import LakeAddress, connect, fault_of
from truecut.model.table import Mode
from truecut.runtime.control import is_postgres
from truecut.runtime.finding import Check, Finding
from truecut.runtime.look import is_missing, look_at_sinks
from truecut.runtime.outlook import Outlook, foresee, observe
from truecut.runtime.peek import Known, peek
from truecut.runtime.sink_checks import check_layout, check_sinks, check_space, not_writable
from truecut.runtime.tables import TableFacts, key_counts, table_facts
from truecut.sources.contract import Observation
from truecut.spark.session import check_java

_WAL_HEADER = b"\x02\x02"  # bytes 18 and 19 of a SQLite file in write-ahead mode


def examine(pipeline: Pipeline) -> Iterator[Check]:
    """Every check in turn. Without DuckDB the rest cannot be asked."""
    yield _java()
    engine = _duckdb()
    yield engine
    if engine.outcome == "error":
        return
    store, known = _control(pipeline)
    yield store
    source, seen = _source(pipeline)
    yield source
    looks = look_at_sinks(pipeline)
    if seen is not None:
        yield from _tables(pipeline, seen)
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


def _duckdb() -> Check:
    try:
        connect().close()
    except TruecutError as error:
        return Check("duckdb", "an extension is missing", [Finding("duckdb", error.fault)])
    except duckdb.Error as error:
        fault = Fault(
            "TC5031",
            f"DuckDB {duckdb.__version__} cannot load its extensions ({type(error).__name__})",
            "Install truecut again: extensions must be of DuckDB's own version.",
        )
        return Check("duckdb", "an extension cannot be loaded", [Finding("duckdb", fault)])
    return Check("duckdb", f"{duckdb.__version__} with its extensions")


def _control(pipeline: Pipeline) -> tuple[Check, Known]:
    address = pipeline.control.reveal()
    where = "PostgreSQL" if is_postgres(address) else address
    try:
        known = peek(pipeline.control, pipeline=pipeline.name)
    except TruecutError as error:
        return Check("control store", where, [Finding("control", error.fault)]), Known(exists=False)
    folders = [pipeline.state] if is_postgres(address) else [pipeline.state, Path(address).parent]
    trouble = next(filter(None, map(not_writable, folders)), None)
    if trouble is not None:
        fault = fault_of(trouble, what="the control store or the state folder")
        return Check("control store", where, [Finding("control", fault)]), known
    return Check("control store", where if known.exists else f"{where}, to be made"), known


# --- the source ---------------------------------------------------------------------------------------


def _source(pipeline: Pipeline) -> tuple[Check, Observation | None]:
    address = pipeline.source.address
    try:
        seen = observe(pipeline)
    except TruecutError as error:
        return Check("source", str(address), [Finding("source", error.fault)]), None
    findings = [] if _is_wal(address) else [Finding("source", _rollback_journal(address), "warning")]
    return Check("source", f"{address}, snapshots {seen.oldest.place} to {seen.head.place}", findings), seen


def _is_wal(address: LakeAddress) -> bool:
    if address.kind != "sqlite" or is_missing(address):
        return True
    with open(address.target.reveal(), "rb") as catalog:
        return catalog.read(20)[18:] == _WAL_HEADER


def _rollback_journal(address: LakeAddress) -> Fault:
    return Fault(
        "TC2020",
        f"source {address}: SQLite without a write-ahead log; its readers make its writers wait",
        "Run `PRAGMA journal_mode=WAL` on the catalog once, or attach it with META_JOURNAL_MODE 'WAL'.",
    )


def _tables(pipeline: Pipeline, seen: Observation) -> Iterator[Check]:
    try:
        facts = table_facts(pipeline, seen)
    except TruecutError as error:
        yield Check("tables", "cannot be read", [Finding("source", error.fault)])
        return
    for fact in facts:
        yield _table(pipeline, fact, seen)


def _table(pipeline: Pipeline, fact: TableFacts, seen: Observation) -> Check:
    name = f"table {fact.name}"
    if fact.fault is not None:
        return Check(name, "cannot be copied", [Finding(fact.name, fact.fault)])
    try:
        nulls, repeated = key_counts(pipeline, fact.settings, seen)
    except TruecutError as error:
        return Check(name, "cannot be read", [Finding(fact.name, error.fault)])
    key = ", ".join(fact.settings.key)
    findings = []
    if nulls:
        fault = Fault(
            "TC2021",
            f"{fact.name}: {nulls:,} rows have NULL in their key ({key})",
            "Give these rows a key, delete them, or choose another key.",
        )
        findings.append(Finding(fact.name, fault))
    if repeated:
        fault = Fault(
            "TC2022",
            f"{fact.name}: {repeated:,} keys ({key}) occur more than once",
            "Remove the duplicates at the source, or choose a key that is unique.",
        )
        findings.append(Finding(fact.name, fault))
    return Check(name, f"{fact.rows:,} rows, key {key}", findings)


def _retention(pipeline: Pipeline, outlook: Outlook) -> Check:
    findings = [
        found
        for sink in pipeline.sinks
        for table, mode in sink.modes.items()
        if (found := _gap(outlook, sink.name, table, mode)) is not None
    ]
    return Check("retention", f"the oldest position is {outlook.seen.oldest}", findings)


def _gap(outlook: Outlook, sink: str, table: str, mode: Mode) -> Finding | None:
    """A copy whose place the source no longer has: a mirror is read again by itself, others stop."""
    copy = outlook.state.sinks[sink].copies.get(table)
    if copy is None:
        return None
    if copy.hold is not None and copy.hold.code == GAP_CODE:
        fault = Fault(
            "TC2023",
            f"{table} at sink {sink} ({mode}): the source no longer has the history that it needs",
            f"Resume it with `truecut resume FILE --table {table}`, and keep snapshots longer.",
        )
        return Finding(sink, fault)
    if copy.status == "unseeded" and outlook.reason(sink, table) == "gap":
        fault = Fault(
            "TC2024",
            f"{table} at sink {sink} fell behind the oldest snapshot; the next run reads it again whole",
            "None needed; keep snapshots longer than a sink may lag.",
        )
        return Finding(sink, fault, "warning")
    return None
