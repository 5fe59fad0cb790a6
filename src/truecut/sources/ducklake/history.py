"""Decisions about history: may the change feed be believed, where does a window end, how is it shared out.

Pure functions over what the catalog says. The change feed is believed only when no maintenance touched
what it reads: before the window, in it, or after it up to now, because compaction rewrites the files that
hold older snapshots, too. Everything else is read as the difference of two versions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from truecut.sources.contract import WindowLimits
from truecut.sources.ducklake.catalog import ORDINARY, UNTOUCHED, WITHOUT_DELETES, Snapshot
from truecut.sources.ducklake.files import Weight

# A table with a column of such a name hides the feed's own column from us.
FEED_COLUMNS = frozenset({"snapshot_id", "rowid"})

# Likewise: for reading single files, and for telling the rows of a file apart.
FILE_COLUMN, ROW_COLUMN = "filename", "file_row_number"

TASK_ROWS_MIN = 50_000  # below this another task costs more than it saves
BUCKET_ROWS = 500_000  # rows of one version that one difference task compares
BUCKETS_MAX = 64


def feed_is_exact(history: Sequence[Snapshot], *, table_id: int, after: int, maintained: bool) -> bool:
    """Whether the feed of `(after, …]` tells the truth; `history` is everything after it, up to now."""
    if maintained:
        return False
    if any(snapshot.id != after + 1 + n for n, snapshot in enumerate(history)):
        return False  # expired in the middle: whatever happened there is unknown
    return all(snapshot.kinds(table_id) <= ORDINARY for snapshot in history)


def steps(history: Sequence[Snapshot], *, table_id: int, after: int, upto: int) -> list[int]:
    """The snapshots of `(after, upto]` that may have changed rows: by what they say, or after a hole."""
    found = []
    previous = after
    for snapshot in history:
        if snapshot.id > upto:
            break
        if snapshot.id != previous + 1 or not snapshot.kinds(table_id) <= UNTOUCHED:
            found.append(snapshot.id)
        previous = snapshot.id
    return found


def only_inserts(history: Sequence[Snapshot], *, table_id: int, after: int, upto: int) -> bool:
    """Whether the snapshots of `(after, upto]` say that they took no row away and changed none."""
    within = (snapshot for snapshot in history if after < snapshot.id <= upto)
    return all(snapshot.kinds(table_id) <= WITHOUT_DELETES for snapshot in within)


def cut(
    ids: Sequence[int], weights: Mapping[int, tuple[int, int]], *, at_least: int, limits: WindowLimits
) -> int:
    """The last snapshot of a window that stays within the limits, but never before `at_least`."""
    rows = size = 0
    end = at_least
    for snapshot in ids:
        more = weights.get(snapshot, (0, 0))
        rows, size = rows + more[0], size + more[1]
        if snapshot > at_least and (rows > limits.rows_max or size > limits.bytes_max):
            break
        end = max(end, snapshot)
    return end


def split(weights: Sequence[Weight], *, after: int, upto: int, parallelism: int) -> list[tuple[int, int]]:
    """`(after, upto]` in at most `parallelism` pieces of like size, cut between snapshots."""
    total = sum(weight.rows for weight in weights)
    pieces = max(1, min(parallelism, total // TASK_ROWS_MIN))
    share = total / pieces
    ends: list[int] = []
    rows = 0
    for weight in weights:
        rows += weight.rows
        if weight.snapshot < upto and rows >= share * (len(ends) + 1) and len(ends) + 1 < pieces:
            ends.append(weight.snapshot)
    starts = [after, *ends]
    return list(zip(starts, [*ends, upto], strict=True))


def buckets(rows: int) -> int:
    """How many tasks share a difference. Depends on the table alone, so that a repeat is the same."""
    return min(BUCKETS_MAX, 1 + rows // BUCKET_ROWS)


def last_at_or_before(ids: Sequence[int], snapshot: int) -> int | None:
    """The newest of the ascending ids that is not after `snapshot`."""
    place = bisect_right(ids, snapshot)
    return ids[place - 1] if place else None


def share(files: Sequence[tuple[str, int]], parallelism: int) -> list[tuple[str, ...]]:
    """Files (path, bytes) in at most `parallelism` shares of like size; at least one, perhaps empty."""
    shares: list[tuple[int, list[str]]] = [(0, []) for _ in range(max(1, min(parallelism, len(files))))]
    for path, size in sorted(files, key=lambda file: (-file[1], file[0])):
        n = min(range(len(shares)), key=lambda place: shares[place][0])
        shares[n] = (shares[n][0] + size, [*shares[n][1], path])
    return [tuple(paths) for _, paths in shares]
