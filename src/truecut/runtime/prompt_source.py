"""A source that answers, or of which it is said that it does not: the driver's questions have deadlines, too.

A server that says nothing would otherwise hold a thread of the runner for ever, without a word. Like
any deadline here it is one without progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from truecut.config.kinds import SourceWords
from truecut.errors import Retry, TruecutError
from truecut.model.position import Position
from truecut.model.table import Mode, TableName, TableSchema
from truecut.sources.contract import Observation, Source, TableRead, Window, WindowLimits
from truecut.threads import Late, refusal, within

_WHO = "asking the source"

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class PromptSource:
    """Another source, asked in threads that may be left behind."""

    source: Source
    deadline_ms: int
    words: SourceWords = field(default_factory=SourceWords)

    def observe(self) -> Observation:
        return self._ask(self.source.observe)

    def describe(self, table: TableRead, *, at: Position) -> TableSchema:
        return self._ask(lambda: self.source.describe(table, at=at))

    def plan_window(
        self,
        tables: Mapping[TableName, tuple[TableRead, Position, frozenset[Mode]]],
        *,
        upto_max: Position,
        limits: WindowLimits,
        parallelism: int,
    ) -> Window:
        return self._ask(
            lambda: self.source.plan_window(tables, upto_max=upto_max, limits=limits, parallelism=parallelism)
        )

    def plan_seed(self, tables: Sequence[TableRead], *, at: Position, parallelism: int) -> Window:
        return self._ask(lambda: self.source.plan_seed(tables, at=at, parallelism=parallelism))

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        def answers() -> Iterator[Answer]:
            yield question()

        refused = refusal(_WHO)
        if refused is not None:
            raise TruecutError.of(refused)
        try:
            (answer,) = within(_WHO, answers, deadline_s=self.deadline_ms / 1000)
        except Late:
            raise TruecutError(
                "TC3043",
                f"the source has not answered, and made no progress, for {self.deadline_ms / 1000:g} s",
                fix=f"Check {self.words.behind}; it is asked again by itself.",
                retry=Retry.RETRYABLE,
            ) from None
        return answer
