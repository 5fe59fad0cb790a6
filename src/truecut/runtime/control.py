"""The control store: leases with fencing tokens, the runners that are alive, what they report and count.

SQLite beside the pipeline by default, PostgreSQL when several machines run one pipeline. Losing it costs
time, never data: cursors and tokens are in the sinks, too. Every call is one transaction, whatever the
number of sinks; it writes what changed and nothing else. One that fails may be made again: the connection
is opened anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truecut.config.secret import Secret
from truecut.runtime import totals
from truecut.runtime.database import Database, Postgres, Sqlite, is_postgres
from truecut.runtime.totals import NOTHING, Run, Tally, Totals

TOKENS_APART = 1 << 20  # microseconds, a second: clocks of two stores hardly agree to one of them
_TABLES = (
    "CREATE TABLE IF NOT EXISTS truecut_lease (pipeline TEXT NOT NULL, sink TEXT NOT NULL, owner TEXT, "
    "token BIGINT NOT NULL, expires_ms BIGINT NOT NULL, PRIMARY KEY (pipeline, sink))",
    "CREATE TABLE IF NOT EXISTS truecut_runner (pipeline TEXT NOT NULL, runner TEXT NOT NULL, "
    "expires_ms BIGINT NOT NULL, report TEXT NOT NULL, PRIMARY KEY (pipeline, runner))",
    "CREATE TABLE IF NOT EXISTS truecut_sink (pipeline TEXT NOT NULL, sink TEXT NOT NULL, "
    "report TEXT NOT NULL, PRIMARY KEY (pipeline, sink))",
    "CREATE TABLE IF NOT EXISTS truecut_source (pipeline TEXT NOT NULL, identity TEXT NOT NULL, "
    "generation BIGINT NOT NULL, PRIMARY KEY (pipeline, identity))",
    *totals.TABLES,
)


@dataclass(frozen=True, slots=True)
class Reports:
    """What the runners last said. `running` is False when none of them is alive."""

    running: bool
    runners: Mapping[str, dict[str, Any]]  # those that are alive
    sinks: Mapping[str, dict[str, Any]]
    last: Mapping[str, Any] = field(default_factory=dict)  # of whoever has seen the source last
    totals: Totals = field(default_factory=Totals)
    owners: Mapping[str, str] = field(default_factory=dict)  # sink → who has its lease
    alive_until_ms: Mapping[str, int] = field(
        default_factory=dict
    )  # those that are alive; heartbeats renew it


def read_reports(run: Run, pipeline: str, *, now_ms: int) -> Reports:
    """What the store's tables say, in the caller's transaction."""
    runners = run("SELECT runner, report, expires_ms FROM truecut_runner WHERE pipeline = ?", (pipeline,))
    sinks = run("SELECT sink, report FROM truecut_sink WHERE pipeline = ?", (pipeline,))
    owners = run(
        "SELECT sink, owner FROM truecut_lease WHERE pipeline = ? AND owner IS NOT NULL AND expires_ms > ?",
        (pipeline, now_ms),
    )
    told = [(name, json.loads(report), int(expires) > now_ms) for name, report, expires in runners]
    alive_until_ms = {str(name): int(expires) for name, _, expires in runners if int(expires) > now_ms}
    return Reports(
        running=any(alive for _, _, alive in told),
        runners={name: report for name, report, alive in told if alive},
        sinks={sink: json.loads(report) for sink, report in sinks},
        last=max((report for _, report, _ in told), key=_seen_at_ms, default={}),
        totals=totals.read(run, pipeline),
        owners={str(sink): str(owner) for sink, owner in owners},
        alive_until_ms=alive_until_ms,
    )


def _seen_at_ms(report: Mapping[str, Any]) -> int:
    return int(report.get("seen_at_ms") or 0)


class ControlStore:
    """The store of one pipeline, for one runner (or for a command that only looks)."""

    def __init__(self, database: Database, *, pipeline: str) -> None:
        self._db = database
        self._pipeline = pipeline

    def close(self) -> None:
        """Give the connection back."""
        self._db.close()

    # --- leases ---------------------------------------------------------------------------------------

    def heartbeat(
        self, runner: str, *, duration_ms: int, report: Mapping[str, Any], ours: Iterable[str] | None = None
    ) -> tuple[set[str], int]:
        """Renew everything that is still ours; returns our sinks and the number of live runners.

        A lease that ran out is not renewed, even when nobody took it: what happened meanwhile is unknown.
        `ours`: what the runner knows to be its own. Anything else under its name it does not know of (it
        has let it go, or never heard the answer to its claim): that is given back.
        """
        with self._db.transaction(self._pipeline):
            now = self._now_ms()
            self._db.run(
                "INSERT INTO truecut_runner VALUES (?, ?, ?, ?) ON CONFLICT (pipeline, runner)"
                " DO UPDATE SET expires_ms = excluded.expires_ms, report = excluded.report",
                (self._pipeline, runner, now + duration_ms, json.dumps(report)),
            )
            held = self._held(runner, now)
            known = held if ours is None else held & set(ours)
            self._give_back(runner, held - known)
            self._db.run(
                "UPDATE truecut_lease SET expires_ms = ? WHERE pipeline = ? AND owner = ? AND expires_ms > ?",
                (now + duration_ms, self._pipeline, runner, now),
            )
            alive = self._db.run(
                "SELECT count(*) FROM truecut_runner WHERE pipeline = ? AND expires_ms > ?",
                (self._pipeline, now),
            )
        return known, int(alive[0][0])

    def renew(self, runner: str, *, duration_ms: int) -> None:
        """Whatever is still ours lasts longer; nothing is said of the runner."""
        with self._db.transaction(self._pipeline):
            now = self._now_ms()
            self._db.run(
                "UPDATE truecut_lease SET expires_ms = ? WHERE pipeline = ? AND owner = ? AND expires_ms > ?",
                (now + duration_ms, self._pipeline, runner, now),
            )

    def held(self, runner: str) -> set[str]:
        """The sinks that are this runner's now."""
        with self._db.transaction(self._pipeline, reading=True):
            return self._held(runner, self._now_ms())

    def claim(self, runner: str, sinks: Iterable[str], *, duration_ms: int, count_max: int) -> dict[str, int]:
        """Lease up to `count_max` of these sinks that nobody holds. Each gets a token never given before,
        larger than all before it."""
        with self._db.transaction(self._pipeline):
            now = self._now_ms()
            rows = self._db.run(
                "SELECT sink, token, owner, expires_ms FROM truecut_lease WHERE pipeline = ?",
                (self._pipeline,),
            )
            known = {row[0]: row[1:] for row in rows}
            free = [s for s in sinks if s not in known or known[s][1] is None or int(known[s][2]) <= now][
                :count_max
            ]
            # From the clock: should the store be lost, new tokens still exceed those the sinks have seen.
            clock = self._db.now_us()
            tokens = {s: max(int(known[s][0]) + 1 if s in known else 1, clock) for s in free}
            self._write_leases(runner, tokens, now + duration_ms)
        return tokens

    def raise_token(self, runner: str, above: Mapping[str, int], *, duration_ms: int) -> dict[str, int]:
        """New tokens above what the sinks have seen: the store was lost, or somebody else is ahead.

        Only for sinks that `runner` still holds. Not the very next ones: a runner of another store may have
        been told the same, at the same time, and two that have one token both own the sink.
        """
        with self._db.transaction(self._pipeline):
            now = self._now_ms()
            rows = self._db.run(
                "SELECT sink, token FROM truecut_lease WHERE pipeline = ? AND owner = ? AND expires_ms > ?",
                (self._pipeline, runner, now),
            )
            stride = 1 + self._db.now_us() % TOKENS_APART
            tokens = {s: max(int(token), above[s]) + stride for s, token in rows if s in above}
            self._write_leases(runner, tokens, now + duration_ms)
        return tokens

    def leave(self, runner: str) -> None:
        """A clean stop: release everything and sign off. Whoever ended before us has nothing more to tell."""
        with self._db.transaction(self._pipeline):
            self._db.run(
                "UPDATE truecut_lease SET owner = NULL WHERE pipeline = ? AND owner = ?",
                (self._pipeline, runner),
            )
            totals.signed_off(self._db.run, self._pipeline, runner, now_ms=self._now_ms())
            rows = self._db.run(
                "SELECT report FROM truecut_runner WHERE pipeline = ? AND runner = ?",
                (self._pipeline, runner),
            )
            if any(_seen_at_ms(json.loads(report)) for (report,) in rows):
                self._db.run(
                    "DELETE FROM truecut_runner WHERE pipeline = ? AND runner <> ? AND expires_ms <= ?",
                    (self._pipeline, runner, self._now_ms()),
                )
            self._db.run(
                "UPDATE truecut_runner SET expires_ms = 0 WHERE pipeline = ? AND runner = ?",
                (self._pipeline, runner),
            )

    def _held(self, runner: str, now_ms: int) -> set[str]:
        rows = self._db.run(
            "SELECT sink FROM truecut_lease WHERE pipeline = ? AND owner = ? AND expires_ms > ?",
            (self._pipeline, runner, now_ms),
        )
        return {row[0] for row in rows}

    def _give_back(self, runner: str, sinks: Iterable[str]) -> None:
        rows = [(self._pipeline, runner, sink) for sink in sorted(sinks)]
        if rows:
            self._db.run(
                "UPDATE truecut_lease SET owner = NULL WHERE pipeline = ? AND owner = ? AND sink = ?", *rows
            )

    def _now_ms(self) -> int:
        return self._db.now_us() // 1_000

    def _write_leases(self, runner: str, tokens: Mapping[str, int], expires_ms: int) -> None:
        if not tokens:
            return
        self._db.run(
            "INSERT INTO truecut_lease VALUES (?, ?, ?, ?, ?) ON CONFLICT (pipeline, sink) DO UPDATE SET"
            " owner = excluded.owner, token = excluded.token, expires_ms = excluded.expires_ms",
            *((self._pipeline, sink, runner, token, expires_ms) for sink, token in tokens.items()),
        )

    # --- the source's generation ----------------------------------------------------------------------

    def generation(self, identity: str, *, at_least: int = 1) -> int:
        """The generation of this source: a new identity gets a new, larger one."""
        with self._db.transaction(self._pipeline):
            rows = self._db.run(
                "SELECT identity, generation FROM truecut_source WHERE pipeline = ?", (self._pipeline,)
            )
            known = {row[0]: int(row[1]) for row in rows}
            generation = known.get(identity, max(known.values(), default=0) + 1)
            generation = max(generation, at_least)
            if known.get(identity) != generation:
                self._db.run(
                    "INSERT INTO truecut_source VALUES (?, ?, ?) ON CONFLICT (pipeline, identity)"
                    " DO UPDATE SET generation = excluded.generation",
                    (self._pipeline, identity, generation),
                )
        return generation

    # --- reports --------------------------------------------------------------------------------------

    def report_sinks(
        self, reports: Mapping[str, Mapping[str, Any]], tally: Tally = NOTHING
    ) -> Mapping[str, int]:
        """What `status` shows of these sinks, and what was counted since the last time: told again because no
        answer came, it counts once. Returns the rows that no sink wanted, of all runs and runners."""
        with self._db.transaction(self._pipeline):
            if reports:
                self._db.run(
                    "INSERT INTO truecut_sink VALUES (?, ?, ?) ON CONFLICT (pipeline, sink)"
                    " DO UPDATE SET report = excluded.report",
                    *((self._pipeline, sink, json.dumps(report)) for sink, report in reports.items()),
                )
            totals.add(self._db.run, self._pipeline, tally, now_ms=self._now_ms())
            return totals.unrouted(self._db.run, self._pipeline)

    def reports(self) -> Reports:
        """Everything that was reported last."""
        with self._db.transaction(self._pipeline, reading=True):
            return read_reports(self._db.run, self._pipeline, now_ms=self._now_ms())

    def forget(self) -> bool:
        """Remove this pipeline from the store; True when no other is in it."""
        names = ("lease", "runner", "sink", "source", "tally", "rows", "unrouted")
        tables = [f"truecut_{name}" for name in names]
        with self._db.transaction(self._pipeline):
            for table in tables:
                self._db.run(f"DELETE FROM {table} WHERE pipeline = ?", (self._pipeline,))
            others = [
                self._db.run(f"SELECT count(*) FROM {table} WHERE pipeline <> ?", (self._pipeline,))
                for table in tables
            ]
        return not any(int(rows[0][0]) for rows in others)


def open_control(address: Secret, *, pipeline: str) -> ControlStore:
    """A file path, or `postgresql://…`."""
    text = address.reveal()
    database = Postgres(text, _TABLES) if is_postgres(text) else Sqlite(Path(text), _TABLES)
    return ControlStore(database, pipeline=pipeline)
