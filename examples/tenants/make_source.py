"""Makes the lake of this example, beside this file, with plain DuckDB and without a network.

python make_source.py            a new lake with a thousand events of three tenants
python make_source.py --more     a few more commits: inserts, updates, deletes
"""

from __future__ import annotations

import sys
from pathlib import Path

from truecut.lake import connect

HERE = Path(__file__).parent
ATTACH = (
    f"ATTACH 'ducklake:sqlite:{HERE / 'source.ducklake'}' AS lake"
    f" (DATA_PATH '{HERE / 'source-data'}', META_JOURNAL_MODE 'WAL')"
)
TENANTS = "['acme', 'globex', 'hooli']"
NEW = (
    "CREATE TABLE lake.main.events (id BIGINT, tenant VARCHAR, what VARCHAR)",
    "CREATE TABLE lake.main.plans (name VARCHAR, price DECIMAL(8, 2))",
    "INSERT INTO lake.main.plans VALUES ('free', 0), ('team', 20)",
    f"INSERT INTO lake.main.events SELECT i, {TENANTS}[1 + i % 3], 'signed in' FROM range(1000) r(i)",
)
MORE = (
    "INSERT INTO lake.main.events SELECT (SELECT max(id) + 1 FROM lake.main.events) + i,"
    f" {TENANTS}[1 + i % 3], 'signed up' FROM range(30) r(i)",
    "UPDATE lake.main.events SET what = 'signed out' WHERE id % 100 = 7",
    "DELETE FROM lake.main.events WHERE id % 100 = 8",
)


def main() -> None:
    more = "--more" in sys.argv
    if (HERE / "source.ducklake").exists() != more:
        sys.exit("there is a lake already: --more changes it" if not more else "there is no lake yet")
    with connect() as lake:
        lake.execute(ATTACH)
        for statement in MORE if more else NEW:
            lake.execute(statement)
        counts = lake.execute("SELECT tenant, count(*) FROM lake.main.events GROUP BY ALL ORDER BY ALL")
        print(*(f"{tenant}: {count} events" for tenant, count in counts.fetchall()), sep="\n")


if __name__ == "__main__":
    main()
