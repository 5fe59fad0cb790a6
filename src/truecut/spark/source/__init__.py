"""`format("truecut")`: a log as a Spark data source. Of all that is here, users need these two names."""

from truecut.spark.source.format import TruecutSource, register

__all__ = ["TruecutSource", "register"]
