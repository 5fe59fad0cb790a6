"""Names of the pipeline file that are taken but not available yet: an error that says so."""

from __future__ import annotations

KEYS = frozenset(
    {
        # PostgreSQL's, of connectors that have none of these
        *("dsn", "schema"),
        # transforms, history, dead letters, policies
        *("columns", "filter", "on_error", "deletes", "as", "format", "commit_policy", "required"),
        *("dead_letters", "maintenance", "options"),
    }
)

SOURCE_TYPES = frozenset({"mariadb", "turso", "sharded", "mongodb", "pipeline"})
SINK_TYPES = frozenset({"kafka", "nats", "redis", "delta", "iceberg", "files", "mariadb"})
MODES = frozenset({"history"})
