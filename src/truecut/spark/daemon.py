"""The process that Spark forks its Python workers from, with the slow imports done once, beforehand.

Without it every new worker spends about a second importing. Nothing here opens a connection or starts a
thread: neither survives a fork.
"""

import duckdb  # noqa: F401
import pandas  # noqa: F401
import pyarrow.compute  # noqa: F401
from pyspark.daemon import manager

import truecut.sinks.ducklake
import truecut.sources.ducklake
import truecut.spark.source
import truecut.spark.wave  # noqa: F401

if __name__ == "__main__":
    manager()
