"""The process that Spark forks its Python workers from, with the slow imports done once, beforehand.

Without it every new worker spends about a second importing. Nothing here opens a connection or starts a
thread: neither survives a fork.
"""

import importlib

import pandas  # noqa: F401
import pyarrow.compute  # noqa: F401
from pyspark.daemon import manager

import truecut.spark.source
import truecut.spark.wave.job  # noqa: F401
from truecut.config.kinds import SINKS, SOURCES

for module in (*SOURCES.worker_modules(), *SINKS.worker_modules()):
    importlib.import_module(module)

if __name__ == "__main__":
    manager()
