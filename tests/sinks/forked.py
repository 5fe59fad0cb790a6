"""Processes of their own, forked from one that has done the imports and nothing else.

That one has opened no DuckDB and no connection, so whoever is forked from it is as good as a new process, for
a small part of the CPU seconds. Spark's workers are made in the same way.
"""

from __future__ import annotations

from multiprocessing import get_context

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["pytest", "tests.sinks.stepped", "tests.sinks.stepped_postgres", "tests.sinks.crashing"]
)
