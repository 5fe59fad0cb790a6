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
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.postgres_server import PostgresServer
from tests.sources.postgres.following import looking_always
from tests.sources.postgres.piped import Piped, pipeline_document
from tests.sources.postgres.test_lives import Life

__all__ = ["looking_always"]
KEYS = {"items": ["id"], "pairs": ["a", "b"], "parts": ["id"]}
CHOICES = st.integers(0, 1 << 16)
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

    @rule(choices=CHOICES, count=st.integers(1, 12))
    def bring(self, choices: int, count: int) -> None:
        """A table or more, while everybody works on."""
        life = self._choosing(choices)
        for _ in range(count):
            life.bring()
            life.busy.steps(life.rng.randrange(4))
            if life.rng.random() < 0.2:
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
        """Whatever has happened: everything is the source in the end."""
        try:
            self._choosing(0).end()
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
    """A few, always the same."""
    live(postgres, tmp_path, lives=4, steps=60, derandomize=True)
    assert LifeMachine.compared > 20


@pytest.mark.soak
def test_many_lives_of_any_steps(postgres: PostgresServer, tmp_path: Path, looking_always: None) -> None:
    """New ones each time; how many is TRUECUT_LIVES."""
    lives = int(os.environ.get("TRUECUT_LIVES", "30"))
    live(postgres, tmp_path, lives=lives, steps=150, derandomize=False)
    assert LifeMachine.compared > 3 * lives
