"""Truecut: change data capture on Apache Spark that proves the copy equals the source."""

__version__ = "0.1.0"
