"""What can go wrong with a journal, in words for its user."""

from __future__ import annotations

from pathlib import Path

from truecut.errors import ExitCode, Retry, TruecutError
from truecut.model.position import Position


def corrupt(path: Path, what: str) -> TruecutError:
    """Bytes below the committed length are not what was written."""
    return TruecutError(
        "TC6001",
        f"{path} is damaged: {what}",
        fix=f"`truecut journal inspect {path.parent}` shows the range. Put a copy of the file back; without "
        "one, `truecut journal inspect --repair` moves the damaged part aside and ends the log before it.",
        exit_code=ExitCode.VERIFICATION_FAILED,
    )


def unfit_folder(folder: Path, reason: str) -> TruecutError:
    """The system does not let us make it, or write there."""
    return TruecutError(
        "TC6013",
        f"the journal's folder {folder} cannot be made or written to ({reason})",
        fix="Make it, or its parent, writable for this user; or choose another folder.",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def in_use(folder: Path) -> TruecutError:
    """Another process writes to it."""
    return TruecutError(
        "TC6002",
        f"the journal {folder} has a writer already",
        fix="Stop the other process; a journal has one writer, and any number of readers.",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def fenced(folder: Path) -> TruecutError:
    """Another process has taken over."""
    return TruecutError(
        "TC6003",
        f"another writer has taken the journal {folder} over",
        fix="None needed here: what was not acknowledged is the other one's to write.",
        retry=Retry.FATAL,
    )


def failed(folder: Path, reason: str) -> TruecutError:
    """What was written may or may not be on the disk: nobody can know before a new process reads it."""
    return TruecutError(
        "TC6004",
        f"the disk of the journal {folder} failed ({reason})",
        fix="Check the disk, then start again: what is on it is read anew.",
        retry=Retry.FATAL,
    )


def disk_full(folder: Path) -> TruecutError:
    """Appends wait."""
    return TruecutError(
        "TC6010",
        f"the disk of the journal {folder} is full",
        fix="Free space; it goes on by itself, and nothing is lost.",
        retry=Retry.RETRYABLE,
    )


def writer_failed(journal: Path | str, reason: str) -> TruecutError:
    """A fault of ours. What was being written may or may not be there; nothing more is taken."""
    return TruecutError(
        "TC6012",
        f"the writer of the journal {journal} has failed ({reason}); this is a bug",
        fix="Open the journal again: what it holds is read anew. Please report it, with the process's log.",
        retry=Retry.FATAL,
    )


def full(folder: Path | str, *, bytes_max: int) -> TruecutError:
    """Its budget is used up: nothing is dropped, so nothing is taken."""
    return TruecutError(
        "TC6005",
        f"the journal {folder} has reached its {bytes_max:,} bytes",
        fix="It goes on when sinks have caught up and it has been trimmed; or raise `journal.bytes_max`.",
        retry=Retry.RETRYABLE,
    )


def trimmed(folder: Path | str, *, after: Position | None, oldest: Position | None) -> TruecutError:
    """The reader wants what is no longer there."""
    return TruecutError(
        "TC6006",
        f"the journal {folder} begins at {oldest}; what follows {after or 'its start'} has been trimmed",
        fix="Read from the oldest position on, after a new copy of the tables.",
    )


def lost(folder: Path, *, first: int, last: int) -> TruecutError:
    """A repair has ended the log there, and let it go on behind the damage."""
    return TruecutError(
        "TC6011",
        f"the records {first} to {last} of the journal {folder} were damaged and are lost",
        fix=f"Copy the tables anew, then read after {last}.",
        exit_code=ExitCode.VERIFICATION_FAILED,
    )


def unknown_format(path: Path) -> TruecutError:
    """It was written by a version that knows more."""
    return TruecutError(
        "TC6007",
        f"{path} has a format that this version does not know",
        fix="Upgrade truecut to the version that wrote it, or a newer one.",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def moved_on(*, expected: Position | None, last: Position | None) -> TruecutError:
    """Somebody has appended what the caller does not know of."""
    return TruecutError(
        "TC6008",
        f"the journal ends at {last}, not at {expected}",
        fix="Read from there on before you append again.",
    )


def no_log(folder: Path) -> TruecutError:
    """There is nothing to read."""
    return TruecutError(
        "TC6009",
        f"there is no log in {folder}",
        fix="Check the folder (--data and --log; in Spark, `path`); a log is made by the first append.",
        exit_code=ExitCode.WRONG_INPUT,
    )


def unknown_codec(codec: str, position: Position) -> TruecutError:
    """Nobody here knows how the payload is written."""
    return TruecutError(
        "TC6020",
        f"the record {position} is written in {codec}, which this version does not read",
        fix="Upgrade truecut to the version that wrote it, or a newer one.",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def undecodable(codec: str, position: Position, reason: str) -> TruecutError:
    """The journal's checksum is right, so it was written like that."""
    return TruecutError(
        "TC6021",
        f"the record {position} is not what {codec} says it is: {reason}",
        fix="Whoever wrote it has a fault; to go on without it, read after its position.",
    )


def unreadable_kind(kind: str, position: Position) -> TruecutError:
    """Leaving it out would leave rows out."""
    return TruecutError(
        "TC6023",
        f"the record {position} is a {kind}, whose rows are not in the log",
        fix="Read after its position; its rows are in the file that it names.",
    )


def ends_before(position: Position, *, head: Position | None) -> TruecutError:
    """It is shorter than it was, or it never was this log."""
    return TruecutError(
        "TC6024",
        f"the log ends at {head}, before {position}",
        fix="After a crash it may take its writer's next start until the end is known again: try again then. "
        "Otherwise the position is of another log: give one of this log, or begin with a new checkpoint.",
        retry=Retry.RETRYABLE,
    )
