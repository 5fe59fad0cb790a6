"""What the coordinator remembers: nodes, logs and their segments, in SQLite, durable before it is answered.

Every change of a log is one transaction that names the version it follows. Rows carry checksums, the first
one says how many logs and nodes there are, and a log's row how many segments: SQLite itself would not notice
a flipped bit. For the same reason there is no write-ahead log: what follows a flipped bit in it would be
forgotten in silence.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truecut.core.segment_log import Log, Segment
from truecut.errors import require
from truecut.failpoint import failpoint
from truecut.journal import disk
from truecut.journal import faults as journal_faults
from truecut.journal.replicated import faults

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
    """The one file of the coordinator's folder. One change at a time; none once it is closed."""

    def __init__(self, folder: Path) -> None:
        self._alone = (
            threading.RLock()
        )  # SQLite dies when a connection is closed while another thread commits
        self._closed = False
        self.path = folder / "coordinator.db"
        with disk.taking(folder):
            disk.make_folder(folder)
            self._lock = disk.open_or_create(folder / "coordinator.lock")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise faults.folder_in_use(folder) from None
        try:
            self._open()
        except BaseException:
            os.close(self._lock)
            raise

    def _open(self) -> None:
        with self._reading():
            self._database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            disk.sync_commits(self._database)
            (found,) = self._database.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise faults.registry_damaged(self.path, "SQLite's integrity check fails")
            self._database.execute("PRAGMA journal_mode = TRUNCATE")
            self._settle()
            if not os.fstat(self._lock).st_size:
                self._make()
            disk.sync(self._lock, "registry_made")  # also what somebody wrote who was killed before
            self.cluster, self._counts = self._meta()
            self._nodes = self._read_nodes()
            self._entries = self._read_logs()

    def _settle(self) -> None:
        """A commit is durable when its journal is known to be empty; whoever committed last may have been
        killed before that, and what is read here is acted upon."""
        journal = self.path.with_name(f"{self.path.name}-journal")
        if journal.exists():
            disk.sync_file(journal, "registry_found")

    def nodes(self) -> dict[str, str]:
        """The addresses of all nodes that were ever heard of, when it was opened."""
        return self._nodes

    def logs(self) -> list[LogEntry]:
        """Everything that was known of the logs when it was opened."""
        return self._entries

    def save_node(self, node: str, address: str) -> None:
        """Where it listens now."""
        body = json.dumps({"address": address})
        row = (node, body, _crc(node, body))
        with self._transaction():
            known = self._database.execute("SELECT 1 FROM node WHERE id = ?", (node,)).fetchone()
            self._database.execute("INSERT OR REPLACE INTO node VALUES (?, ?, ?)", row)
            if not known:
                self._count("nodes")

    def save_log(self, before: LogEntry | None, after: LogEntry) -> LogEntry:
        """Compare and set: it follows exactly that version."""
        require(before is None or before.version == after.version, "a change follows what was read")
        failpoint("coordinator_saving")
        saved = LogEntry(after.name, after.id, after.replicas, after.log, after.version + 1)
        with self._transaction():
            self._save_head(before, saved)
            self._save_segments(before.log if before else Log(), saved)
        failpoint("coordinator_saved")
        return saved

    def close(self) -> None:
        """Let the file go, once what is being saved is saved."""
        with self._alone:
            self._closed = True
            self._database.close()
            os.close(self._lock)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of it or nothing, also of what is counted."""
        with self._alone:
            if self._closed:
                raise faults.coordinator_stopped()
            counts = dict(self._counts)
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                self._counts = counts
                self._database.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Whatever cannot be understood is damage."""
        try:
            yield
        except sqlite3.Error as error:
            raise faults.registry_damaged(self.path, "it is no database any more") from error
        except (ValueError, LookupError, TypeError) as error:
            raise faults.registry_damaged(self.path, "a row is not what was written") from error

    # --- rows ---

    def _make(self) -> None:
        """Once: from here on the lock file says that there is a registry, and its loss is noticed."""
        self.cluster, self._counts = str(uuid.uuid4()), {"logs": 0, "nodes": 0}
        with self._transaction():
            for table in _TABLES.split(";"):
                self._database.execute(table)
            if not self._database.execute("SELECT 1 FROM meta").fetchone():
                self._require_empty()
                self._save_meta()
        disk.write_at(self._lock, 0, [b"made\n"])

    def _read_nodes(self) -> dict[str, str]:
        rows = self._database.execute("SELECT id, body, crc FROM node ORDER BY id").fetchall()
        self._require_count("nodes", len(rows))
        return {node: self._checked(node, body, crc)["address"] for node, body, crc in rows}

    def _read_logs(self) -> list[LogEntry]:
        rows = self._database.execute("SELECT name, version, body, crc FROM log ORDER BY name").fetchall()
        self._require_count("logs", len(rows))
        return [self._log(*row) for row in rows]

    def _require_count(self, what: str, found: int) -> None:
        if found != self._counts[what]:
            raise faults.registry_damaged(self.path, f"{self._counts[what]} {what} are known, {found} found")

    def _count(self, what: str) -> None:
        self._counts = {**self._counts, what: self._counts[what] + 1}
        self._save_meta()

    def _save_head(self, before: LogEntry | None, saved: LogEntry) -> None:
        log = saved.log
        document = {"id": saved.id, "replicas": saved.replicas, "token": log.token}
        body = json.dumps({**document, "trimmed": log.trimmed, "segments": len(log.segments)})
        crc = _crc(saved.name, saved.version, body)
        if before is None:
            self._database.execute(
                "INSERT INTO log VALUES (?, ?, ?, ?)", (saved.name, saved.version, body, crc)
            )
            self._count("logs")
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

    def _meta(self) -> tuple[str, dict[str, int]]:
        row = self._database.execute("SELECT body, crc FROM meta").fetchone()
        if row is None:
            raise faults.registry_damaged(self.path, "its first row is missing")
        found = self._checked(*row)
        if found["format"] > FORMAT:
            raise journal_faults.unknown_format(self.path)
        return found["cluster"], {"logs": found["logs"], "nodes": found["nodes"]}

    def _require_empty(self) -> None:
        for table in ("node", "log", "segment"):
            if self._database.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone():
                raise faults.registry_damaged(self.path, "its first row is missing")

    def _save_meta(self) -> None:
        body = json.dumps({"format": FORMAT, "cluster": self.cluster, **self._counts})
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
