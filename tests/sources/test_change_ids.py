"""Position and seq together are a change's id, over all tables of a snapshot."""

from __future__ import annotations

from tests.sources.conftest import MakeLake
from truecut.model.change import PLACE, SEQ
from truecut.model.position import Position
from truecut.model.table import Mode, TableName
from truecut.sources.contract import TableRead, Window, WindowLimits
from truecut.sources.ducklake.source import DuckLakeSource

TABLES = [TableRead(TableName("main", name), ("id",), None) for name in ("t", "u")]
APPEND: frozenset[Mode] = frozenset({"append"})
WIDE = WindowLimits(rows_max=1_000_000, bytes_max=1 << 40)


def ids(window: Window) -> dict[str, list[tuple[int, int]]]:
    """The ids of each table's changes, in the order of the ids."""
    found: dict[str, list[tuple[int, int]]] = {}
    for task in window.tasks:
        for table, batch in task.read():
            pairs = zip(batch[PLACE].to_pylist(), batch[SEQ].to_pylist(), strict=True)
            found.setdefault(str(table), []).extend(pairs)
    return {table: sorted(pairs) for table, pairs in found.items()}


def test_changes_of_several_tables_in_one_transaction_have_ids_of_their_own(make_lake: MakeLake) -> None:
    """No two changes share an id, and a change has the same one whoever is read with it."""
    lake = make_lake()
    lake.run("CREATE TABLE t (id INTEGER, v INTEGER)", "CREATE TABLE u (id INTEGER, v INTEGER)")
    start = lake.head()
    lake.transaction(*(f"INSERT INTO {table} SELECT range, 1 FROM range(5)" for table in "tu"))
    lake.transaction(
        "UPDATE t SET v = 2 WHERE id < 3", "DELETE FROM u WHERE id = 4", "UPDATE u SET v = 3 WHERE id = 0"
    )
    head = lake.head()
    lake.release()
    source = DuckLakeSource(lake.address, generation=1)

    def window(*tables: TableRead) -> Window:
        places = {table.name: (table, Position(1, start), APPEND) for table in tables}
        return source.plan_window(places, upto_max=Position(1, head), limits=WIDE, parallelism=2)

    together = ids(window(*TABLES))
    everything = [one for pairs in together.values() for one in pairs]
    assert len(set(everything)) == len(everything) == 5 + 5 + 3 + 2
    assert ids(window(TABLES[1])) == {"main.u": together["main.u"]}
    seed = ids(source.plan_seed(TABLES, at=Position(1, head), parallelism=2))
    rows = [one for pairs in seed.values() for one in pairs]
    assert len(set(rows)) == len(rows) == 5 + 4
