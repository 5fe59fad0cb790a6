"""One fault in a file: what is said about it, and where."""

from __future__ import annotations

import pytest

from tests.config.pipelines import VALID, Folder, changed

# old text, new text, the one finding (after "p.yaml:"); applied to VALID
ONE_FAULT = {
    "api version": (
        "truecut/v1",
        "truecut/v2",
        '1  TC1012  apiVersion: expected truecut/v1, found "truecut/v2"; did you mean "truecut/v1"?',
    ),
    "kind": (
        "kind: Pipeline",
        "kind: Job",
        '2  TC1012  kind: expected Pipeline, found "Job"',
    ),
    "misspelt section": (
        "metadata:",
        "metadatta: {}\nmetadata:",
        '3  TC1010  metadatta: unknown key; did you mean "metadata"?',
    ),
    "misspelt key": (
        "data_path: ./acme-data",
        "data_pathh: ./acme-data",
        '18  TC1010  sinks.acme.data_pathh: unknown key; did you mean "data_path"?',
    ),
    "misplaced key": (
        "route_by: tenant",
        "route_by: tenant\n      mode: append",
        "14  TC1010  tables.main.events.mode: unknown key; it belongs to spec.sinks",
    ),
    "twice": (
        "route: acme",
        "route: acme\n      route: b",
        "20  TC1007  sinks.acme.route: stands twice; first on line 19",
    ),
    "merge key": (
        "route: acme",
        "route: acme\n      <<: {mode: append}",
        "20  TC1004  sinks.acme.<<: merge keys are not supported; repeat the settings",
    ),
    "number for text": (
        "route: acme",
        "route: 42",
        "19  TC1011  sinks.acme.route: expected text, found a number; put it in quotes",
    ),
    "number for duration": (
        "  sinks:\n",
        "  batch: {interval: 5}\n  sinks:\n",
        "14  TC1016  batch.interval: expected a duration, found a number without a unit; "
        'did you mean "5s" or "5ms"?',
    ),
    "number for size": (
        "  sinks:\n",
        "  batch: {bytes_max: 64}\n  sinks:\n",
        '14  TC1016  batch.bytes_max: expected a size, found a number without a unit; did you mean "64MiB"?',
    ),
    "reference without quotes": (
        "for_each: {file: tenants.csv}",
        "for_each: {file: ${TENANTS}}",
        '25  TC1004  not YAML: a ${…} inside braces or brackets must stand in quotes: "${NAME}"',
    ),
    "reference within text without quotes": (
        "for_each: {file: tenants.csv}",
        "for_each: {file: all-${TENANTS}.csv}",
        '25  TC1004  not YAML: a ${…} inside braces or brackets must stand in quotes: "${NAME}"',
    ),
    "reference in brackets without quotes": (
        "key: [id]",
        "key: [${KEY}]",
        '12  TC1004  not YAML: a ${…} inside braces or brackets must stand in quotes: "${NAME}"',
    ),
    "truth for text": (
        "route: acme",
        "route: true",
        "19  TC1011  sinks.acme.route: expected text, found true; put it in quotes",
    ),
    "text for list": (
        "key: [id]",
        "key: id",
        '12  TC1011  tables.main.events.key: expected a list, found text; write ["id"]',
    ),
    "text for truth": (
        "route_by: tenant",
        "broadcast: yes\n      route_by: tenant",
        "13  TC1011  tables.main.events.broadcast: expected true or false, found text",
    ),
    "nothing": (
        "catalog: ./acme.ducklake",
        "catalog:",
        "17  TC1011  sinks.acme.catalog: expected text, found nothing; give it a value or take the key out",
    ),
    "list for mapping": (
        "{file: tenants.csv}",
        "[tenants.csv]",
        "25  TC1011  sinks.t-{tenant}.for_each: expected a mapping, found a list",
    ),
    "enum": (
        "mode: mirror",
        "mode: mirorr",
        '26  TC1012  sinks.t-{tenant}.mode: expected mirror or append, found "mirorr"; did '
        'you mean "mirror"?',
    ),
    "missing": (
        "      type: ducklake\n      catalog: ./acme.ducklake\n",
        "      type: ducklake\n",
        "15  TC1013  sinks.acme.catalog: is missing (As for the source. Created when it does not exist)",
    ),
    "empty text": ("route: acme", 'route: ""', "19  TC1014  sinks.acme.route: must not be empty"),
    "blank name": ("name: acme", 'name: " "', "15  TC1014  sinks[0].name: must not be empty"),
    "control character": (
        "catalog: ./acme.ducklake",
        'catalog: "a\\0b"',
        "17  TC1014  sinks.acme.catalog: must not hold line ends or control characters",
    ),
    "mode not yet": (
        "mode: mirror",
        "mode: history",
        '26  TC1015  sinks.t-{tenant}.mode: "history" is not available yet; expected mirror or append',
    ),
    "sink type not yet": (
        "type: ducklake\n      catalog: ./acme.ducklake",
        "type: kafka\n      topic: x",
        '16  TC1015  sinks.acme.type: "kafka" is not available yet; expected ducklake or postgres',
    ),
    "source type not yet": (
        "    type: ducklake\n    catalog: ./source.ducklake\n    data_path: ./source-data\n",
        "    type: mariadb\n    dsn: ${SHOP_DSN}\n    slot: s\n",
        '7  TC1015  source.type: "mariadb" is not available yet; expected ducklake or postgres',
    ),
    "a slot's name": (
        "    type: ducklake\n    catalog: ./source.ducklake\n    data_path: ./source-data\n",
        "    type: postgres\n    dsn: host=shop\n    slot: My Slot\n",
        "9  TC1014  source.slot: a slot's name has small letters, digits and _, at most 63 of them",
    ),
    "nothing to leave out of one name": (
        "key: [id]",
        "key: [id]\n      exclude: [main.x]",
        "13  TC1045  tables.main.events.exclude: belongs to a name with wildcards, e.g. public.*",
    ),
    "only changes": (
        "key: [id]",
        "key: [id]\n      backfill: none",
        "13  TC1015  tables.main.events.backfill: a DuckLake source is copied whole; take it out",
    ),
    "pipeline name": (
        "name: tenants",
        "name: ten ants",
        "4  TC1017  metadata.name: may hold letters, digits, - and _, at most 63 of them",
    ),
    "glob": (
        "name: main.events",
        "name: main.*",
        "11  TC1045  tables.main.*.name: wildcards do not work with a DuckLake source yet; name each table",
    ),
    "no schema": (
        "name: main.events",
        "name: events",
        '11  TC1044  tables.events.name: "events" is not schema.table; write e.g. main.events',
    ),
    "no key": (
        "      key: [id]\n",
        "",
        "11  TC1046  tables.main.events.key: is missing; DuckLake knows no primary keys: "
        "name the columns that identify a row, e.g. [id]",
    ),
    "empty key": (
        "key: [id]",
        "key: []",
        "12  TC1046  tables.main.events.key: names no column; DuckLake knows no primary keys: "
        "name the columns that identify a row, e.g. [id]",
    ),
    "key twice": ("key: [id]", "key: [id, ID]", "12  TC1014  tables.main.events.key: names a column twice"),
    "no route_by": (
        "      route_by: tenant\n",
        "",
        "11  TC1047  tables.main.events: has no route_by, but sinks.acme has a route and "
        "would get everybody's rows; "
        "add route_by, or broadcast: true if that is meant",
    ),
    "both": (
        "route_by: tenant",
        "route_by: tenant\n      broadcast: true",
        "14  TC1048  tables.main.events.broadcast: a table is routed (route_by) or broadcast, "
        "not both; take one out",
    ),
    "same table": (
        "  sinks:\n",
        "    - {name: main.EVENTS, key: [id], route_by: t}\n  sinks:\n",
        "14  TC1043  tables.main.EVENTS.name: the same table as on line 11",
    ),
    "sink's table": (
        "mode: mirror",
        "tables: [{name: main.event}]",
        '26  TC1049  sinks.t-{tenant}.tables.main.event.name: "main.event" is not a table of this pipeline; '
        'did you mean "main.events"?',
    ),
    "sink's table twice": (
        "mode: mirror",
        "tables: [{name: main.events}, {name: main.events}]",
        "26  TC1043  sinks.t-{tenant}.tables.main.events.name: stands twice in this sink's tables",
    ),
    "empty tables": (
        "    - name: main.events\n      key: [id]\n      route_by: tenant\n",
        "    []\n",
        "10  TC1014  tables: must not be empty",
    ),
    "sink is source": (
        "catalog: ./acme.ducklake",
        "catalog: ./x/../source.ducklake",
        "15  TC1042  sinks.acme.name: its catalog is the source's own; give the sink another",
    ),
    "URL for a catalog": (
        "catalog: ./acme.ducklake",
        "catalog: postgresql://u:geheim@h/d",
        "17  TC1014  sinks.acme.catalog: not a catalog; write the path of a DuckDB file, "
        "sqlite:PATH or postgres:CONNINFO",
    ),
    "duration": (
        "spec:\n",
        "spec:\n  batch: {interval: 2 sec}\n",
        '6  TC1016  batch.interval: not a duration; write e.g. 500ms, 2s, 10m or 1h; did you mean "2s"?',
    ),
    "size": (
        "spec:\n",
        "spec:\n  batch: {bytes_max: 64MB}\n",
        "6  TC1016  batch.bytes_max: not a size; write e.g. 64MiB (KiB, MiB, GiB or TiB); did "
        'you mean "64MiB"?',
    ),
    "no time": (
        "spec:\n",
        "spec:\n  lease: {duration: 0s}\n",
        "6  TC1014  lease.duration: must be longer than nothing",
    ),
    "too few": (
        "spec:\n",
        "spec:\n  batch: {rows_max: 0}\n",
        "6  TC1014  batch.rows_max: must be at least 1",
    ),
    "control": (
        "spec:\n",
        "spec:\n  control: mysql://x\n",
        "6  TC1014  control: write a file's path or postgresql://…",
    ),
    "journal": (
        "spec:\n",
        "spec:\n  journal: {nodes: ['127.0.0.1:7001']}\n",
        "6  TC1013  journal.coordinator: is missing; nodes have one that knows them",
    ),
}


@pytest.mark.parametrize("case", ONE_FAULT)
def test_one_fault_gives_one_finding_with_its_place(folder: Folder, case: str) -> None:
    """File, line, code, path by name, what is wrong and what was probably meant; nothing beside it."""
    old, new, finding = ONE_FAULT[case]
    assert folder.lines(changed(VALID, old, new)) == [f"p.yaml:{finding}"]
