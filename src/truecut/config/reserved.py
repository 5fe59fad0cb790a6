"""Names of the pipeline file that are taken but not available yet: an error that says so."""

from __future__ import annotations

KEYS = frozenset(
    {
        # PostgreSQL
        *("dsn", "slot", "publication", "schema", "exclude", "backfill", "on_schema_change", "wal_budget"),
        # journal and certificates
        *("journal", "certificate", "hold"),
        # transforms, history, dead letters, policies
        *("columns", "filter", "on_error", "deletes", "as", "format", "commit_policy", "required"),
        *("dead_letters", "maintenance", "options"),
    }
)

SOURCE_TYPES = frozenset({"postgres", "mariadb", "turso", "sharded", "mongodb", "pipeline"})
SINK_TYPES = frozenset({"kafka", "nats", "redis", "delta", "iceberg", "files", "mariadb"})
MODES = frozenset({"history"})
