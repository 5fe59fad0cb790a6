"""Every type that a DuckLake column can have arrives unchanged, through Arrow, in both modes."""

from __future__ import annotations

from tests.sinks.world import COMMITTED, applied, opened, order, seed, sink
from truecut.lake import LakeAddress, connect
from truecut.model.table import Column, TableSchema
from truecut.sinks.contract import Packet

TYPES = {
    "BOOLEAN": "true",
    "TINYINT": "-128",
    "SMALLINT": "-32768",
    "INTEGER": "-2147483648",
    "BIGINT": "9223372036854775807",
    "HUGEINT": "170141183460469231731687303715884105727",
    "UTINYINT": "255",
    "USMALLINT": "65535",
    "UINTEGER": "4294967295",
    "UBIGINT": "18446744073709551615",
    "UHUGEINT": "340282366920938463463374607431768211455",
    "FLOAT": "1.5",
    "DOUBLE": "'nan'",
    "DECIMAL(38,10)": "'1234567890123456789012345678.0123456789'",
    "VARCHAR": "'ü\U0001f986'",
    "BLOB": r"'\x00\xFF'",
    "UUID": "'6d3d2541-710b-4bde-b3af-4711738636bf'",
    "DATE": "'0044-03-15 (BC)'",
    "TIME": "'23:59:59.999999'",
    "TIMESTAMP": "'2026-01-01 00:00:00.123456'",
    "TIMESTAMP_S": "'2026-01-01 00:00:01'",
    "TIMESTAMP_MS": "'2026-01-01 00:00:01.001'",
    "TIMESTAMP_NS": "'2026-01-01 00:00:01.001002003'",
    "TIMESTAMP WITH TIME ZONE": "'2026-01-01 00:00:00.5+03'",
    "INTERVAL": "'1 month 2 days 3 microseconds'",
    "JSON": """'{"a": [1, null]}'""",
    "INTEGER[]": "[1, NULL, 3]",
    "STRUCT(a INTEGER, b VARCHAR[])": "{'a': 1, 'b': ['x']}",
    "MAP(VARCHAR, INTEGER)": "MAP {'k': 1}",
}


def test_all_types_survive(address: LakeAddress) -> None:
    """Each type's value, and NULL, is at the sink what it was at the source."""
    schema = TableSchema(
        "7", (Column(1, "id", "BIGINT"), *(Column(i + 2, f"c{i}", kind) for i, kind in enumerate(TYPES)))
    )
    source = connect()
    source.execute("SET arrow_lossless_conversion = true")
    values = ", ".join(f"CAST({text} AS {kind}) AS c{i}" for i, (kind, text) in enumerate(TYPES.items()))
    nulls = ", ".join("NULL" for _ in TYPES)
    source.execute(
        "CREATE TABLE rows AS SELECT 4::UTINYINT AS _truecut_op, 1::UBIGINT AS _truecut_place, "
        f"0::BIGINT AS _truecut_seq, '{COMMITTED.isoformat()}'::TIMESTAMPTZ AS _truecut_committed_at, "
        f"1::BIGINT AS id, {values} UNION ALL SELECT 4, 1, 1, NULL, 2, {nulls}"
    )
    packet = Packet("main.t", source.execute("FROM rows").to_arrow_table())
    applied(sink(address).recover(epoch=1, token=1))
    applied(sink(address).apply(order(None, 1, t=seed(schema=schema)), iter([packet])))
    texts = ", ".join(f"c{i}::VARCHAR" for i in range(len(TYPES)))
    wanted = source.execute(f"SELECT id, {texts} FROM rows ORDER BY id").fetchall()
    with opened(address) as connection:
        found = connection.execute(f"SELECT id, {texts} FROM lake.main.t ORDER BY id").fetchall()
        types = connection.execute("DESCRIBE lake.main.t").fetchall()
    source.close()
    assert found == wanted
    assert [row[1] for row in types] == ["BIGINT", *TYPES]
