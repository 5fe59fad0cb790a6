"""DuckLake as a sink."""

from truecut.sinks.ducklake.sink import DuckLakeSink

__all__ = ["DuckLakeSink"]
