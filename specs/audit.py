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

LOG = "src/truecut/core/segment_log.py"
LOG_WALK = (
    "tests/specs/test_segment_log_conformance.py::test_the_machine_goes_where_the_spec_goes_and_nowhere_else"
)
LOG_CHOICES = "tests/specs/test_segment_log_conformance.py::test_the_coordinator_chooses_what_the_spec_allows"
LOG_LIVES = "tests/journal/test_simulation.py::test_every_law_holds_in_every_life"
LOG_FAULTS = "tests/journal/test_simulation.py::test_no_bug_survives_in_the_code"
FAULTS[LOG_FAULTS] = "tests/journal/bugs.py"

# The segment log. Its environment is played by the simulation; what a single node does on its disk is real.
LOG_ACTIONS = {
    "Grant": (f"{LOG}::grant", LOG_WALK),
    "NewSegment": (f"{LOG}::new_segment", LOG_WALK),
    "DecideByProducer": (f"{LOG}::decide_by_producer", LOG_WALK),
    "AskFence": (f"{LOG}::to_fence", LOG_WALK),
    "TakeFenced": (f"{LOG}::take_fenced", LOG_WALK),
    "AskCopy": (f"{LOG}::to_copy", LOG_CHOICES),
    "DecideByFence": (f"{LOG}::decide_by_fence", LOG_CHOICES),
    "AskEnd": (f"{LOG}::to_end", LOG_WALK),
    "TakeEnded": (f"{LOG}::take_ended", LOG_WALK),
    "Replace": (f"{LOG}::replace_node", LOG_CHOICES),
    "TakeAppend": (f"{LOG}::take_append", LOG_WALK),
    "TakeKnown": (f"{LOG}::take_known", LOG_WALK),
    "TakeFence": (f"{LOG}::take_fence", LOG_WALK),
    "TakeCopy": (f"{LOG}::take_copy", LOG_WALK),
    "TakeEnd": (f"{LOG}::take_end", LOG_WALK),
    "Write": (f"{LOG}::write", LOG_WALK),
    "TakeAck": (f"{LOG}::take_ack", LOG_WALK),
    "Publish": (f"{LOG}::Producer", LOG_WALK),
    "GiveUp": (f"{LOG}::give_up", LOG_WALK),
    "StandDown": (f"{LOG}::stand_down", LOG_WALK),
    "Consume": (f"{LOG}::visible", LOG_WALK),
    "Sync": (
        "src/truecut/journal/local.py::_sync",
        "tests/journal/test_local.py::test_a_failed_sync_stops_the_writer_for_good",
    ),
    "CrashNode": (f"{LOG}::restarted", LOG_WALK),
    "CrashCoordinator": (f"{LOG}::forget_fenced", LOG_WALK),
    "CrashProducer": (f"{LOG}::granted", LOG_LIVES),
    "LoseDisk": (f"{LOG}::to_replace", LOG_LIVES),
    "LoseMessage": (f"{LOG}::to_end", LOG_LIVES),
}
LOG_LAWS = {
    "CommitDurability": (f"{LOG}::take_ack", LOG_LIVES),
    "ReadCommitted": (f"{LOG}::visible", LOG_LIVES),
    "InOrderOnce": (f"{LOG}::take_append", LOG_LIVES),
    "NoWithdrawnRead": (f"{LOG}::decide_by_fence", LOG_LIVES),
    "SingleActiveProducer": (f"{LOG}::new_segment", LOG_LIVES),
    "SealedOnce": (f"{LOG}::decide_by_producer", LOG_LIVES),
    "ForwardOnly": (f"{LOG}::take_fence", LOG_LIVES),
    "SealedAlike": (f"{LOG}::take_end", LOG_WALK),
    "EndsSealed": (f"{LOG}::to_end", LOG_LIVES),
    "GoesOn": (f"{LOG}::decide_by_fence", LOG_LIVES),
    "AllRead": (f"{LOG}::take_known", LOG_LIVES),
}
LOG_BUGS = {
    "last_entry_served": (f"{LOG}::visible", LOG_FAULTS),
    "unfenced_reply_counted": (f"{LOG}::take_fence", LOG_FAULTS),
    "suspend_after_seal": (f"{LOG}::take_fence", LOG_FAULTS),
    "close_decided_twice": (f"{LOG}::decide_by_producer", LOG_FAULTS),
    "acks_kept": (f"{LOG}::told_segment", LOG_FAULTS),
    "decided_alone": (f"{LOG}::decide_by_fence", LOG_FAULTS),
    "ack_before_fsync": ("tests/journal/simulation.py::node_hears", LOG_FAULTS),
    "end_not_retried": ("tests/journal/simulation.py::coordinator_moves", LOG_FAULTS),
    "torn_tail_trusted": ("tests/journal/simulation.py::node_crashes", LOG_FAULTS),
}

Pairs = dict[str, tuple[str, str]]
ALL_ACTIONS: Pairs = ACTIONS | LOG_ACTIONS
ALL_LAWS: Pairs = LAWS | LOG_LAWS
ALL_BUGS: Pairs = BUGS | LOG_BUGS


def spec_actions() -> list[str]:
    """What `Next` of either protocol is made of."""
    found = _names("Delivery", after="\nNext ==") - {"Next", "Sinks", "Runners"}
    steps = _names("SegmentLog", after="\nCoordinator ==")
    who = {"Next", "Coordinator", "Node", "Producer", "Consumer", "Environment"}
    return sorted(found | (steps - who - {"Nodes", "Producers", "Segments"}))


def _names(module: str, *, after: str) -> set[str]:
    text = (SPECS / f"{module}.tla").read_text()
    return set(re.findall(r"\b[A-Z][a-z]\w+\b", text[text.index(after) : text.index("\nSpec ==")]))


def spec_laws() -> list[str]:
    """What the models check."""
    laws: set[str] = set()
    for path in (SPECS / "models").glob("*.cfg"):
        for block in re.findall(r"^(?:INVARIANTS?|PROPERTIES)\n((?:  \w+\n?)+)", path.read_text(), re.M):
            laws.update(block.split())
    return sorted(laws)


def spec_bugs() -> set[str]:
    """The switches."""
    modules = ("Delivery", "History", "SegmentLog")
    text = "".join((SPECS / f"{module}.tla").read_text() for module in modules)
    return set(re.findall(r'"(\w+)" \\(?:not)?in Bugs', text) + re.findall(r'Bug\("(\w+)"\)', text))


def _has(test: str, name: str) -> bool:
    return re.search(rf'def {name}\(|"{name}"[:,)]', (ROOT / FAULTS[test]).read_text()) is not None


def problems() -> list[str]:
    """What is missing on either side."""
    found = [f"action {name} has no pair" for name in spec_actions() if name not in ALL_ACTIONS]
    found += [f"action {name} is not in the spec" for name in ALL_ACTIONS if name not in spec_actions()]
    found += [f"law {name} has no pair" for name in spec_laws() if name not in ALL_LAWS]
    found += [f"law {name} is checked by no model" for name in ALL_LAWS if name not in spec_laws()]
    found += [f"bug {name} has no fault in the code" for name in spec_bugs() if name not in ALL_BUGS]
    found += [f"bug {name} is no switch of the spec" for name in ALL_BUGS if name not in spec_bugs()]
    found += [f"{FAULTS[test]} has no {name}" for name, (_, test) in ALL_BUGS.items() if not _has(test, name)]
    for name, pair in [*ALL_ACTIONS.items(), *ALL_LAWS.items(), *ALL_BUGS.items()]:
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
        *_tables(ACTIONS, LAWS, BUGS),
        "## The segment log",
        "",
        "Crashes and losses are the simulation's; named is the code that has to bear them. Three of the bugs",
        "lie around the machine, and are put into the simulation's nodes and coordinator.",
        "",
        *_tables(LOG_ACTIONS, LOG_LAWS, LOG_BUGS),
    ]
    return "\n".join(lines)


def _tables(actions: Pairs, laws: Pairs, bugs: Pairs) -> list[str]:
    return [
        "| action | code | test |",
        "|---|---|---|",
        *(_row(name, *pair) for name, pair in actions.items()),
        "",
        "| law | enforced by | test |",
        "|---|---|---|",
        *(_row(name, *pair) for name, pair in laws.items()),
        "",
        "Each bug that the spec can be given is put into the code, too, and a test has to notice it there:",
        "",
        "| bug | broken in | noticed by |",
        "|---|---|---|",
        *(_row(name, *pair) for name, pair in bugs.items()),
        "",
    ]


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
