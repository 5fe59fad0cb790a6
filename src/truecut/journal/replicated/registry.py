"""What the coordinator remembers: nodes, logs and their segments, in SQLite, durable before it is answered.

Every change of a log is one transaction that names the version it follows. Rows carry checksums, and a log's
row says how many segments it has: SQLite itself would not notice a flipped bit.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import uuid
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truecut.core.segment_log import Log, Segment
from truecut.errors import require
from truecut.journal import faults as journal_faults
from truecut.journal.replicated import faults
from truecut.runtime.failpoint import failpoint

FORMAT = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS meta (
  only INTEGER PRIMARY KEY CHECK (only = 1), body TEXT NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS node (id TEXT PRIMARY KEY, body TEXT NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS log (
  name TEXT PRIMARY KEY, version INTEGER NOT NULL, body TEXT NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS segment (
  log TEXT NOT NULL, number INTEGER NOT NULL, body TEXT NOT NULL, crc INTEGER NOT NULL,
  PRIMARY KEY (log, number));
"""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A log as the coordinator knows it."""

    name: str
    id: str
    replicas: int
    log: Log = field(default_factory=Log)
    version: int = 0


class Registry:
    """The one file of the coordinator's folder. Not for several threads at once."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "coordinator.db"
        self._lock = os.open(folder / "coordinator.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise faults.folder_in_use(folder) from None
        try:
            self._database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            (found,) = self._database.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise faults.registry_damaged(self.path, "SQLite's integrity check fails")
            self._database.executescript(_TABLES)
            self.cluster, self._logs = self._meta()
        except sqlite3.DatabaseError as error:
            raise faults.registry_damaged(self.path, "it is no database any more") from error

    def nodes(self) -> dict[str, str]:
        """The addresses of all nodes that were ever heard of."""
        rows = self._database.execute("SELECT id, body, crc FROM node ORDER BY id")
        return {node: self._checked(node, body, crc)["address"] for node, body, crc in rows}

    def logs(self) -> list[LogEntry]:
        """Everything that is known of the logs."""
        rows = self._database.execute("SELECT name, version, body, crc FROM log ORDER BY name").fetchall()
        if len(rows) != self._logs:
            raise faults.registry_damaged(self.path, f"{self._logs} logs are known and {len(rows)} found")
        return [self._log(*row) for row in rows]

    def save_node(self, node: str, address: str) -> None:
        """Where it listens now."""
        body = json.dumps({"address": address})
        self._database.execute("INSERT OR REPLACE INTO node VALUES (?, ?, ?)", (node, body, _crc(node, body)))

    def save_log(self, before: LogEntry | None, after: LogEntry) -> LogEntry:
        """Compare and set: it follows exactly that version."""
        require(before is None or before.version == after.version, "a change follows what was read")
        failpoint("coordinator_saving")
        self._database.execute("BEGIN IMMEDIATE")
        try:
            saved = LogEntry(after.name, after.id, after.replicas, after.log, after.version + 1)
            self._save_head(before, saved)
            self._save_segments(before.log if before else Log(), saved)
            self._database.execute("COMMIT")
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        failpoint("coordinator_saved")
        return saved

    def close(self) -> None:
        """Let the file go."""
        self._database.close()
        os.close(self._lock)

    # --- rows ---

    def _save_head(self, before: LogEntry | None, saved: LogEntry) -> None:
        log = saved.log
        document = {"id": saved.id, "replicas": saved.replicas, "token": log.token}
        body = json.dumps({**document, "trimmed": log.trimmed, "segments": len(log.segments)})
        crc = _crc(saved.name, saved.version, body)
        if before is None:
            self._database.execute(
                "INSERT INTO log VALUES (?, ?, ?, ?)", (saved.name, saved.version, body, crc)
            )
            self._logs += 1
            self._save_meta()
            return
        changed = self._database.execute(
            "UPDATE log SET version = ?, body = ?, crc = ? WHERE name = ? AND version = ?",
            (saved.version, body, crc, saved.name, before.version),
        )
        require(changed.rowcount == 1, "nobody else changes the coordinator's registry")

    def _save_segments(self, before: Log, saved: LogEntry) -> None:
        log = saved.log
        gone = (saved.name, log.trimmed)
        self._database.execute("DELETE FROM segment WHERE log = ? AND number <= ?", gone)
        for number in range(log.trimmed + 1, log.last + 1):
            if before.trimmed < number <= before.last and before[number] == log[number]:
                continue
            body = json.dumps(_document(log[number]), sort_keys=True)
            self._database.execute(
                "INSERT OR REPLACE INTO segment VALUES (?, ?, ?, ?)",
                (saved.name, number, body, _crc(saved.name, number, body)),
            )

    def _log(self, name: str, version: int, body: str, crc: int) -> LogEntry:
        found = self._checked(name, version, body, crc)
        rows = self._database.execute(
            "SELECT number, body, crc FROM segment WHERE log = ? ORDER BY number", (name,)
        ).fetchall()
        numbers = [number for number, _, _ in rows]
        expected = range(found["trimmed"] + 1, found["trimmed"] + found["segments"] + 1)
        if numbers != list(expected):
            raise faults.registry_damaged(self.path, f"segments of the log {name} are missing")
        segments = tuple(_segment(self._checked(name, *row)) for row in rows)
        log = Log(segments, found["token"], found["trimmed"])
        return LogEntry(name, found["id"], found["replicas"], log, version)

    def _meta(self) -> tuple[str, int]:
        row = self._database.execute("SELECT body, crc FROM meta").fetchone()
        if row is None:
            self._require_empty()
            self.cluster, self._logs = str(uuid.uuid4()), 0
            self._save_meta()
            return self.cluster, self._logs
        found = self._checked(*row)
        if found["format"] > FORMAT:
            raise journal_faults.unknown_format(self.path, found["format"])
        return found["cluster"], found["logs"]

    def _require_empty(self) -> None:
        for table in ("node", "log", "segment"):
            if self._database.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone():
                raise faults.registry_damaged(self.path, "its first row is missing")

    def _save_meta(self) -> None:
        body = json.dumps({"format": FORMAT, "cluster": self.cluster, "logs": self._logs})
        self._database.execute("INSERT OR REPLACE INTO meta VALUES (1, ?, ?)", (body, _crc(body)))

    def _checked(self, *row: Any) -> dict[str, Any]:
        *content, crc = row
        if _crc(*content) != crc:
            raise faults.registry_damaged(self.path, "a checksum does not fit")
        return dict(json.loads(content[-1]))


def _crc(*content: object) -> int:
    return zlib.crc32(json.dumps(content).encode())


def _document(segment: Segment) -> dict[str, Any]:
    """What must survive a crash; what fenced replicas have told need not."""
    return {
        "first": segment.first,
        "nodes": sorted(segment.nodes),
        "token": segment.token,
        "end": segment.end,
        "ended": sorted(segment.ended),
    }


def _segment(found: dict[str, Any]) -> Segment:
    nodes, ended = frozenset(found["nodes"]), frozenset(found["ended"])
    return Segment(found["first"], nodes, found["token"], found["end"], ended)
