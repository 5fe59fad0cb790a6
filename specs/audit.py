"""Writes specs/AUDIT.md: each action and each law of the spec beside the code and the test that stand for it.

    python specs/audit.py            writes the file
    python specs/audit.py --check    fails when the file is stale or a pair is missing

The pairs are below. What they name must exist: actions and laws are read from the modules, functions from
the package, tests from the test files. An action or a law without a pair is an error.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SPECS = ROOT / "specs"
TARGET = SPECS / "AUDIT.md"
CONFORMANCE = "tests/specs/test_conformance.py::test_the_machine_follows_every_edge"
SIMULATION = "tests/core/test_simulation.py::test_every_law_holds_and_every_sink_becomes_current"
MODELS = "tests/specs/test_models.py::test_everything_holds_in_every_state"
MACHINE = "src/truecut/core/delivery.py"
ANSWERS = "src/truecut/core/answers.py"
STARTS = "tests/specs/test_conformance.py::test_the_machine_starts_nothing_the_spec_forbids"

FENCE = "tests/sinks/test_fence.py::test_a_commit_and_a_takeover_never_both_win"
ORACLE = "tests/sinks/test_oracle.py::test_a_sink_is_what_the_model_says"
BOUNDARY = "tests/sources/test_boundary.py"
E2E = "tests/e2e"
SOURCE = "src/truecut/sources/ducklake/source.py"
CONTROL = "src/truecut/runtime/control.py"
SINK = "src/truecut/sinks/ducklake"

# action → (code, test). The environment's actions are the source's, the sinks' and the operators'.
ACTIONS = {
    "SrcCommit": (f"{SOURCE}::plan_window", f"{BOUNDARY}::test_after_is_exclusive_and_upto_inclusive"),
    "Expire": (
        f"{SOURCE}::observe",
        f"{E2E}/test_sinks_come_and_go.py::test_a_mirror_that_fell_out_of_the_history_is_seeded_again",
    ),
    "StoreLost": (
        f"{CONTROL}::raise_token",
        f"{E2E}/test_sinks_come_and_go.py::test_losing_the_control_store_loses_nothing",
    ),
    "LeaseOut": (
        f"{CONTROL}::heartbeat",
        f"{E2E}/test_two_runners.py::test_a_runner_paused_past_its_lease_has_no_effect_when_it_wakes",
    ),
    "Crash": (
        "src/truecut/runtime/failpoint.py::failpoint",
        f"{E2E}/test_kills.py::test_every_crash_point_is_hit_and_survived",
    ),
    "SinkTakeover": (
        f"{SINK}/sink.py::_take_over",
        "tests/sinks/test_fence.py::test_two_takeovers_at_once_leave_the_larger_token",
    ),
    "SinkCommit": (f"{SINK}/transaction.py::Transaction", FENCE),
    "Observe": (f"{MACHINE}::observe", CONFORMANCE),
    "Acquire": (f"{MACHINE}::acquire", CONFORMANCE),
    "Lose": (f"{MACHINE}::lose", CONFORMANCE),
    "StartRecovery": (f"{MACHINE}::start_recovery", STARTS),
    "Recovered": (f"{MACHINE}::recovered", CONFORMANCE),
    "RecoveryFail": (f"{MACHINE}::recovery_failed", CONFORMANCE),
    "StartWave": (f"{MACHINE}::start_wave", STARTS),
    "StartSeed": (f"{MACHINE}::start_seed", STARTS),
    "PersistIdle": (f"{MACHINE}::persist_idle", STARTS),
    "WaveCommit": (f"{ANSWERS}::committed", CONFORMANCE),
    "WaveFail": (f"{ANSWERS}::failed", CONFORMANCE),
    "WaveAbort": (f"{MACHINE}::wave_done", CONFORMANCE),
    "Advance": (f"{ANSWERS}::advance", CONFORMANCE),
    "LostHistory": (f"{MACHINE}::lost_history", CONFORMANCE),
}

# law → (where the code enforces it, test)
LAWS = {
    "TypeOK": ("src/truecut/core/state.py::SinkState", MODELS),
    "NoDuplicate": (f"{SINK}/write.py::changes", ORACLE),
    "PartitionCorrectness": (
        "src/truecut/spark/route.py::TableRoute",
        f"{E2E}/test_mirror.py::test_a_table_is_routed_to_tenants_on_every_kind_of_catalog",
    ),
    "NoPhantomWhenCurrent": (
        f"{SINK}/resolve.py::",
        f"{E2E}/test_mirror.py::test_random_churn_with_maintenance_stays_equal",
    ),
    "NoDataLossWhenCurrent": (
        f"{ANSWERS}::advance",
        f"{E2E}/test_mirror.py::test_random_churn_with_maintenance_stays_equal",
    ),
    "EventualConsistency": (
        f"{MACHINE}::start_wave",
        f"{E2E}/test_kills.py::test_random_kills_under_load",
    ),
    "TransactionNeverSplit": (
        f"{SINK}/transaction.py::Transaction",
        f"{E2E}/test_mirror.py::test_windows_end_before_the_head_and_never_split_a_snapshot",
    ),
    "BufferPositionBound": (f"{ANSWERS}::reset", SIMULATION),
    "FlushStateConsistency": (f"{MACHINE}::_start", SIMULATION),
    "CursorMonotonicity": (f"{ANSWERS}::committed", SIMULATION),
    "TokenMonotonicity": (
        f"{SINK}/sink.py::_take_over",
        "tests/sinks/test_fence.py::test_two_takeovers_at_once_leave_the_larger_token",
    ),
    "FencedWriteHasNoEffect": (f"{SINK}/transaction.py::token_differs", FENCE),
    "EverySinkBecomesCurrent": (f"{MACHINE}::start_wave", SIMULATION),
    "AppendExactlyOnce": (
        f"{SINK}/transaction.py::_is_there",
        f"{E2E}/test_append.py::test_every_change_is_one_row",
    ),
    "AppendNoDuplicate": (
        f"{SINK}/transaction.py::_is_there",
        "tests/sinks/test_fence.py::test_an_order_that_runs_twice_at_once_has_one_effect",
    ),
    "AppendBecomesCurrent": (f"{MACHINE}::start_wave", SIMULATION),
}

# Where the bugs that the spec can be given are put into the code, by the same names.
MACHINE_FAULTS = "tests/core/test_simulation.py::test_no_fault_in_the_machine_survives"
SINK_FAULTS = "tests/sinks/test_oracle.py::test_the_model_catches"
SOURCE_FAULTS = "tests/sources/test_reader_faults.py::test_the_copy_shows"
FAULTS = {
    MACHINE_FAULTS: "tests/core/faults.py",
    SINK_FAULTS: "tests/sinks/test_oracle.py",
    SOURCE_FAULTS: "tests/sources/test_reader_faults.py",
}

# bug → (what it breaks, test)
BUGS = {
    "inclusive_read": ("src/truecut/sources/ducklake/tasks.py::first_wanted", SOURCE_FAULTS),
    "resolve_by_rowid": ("src/truecut/sources/ducklake/normal.py::same_key", SOURCE_FAULTS),
    "key_change_without_delete": ("src/truecut/sources/ducklake/tasks.py::before_sql", SOURCE_FAULTS),
    "route_change_without_delete": ("src/truecut/sources/ducklake/normal.py::other_route", SOURCE_FAULTS),
    "split_transaction": ("src/truecut/sources/ducklake/tasks.py::batches", SOURCE_FAULTS),
    "advance_unread": ("src/truecut/sources/ducklake/history.py::steps", SOURCE_FAULTS),
    "cursor_apart_from_data": (f"{SINK}/cursor.py::write_cursor", SINK_FAULTS),
    "no_fence": (f"{SINK}/transaction.py::token_differs", SINK_FAULTS),
    "takeover_unfenced": (f"{SINK}/cursor.py::raise_token", SINK_FAULTS),
    "expected_unchecked": (f"{SINK}/transaction.py::position_differs", SINK_FAULTS),
    "seed_appends": (f"{SINK}/write.py::clear_table", SINK_FAULTS),
    "no_epoch_check": (f"{ANSWERS}::awaited", MACHINE_FAULTS),
    "missing_reset": (f"{ANSWERS}::failed", MACHINE_FAULTS),
    "no_recovery": (f"{ANSWERS}::failed", MACHINE_FAULTS),
    "position_before_commit": (f"{MACHINE}::_start", MACHINE_FAULTS),
    "read_across_gap": ("src/truecut/core/copies.py::gap", MACHINE_FAULTS),
    "wave_while_applying": (f"{MACHINE}::_wants_changes", MACHINE_FAULTS),
}


def spec_actions() -> list[str]:
    """What `Next` is made of."""
    text = (SPECS / "Delivery.tla").read_text()
    body = text[text.index("\nNext ==") : text.index("\nSpec ==")]
    return sorted(set(re.findall(r"\b[A-Z][a-z]\w+\b", body)) - {"Next", "Sinks", "Runners"})


def spec_laws() -> list[str]:
    """What the models check."""
    laws: set[str] = set()
    for path in (SPECS / "models").glob("*.cfg"):
        for block in re.findall(r"^(?:INVARIANTS?|PROPERTIES)\n((?:  \w+\n?)+)", path.read_text(), re.M):
            laws.update(block.split())
    return sorted(laws)


def spec_bugs() -> set[str]:
    """The switches."""
    text = "".join((SPECS / f"{module}.tla").read_text() for module in ("Delivery", "History"))
    return set(re.findall(r'"(\w+)" \\(?:not)?in Bugs', text))


def _has(test: str, name: str) -> bool:
    return re.search(rf'def {name}\(|"{name}":', (ROOT / FAULTS[test]).read_text()) is not None


def problems() -> list[str]:
    """What is missing on either side."""
    found = [f"action {name} has no pair" for name in spec_actions() if name not in ACTIONS]
    found += [f"action {name} is not in the spec" for name in ACTIONS if name not in spec_actions()]
    found += [f"law {name} has no pair" for name in spec_laws() if name not in LAWS]
    found += [f"law {name} is checked by no model" for name in LAWS if name not in spec_laws()]
    found += [f"bug {name} has no fault in the code" for name in spec_bugs() if name not in BUGS]
    found += [f"bug {name} is no switch of the spec" for name in BUGS if name not in spec_bugs()]
    found += [f"{FAULTS[test]} has no {name}" for name, (_, test) in BUGS.items() if not _has(test, name)]
    for name, pair in [*ACTIONS.items(), *LAWS.items(), *BUGS.items()]:
        found += [f"{name}: {place} does not exist" for place in pair if not exists(place)]
    return found


def exists(place: str) -> bool:
    """Whether `path::name` is a definition in that file (`path::` is the file itself)."""
    path, _, name = place.partition("::")
    if not (ROOT / path).exists():
        return False
    tree = ast.parse((ROOT / path).read_text())
    named = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return not name or name in named


def render() -> str:
    """The whole document."""
    lines = [
        "# Spec, code and test, side by side",
        "",
        "Generated by `python specs/audit.py`; a test fails when it is stale or a pair is missing. Besides",
        "these tests, TLC checks every law in every state of every model (`tests/specs/test_models.py`),",
        "and traces of runs are checked against the spec (`tests/specs/tracecheck.py`).",
        "",
        "| action | code | test |",
        "|---|---|---|",
        *(_row(name, *ACTIONS[name]) for name in ACTIONS),
        "",
        "| law | enforced by | test |",
        "|---|---|---|",
        *(_row(name, *LAWS[name]) for name in LAWS),
        "",
        "Each bug that the spec can be given is put into the code, too, and a test has to notice it there:",
        "",
        "| bug | broken in | noticed by |",
        "|---|---|---|",
        *(_row(name, *BUGS[name]) for name in BUGS),
        "",
    ]
    return "\n".join(lines)


def _row(name: str, code: str, test: str) -> str:
    return f"| {name} | `{_short(code)}` | `{_short(test)}` |"


def _short(place: str) -> str:
    return place.removeprefix("src/truecut/").removesuffix("::")


def main(arguments: list[str]) -> int:
    """Write or check."""
    found = problems()
    if arguments == ["--check"]:
        if not TARGET.exists() or TARGET.read_text() != render():
            found.append("specs/AUDIT.md is stale: run `python specs/audit.py`")
    elif not found:
        TARGET.write_text(render())
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
