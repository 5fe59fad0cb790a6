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
REPLACED = "tests/specs/test_conformance.py::test_the_machine_follows_every_edge_of_a_source_that_is_replaced"
CONFORMANCE = "tests/specs/test_conformance.py::test_the_machine_follows_every_edge"
SIMULATION = "tests/core/test_simulation.py::test_every_law_holds_and_every_copy_becomes_current"
MODELS = "tests/specs/test_models.py::test_everything_holds_in_every_state"
MACHINE = "src/truecut/core/delivery.py"
ANSWERS = "src/truecut/core/answers.py"
WISHES = "src/truecut/core/wishes.py"
STARTING = "src/truecut/core/starting.py"

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
        "src/truecut/failpoint.py::failpoint",
        f"{E2E}/test_kills.py::test_every_crash_point_is_hit_and_survived",
    ),
    "SinkTakeover": (
        f"{SINK}/sink.py::_take_over",
        "tests/sinks/test_fence.py::test_two_takeovers_at_once_leave_the_larger_token",
    ),
    "SinkCommit": (f"{SINK}/transaction.py::Transaction", FENCE),
    "Observe": (f"{MACHINE}::observe", CONFORMANCE),
    "ObserveLate": (f"{MACHINE}::observe", REPLACED),
    "Heard": ("src/truecut/runtime/generations.py::Generations", SIMULATION),
    "Acquire": (f"{MACHINE}::acquire", CONFORMANCE),
    "Lose": (f"{MACHINE}::lose", CONFORMANCE),
    "StartRecovery": (f"{MACHINE}::start_recovery", CONFORMANCE),
    "Recovered": (f"{MACHINE}::recovered", CONFORMANCE),
    "RecoveryFail": (f"{MACHINE}::recovery_failed", CONFORMANCE),
    "StartWave": (f"{MACHINE}::start_wave", CONFORMANCE),
    "StartSeed": (f"{MACHINE}::start_seed", CONFORMANCE),
    "PersistIdle": (f"{MACHINE}::persist_idle", CONFORMANCE),
    "WaveCommit": (f"{ANSWERS}::committed", CONFORMANCE),
    "WaveFail": (f"{ANSWERS}::failed", CONFORMANCE),
    "WaveAbort": (f"{ANSWERS}::aborted", CONFORMANCE),
    "Advance": (f"{ANSWERS}::advance", CONFORMANCE),
    "LostHistory": (f"{MACHINE}::lost_history", CONFORMANCE),
    "PauseTable": (f"{WISHES}::pause_tables", CONFORMANCE),
    "UnpauseTable": (f"{WISHES}::pause_tables", CONFORMANCE),
    "ResumeTable": (f"{WISHES}::resume_table", CONFORMANCE),
    "CopyAgain": (f"{WISHES}::copy_again", CONFORMANCE),
    "AskAgain": (
        "src/truecut/runtime/pauses.py::backfill",
        f"{E2E}/test_backfill.py::test_a_table_is_read_again_while_changes_go_on",
    ),
    "AskResume": ("src/truecut/runtime/pauses.py::resume", SIMULATION),
    "Answer": ("src/truecut/runtime/requests.py::Requests", SIMULATION),
    "Accept": ("src/truecut/core/copies.py::recorded", CONFORMANCE),
}

# law → (where the code enforces it, test)
LAWS = {
    "TypeOK": ("src/truecut/core/state.py::SinkState", MODELS),
    "NoDuplicate": (f"{SINK}/write.py::changes", ORACLE),
    "PartitionCorrectness": (
        "src/truecut/spark/wave/route.py::TableRoute",
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
    "FlushStateConsistency": (f"{STARTING}::start", SIMULATION),
    "OwnersDiffer": (f"{CONTROL}::claim", SIMULATION),
    "CaughtUpIsTrue": ("src/truecut/core/copies.py::outrun", SIMULATION),
    "RequestKept": ("src/truecut/runtime/requests.py::Requests", SIMULATION),
    "AgainIsRead": (
        "src/truecut/core/copies.py::again",
        "tests/core/test_read_again.py::test_a_request_is_shown_by_a_new_edition_alone",
    ),
    "AgainMissesNothing": (
        "src/truecut/core/copies.py::again",
        "tests/core/test_read_again.py::test_an_append_table_is_read_at_its_own_place",
    ),
    "ShapeTrue": ("src/truecut/core/copies.py::resumed", SIMULATION),
    "CursorMonotonicity": (f"{ANSWERS}::committed", SIMULATION),
    "TokenMonotonicity": (
        f"{SINK}/sink.py::_take_over",
        "tests/sinks/test_fence.py::test_two_takeovers_at_once_leave_the_larger_token",
    ),
    "FencedWriteHasNoEffect": ("src/truecut/sinks/copies.py::token_differs", FENCE),
    "EveryCopyBecomesCurrent": (f"{MACHINE}::start_wave", SIMULATION),
    "EveryRequestIsAnswered": ("src/truecut/core/persisting.py::taken_up", SIMULATION),
    "AppendExactlyOnce": (
        "src/truecut/sinks/copies.py::version_differs",
        f"{E2E}/test_append.py::test_every_change_is_one_row",
    ),
    "AppendNoDuplicate": (
        "src/truecut/sinks/copies.py::version_differs",
        "tests/sinks/test_fence.py::test_an_order_that_runs_twice_at_once_has_one_effect",
    ),
    "AppendBecomesCurrent": (f"{MACHINE}::start_wave", SIMULATION),
}

# Where the bugs that the spec can be given are put into the code, by the same names.
MACHINE_FAULTS = "tests/core/test_simulation.py::test_no_fault_in_the_machine_survives"
SINK_FAULTS = "tests/sinks/test_oracle.py::test_the_model_catches"
SOURCE_FAULTS = "tests/sources/test_reader_faults.py::test_the_copy_shows"
WALK_FAULTS = "tests/specs/test_conformance.py::test_the_walk_notices"
APPEND_WALK_FAULTS = "tests/specs/test_conformance.py::test_the_walk_of_an_append_table_notices"
FAULTS = {
    MACHINE_FAULTS: "tests/core/faults.py",
    WALK_FAULTS: "tests/specs/walk_faults.py",
    APPEND_WALK_FAULTS: "tests/specs/walk_faults.py",
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
    "no_fence": ("src/truecut/sinks/copies.py::token_differs", SINK_FAULTS),
    "takeover_unfenced": (f"{SINK}/cursor.py::raise_token", SINK_FAULTS),
    "expected_unchecked": ("src/truecut/sinks/copies.py::version_differs", SINK_FAULTS),
    "seed_appends": (f"{SINK}/write.py::clear_table", SINK_FAULTS),
    "no_epoch_check": (f"{ANSWERS}::awaited", MACHINE_FAULTS),
    "missing_reset": (f"{ANSWERS}::failed", MACHINE_FAULTS),
    "no_recovery": (f"{ANSWERS}::failed", MACHINE_FAULTS),
    "position_before_commit": (f"{STARTING}::start", MACHINE_FAULTS),
    "abort_advances": (f"{ANSWERS}::aborted", MACHINE_FAULTS),
    "read_across_gap": ("src/truecut/core/copies.py::placed", MACHINE_FAULTS),
    "wave_while_applying": ("src/truecut/core/copies.py::lacking", MACHINE_FAULTS),
    "sink_moves_all_copies": (f"{ANSWERS}::committed", MACHINE_FAULTS),
    "resume_not_durable": ("src/truecut/core/copies.py::resumed", MACHINE_FAULTS),
    "resumed_unshaped": ("src/truecut/core/copies.py::resumed", MACHINE_FAULTS),
    "again_unread": ("src/truecut/core/copies.py::again", WALK_FAULTS),
    "again_at_head": ("src/truecut/core/copies.py::again", APPEND_WALK_FAULTS),
    "accept_already": (f"{STARTING}::replaces", MACHINE_FAULTS),
    "seed_unchecked": ("src/truecut/sinks/copies.py::version_differs", MACHINE_FAULTS),
    "token_reused_after_loss": (f"{CONTROL}::claim", MACHINE_FAULTS),
    "only_places_are_compared": ("src/truecut/sinks/copies.py::version_differs", SINK_FAULTS),
    "stale_look_believed": ("src/truecut/core/copies.py::beyond", MACHINE_FAULTS),
    "generation_not_heard": ("src/truecut/runtime/generations.py::least", MACHINE_FAULTS),
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
    "Sync": (f"{LOG}::sync", LOG_WALK),
    "Trim": (f"{LOG}::trim", LOG_WALK),
    "Drop": ("src/truecut/journal/replicated/node.py::drop", LOG_LIVES),
    "Repair": (f"{LOG}::to_repair", LOG_CHOICES),
    "CrashNode": (f"{LOG}::restarted", LOG_WALK),
    "CrashCoordinator": (f"{LOG}::forget_fenced", LOG_WALK),
    "CrashProducer": (f"{LOG}::granted", LOG_LIVES),
    "LoseDisk": (f"{LOG}::to_replace", LOG_LIVES),
    "Hurt": (f"{LOG}::absent", LOG_LIVES),
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
    "told_before_fsync": (f"{LOG}::take_fence", LOG_FAULTS),
    "missing_is_empty": (f"{LOG}::take_fence", LOG_FAULTS),
    "begun_anew": (f"{LOG}::take_append", LOG_FAULTS),
    "copied_anew": (f"{LOG}::take_copy", LOG_FAULTS),
    "fenced_served": (f"{LOG}::visible", LOG_FAULTS),
    "trimmed_forgotten": ("tests/journal/simulated.py::drop", LOG_FAULTS),
    "half_copy_counted": ("tests/journal/simulation.py::copies_move", LOG_FAULTS),
    "replaced_before_copied": ("tests/journal/simulation.py::coordinator_moves", LOG_FAULTS),
}

CUT = "src/truecut/core/cut.py"
SPLICE = "src/truecut/core/splice.py"
VISIBILITY = "src/truecut/core/visibility.py"
CUT_LIFE = "tests/core/cut_life.py"
CUT_SOURCE = "tests/core/cut_source.py"
CUT_WALK = "tests/specs/test_cut_conformance.py::test_the_machine_goes_where_the_spec_goes_and_nowhere_else"
CUT_LIVES = "tests/core/test_cut_simulation.py::test_the_sink_is_the_source_at_every_frontier"
CUT_FAULTS = "tests/core/test_cut_simulation.py::test_no_fault_survives"
FAULTS[CUT_FAULTS] = "tests/core/cut_faults.py"

# The backfill. Its source is played by the simulation.
CUT_ACTIONS = {
    "WriteRow": (f"{CUT_SOURCE}::_write", CUT_LIVES),
    "Rollback": (f"{CUT_SOURCE}::_roll_back", CUT_LIVES),
    "Commit": (f"{CUT_SOURCE}::_commit", CUT_LIVES),
    "End": (f"{CUT_SOURCE}::_over", CUT_LIVES),
    "CreateSlot": (f"{CUT_SOURCE}::slot", CUT_LIVES),
    "Publish": (f"{CUT_SOURCE}::writers", CUT_LIVES),
    "Split": (f"{CUT}::split", CUT_WALK),
    "OpenUnit": (f"{CUT}::open_unit", CUT_WALK),
    "RecordUnit": (f"{CUT}::record_unit", CUT_WALK),
    "Wave": (f"{CUT}::wave", CUT_WALK),
    "Repeat": (f"{CUT}::repeat", CUT_WALK),
    "Forget": (f"{CUT}::forget", CUT_WALK),
}
CUT_LAWS = {
    "SinkTrue": (f"{SPLICE}::keeps", CUT_LIVES),
    "NotSplit": (f"{CUT}::bracket", CUT_LIVES),
    "Evidenced": (f"{CUT}::ready", CUT_LIVES),
    "AppliedOnce": (f"{CUT}::ready", CUT_LIVES),
    "EvidenceTrue": (f"{CUT}::bracket", CUT_LIVES),
    "Claimed": (f"{CUT}::doubts", "tests/core/test_cut.py::test_nothing_is_claimed_of_a_cut_that_is_none"),
    "FrontierForward": (f"{CUT}::wave", CUT_WALK),
    "BackfillEnds": (f"{CUT}::to_open", CUT_LIVES),
    "FrontierGoesOn": (f"{CUT}::wave", CUT_LIVES),
}
CUT_BUGS = {
    "watermark_only": (f"{CUT}::splice_of", CUT_FAULTS),
    "row_order": (f"{CUT_LIFE}::in_order", CUT_FAULTS),
    "end_is_last_key": (f"{CUT}::ranges", CUT_FAULTS),
    "snapshot_apart": (f"{CUT_LIFE}::reads_under", CUT_FAULTS),
    "absent_is_null": (f"{SPLICE}::merged", CUT_FAULTS),
    "truncate_ignored": (f"{SPLICE}::taken", CUT_FAULTS),
    "applied_unrecorded": (f"{CUT_LIFE}::durable_at_once", CUT_FAULTS),
    "subtransactions_forgotten": (f"{VISIBILITY}::top_level", CUT_FAULTS),
    "hi_ignored": (f"{CUT}::ready", CUT_FAULTS),
    "replayed_from_cursor": (f"{CUT}::splice_of", CUT_FAULTS),
    "applied_again": (f"{CUT}::ready", CUT_FAULTS),
    "start_unchecked": (f"{VISIBILITY}::includes", CUT_FAULTS),
    "lock_after_snapshot": (f"{CUT_LIFE}::truncate_waits", CUT_FAULTS),
    "torn_kept": (f"{SPLICE}::incomplete", CUT_FAULTS),
    "writers_unawaited": (f"{CUT}::unended", CUT_FAULTS),
}

Pairs = dict[str, tuple[str, str]]
ALL_ACTIONS: Pairs = ACTIONS | LOG_ACTIONS | CUT_ACTIONS
ALL_LAWS: Pairs = LAWS | LOG_LAWS | CUT_LAWS
ALL_BUGS: Pairs = BUGS | LOG_BUGS | CUT_BUGS


def spec_actions() -> list[str]:
    """What `Next` of each protocol is made of."""
    found = _names("Delivery", after="\nNext ==") - {"Next", "Sinks", "Runners", "Tables"}
    steps = _names("SegmentLog", after="\nCoordinator ==")
    who = {"Next", "Coordinator", "Node", "Producer", "Consumer", "Environment"}
    found |= _names("Cut", after="\nSource ==") - {"Next", "Source", "Backfill"}
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
    modules = ("Cut", "Delivery", "History", "SegmentLog")
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
        "## The backfill",
        "",
        "The source's steps are the simulation's. Four of the bugs lie around the machine, and are put into",
        "the simulation's reader, journal and log.",
        "",
        *_tables(CUT_ACTIONS, CUT_LAWS, CUT_BUGS),
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
