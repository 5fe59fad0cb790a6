"""The lives of `test_lives`, told by hypothesis: which steps, in which order and with which choices is drawn,
and a life that fails is made as short as can be."""

from __future__ import annotations

import itertools
import os
import random
import tempfile
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.postgres_server import PostgresServer
from tests.sources.postgres.following import looking_always
from tests.sources.postgres.piped import Piped, pipeline_document
from tests.sources.postgres.test_lives import Life

__all__ = ["looking_always"]
KEYS = {"items": ["id"], "pairs": ["a", "b"], "parts": ["id"]}
CHOICES = st.integers(0, 1 << 16)
ROUNDS_MAX = 60  # a table waits for those who write to it, who may not end
_numbers = itertools.count(1)


class LifeMachine(RuleBasedStateMachine):
    """Each rule is one kind of step; its choices follow from one number."""

    compared = 0

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        super().__init__()
        name = f"machine_{next(_numbers)}"
        conninfo = server.create_database(name)
        tables = [{"name": f"public.{table}", "key": key} for table, key in KEYS.items()]
        inside = Path(tempfile.mkdtemp(dir=folder))
        self.piped = Piped(inside, conninfo, pipeline_document(name, conninfo, tables))
        self.life = Life(self.piped, random.Random(0))

    def _choosing(self, choices: int) -> Life:
        self.life.rng.seed(choices)
        return self.life

    @rule(choices=CHOICES, count=st.integers(1, 40))
    def work(self, choices: int, count: int) -> None:
        """Statements of several sessions: their transactions overlap, and stay open between rules."""
        self._choosing(choices).busy.steps(count)

    @rule(choices=CHOICES)
    def capture(self, choices: int) -> None:
        self._choosing(choices).capture()

    @rule(choices=CHOICES)
    def deliver(self, choices: int) -> None:
        self._choosing(choices).some_windows()

    @initialize(choices=CHOICES)
    def copy_all(self, choices: int) -> None:
        """While everybody works: what is left to the end would be copied in peace."""
        self._bring(self._choosing(choices))

    @rule(choices=CHOICES)
    def bring(self, choices: int) -> None:
        """What was given up since, in the same way."""
        self._bring(self._choosing(choices))

    def _bring(self, life: Life) -> None:
        for _ in range(ROUNDS_MAX):
            if all(held.at is not None for held in life.follower.tables.values()):
                return
            life.busy.steps(3)
            life.bring()
            if life.rng.random() < 0.3:
                life.capture()

    @rule(choices=CHOICES)
    def copy_anew(self, choices: int) -> None:
        self._choosing(choices).copy_anew()

    @rule()
    def forget(self) -> None:
        self.life.forget()

    @rule(choices=CHOICES)
    def change_schema(self, choices: int) -> None:
        self._choosing(choices).change()

    @rule(choices=CHOICES)
    def compare(self, choices: int) -> None:
        """At a frontier: the consistent point of a slot, or a snapshot in the middle of everything."""
        self._choosing(choices).compare()

    def teardown(self) -> None:
        """Whatever has happened: what streams is the source now, and everything is in the end."""
        try:
            self._choosing(0).compare()
            self.life.end()
            LifeMachine.compared += self.life.compared.total()
        finally:
            self.life.busy.close()
            self.piped.close()


def live(server: PostgresServer, folder: Path, *, lives: int, steps: int, derandomize: bool) -> None:
    LifeMachine.compared = 0
    run_state_machine_as_test(
        cast("type[RuleBasedStateMachine]", lambda: LifeMachine(server, folder)),  # whatever makes one
        settings=settings(
            max_examples=lives,
            stateful_step_count=steps,
            derandomize=derandomize,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_life_of_any_steps_is_the_source(
    postgres: PostgresServer, tmp_path: Path, looking_always: None
) -> None:
    """A few, always the same; not all of their tables are left to be compared at the end."""
    live(postgres, tmp_path, lives=3, steps=20, derandomize=True)
    assert LifeMachine.compared > 3 * 3


@pytest.mark.soak
def test_many_lives_of_any_steps(postgres: PostgresServer, tmp_path: Path, looking_always: None) -> None:
    """New ones each time; how many is TRUECUT_LIVES."""
    lives = int(os.environ.get("TRUECUT_LIVES", "30"))
    live(postgres, tmp_path, lives=lives, steps=150, derandomize=False)
    assert LifeMachine.compared > 3 * lives
