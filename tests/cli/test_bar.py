"""What a verification shows on a terminal."""

from __future__ import annotations

import io
import time

from pyspark.sql import SparkSession
from rich.console import Console

from tests.patience import PATIENCE_S
from truecut.cli.bar import bar_on


def test_the_bar_counts_the_tasks_of_its_step(spark: SparkSession) -> None:
    """It stands at nothing before a step's jobs, at the end after them, and begins anew with the next step;
    where there is no terminal nothing is drawn."""
    drawn = io.StringIO()
    with bar_on(Console(file=drawn, force_terminal=True, width=100), "starting Spark") as bar:
        bar.joined(spark)
        bar.step("reading main.events")
        bar.look()
        assert bar._progress.tasks[0].completed == 0
        assert spark.range(0, 40, 1, 4).count() == 40
        give_up_at = time.monotonic() + PATIENCE_S
        while bar._progress.tasks[0].completed < 1:  # Spark tells of a task a while after it has its result
            assert time.monotonic() < give_up_at
            bar.look()
        bar.step("comparing")
        bar.look()
        assert bar._progress.tasks[0].completed == 0
    assert "reading main.events" in drawn.getvalue() or "comparing" in drawn.getvalue()
    plain = io.StringIO()
    with bar_on(Console(file=plain), "starting Spark") as bar:
        bar.step("comparing")
    assert plain.getvalue().strip() == ""
