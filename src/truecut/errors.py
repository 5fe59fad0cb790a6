"""Every error a user can meet: a code, what happened to which object, and what to do next.

Messages carry names, positions and counts, never a row's values and never a secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum


class ExitCode(IntEnum):
    """What a command's exit status means; fixed in the interface."""

    OK = 0
    FAILED = 1
    WRONG_INPUT = 2
    UNFIT_ENVIRONMENT = 3
    VERIFICATION_FAILED = 4
    VERIFICATION_UNKNOWN = 5


class Retry(Enum):
    """Whether trying again can help."""

    RETRYABLE = "retryable"  # by itself, with backoff
    GAP = "gap"  # not from here: the table has lost its place in the source's history
    NOT_RETRYABLE = "not_retryable"  # somebody must act; other sinks and tables go on
    FATAL = "fatal"  # this runner must stop using the sink (fenced), or stop altogether


@dataclass(frozen=True, slots=True)
class Fault:
    """An error as data: what a receipt, the control store and `status` carry."""

    code: str
    message: str
    fix: str
    retry: Retry = Retry.NOT_RETRYABLE

    def document(self) -> dict[str, object]:
        """As JSON documents show it."""
        return {
            "code": self.code,
            "message": self.message,
            "retryable": self.retry is Retry.RETRYABLE,
            "fix": self.fix,
        }


@dataclass(frozen=True, slots=True)
class Symptom:
    """Words of somebody else's error message (any of them), and what they mean."""

    words: tuple[str, ...]
    code: str
    meaning: str
    fix: str
    retry: Retry = Retry.NOT_RETRYABLE

    def shows_in(self, text: str) -> bool:
        """Whether a message, in small letters, has one of the words."""
        return any(word in text for word in self.words)

    def fault(self, what: str) -> Fault:
        """That it happened to `what`."""
        return Fault(self.code, f"{what}: {self.meaning}", self.fix, self.retry)


class TruecutError(Exception):
    """Raised where a fault cannot be returned as data."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        fix: str,
        retry: Retry = Retry.NOT_RETRYABLE,
        exit_code: ExitCode = ExitCode.FAILED,
    ) -> None:
        super().__init__(message)
        self.fault = Fault(code, message, fix, retry)
        self.exit_code = exit_code

    @staticmethod
    def of(fault: Fault, exit_code: ExitCode = ExitCode.FAILED) -> TruecutError:
        """The fault, as something to raise."""
        return TruecutError(fault.code, fault.message, fix=fault.fix, retry=fault.retry, exit_code=exit_code)

    def __reduce__(self) -> tuple[object, ...]:
        # Crosses process borders (executors): rebuild from the parts.
        return TruecutError.of, (self.fault, self.exit_code)

    def __str__(self) -> str:
        return f"{self.fault.code} {self.fault.message}\n  fix: {self.fault.fix}"


def require(condition: bool, law: str) -> None:
    """An invariant that must hold even under `python -O`."""
    if not condition:
        raise AssertionError(law)
