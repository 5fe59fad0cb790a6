"""Settings of later versions are called so: not available yet, never unknown or missing."""

from __future__ import annotations

from tests.config.pipelines import MINIMAL, Folder, changed
from truecut.config.settings import VerifySettings


def test_every_name_that_is_taken_says_not_yet(folder: Folder) -> None:
    """The contract's later settings are not called unknown, wherever they stand."""
    later = {
        "spec": ["commit_policy", "dead_letters", "maintenance"],
        "table": ["columns", "filter", "on_error"],
        "sink": [
            "schema",
            "deletes",
            "as",
            "format",
            "required",
            "options",
            "dsn",
            "columns",
            "filter",
        ],
    }
    text = changed(MINIMAL, "key: [id]}", "key: [id], " + ", ".join(f"{k}: 1" for k in later["table"]) + "}")
    text = changed(
        text, "copy.ducklake}", "copy.ducklake, " + ", ".join(f"{k}: 1" for k in later["sink"]) + "}"
    )
    text += "".join(f"  {key}: 1\n" for key in later["spec"])
    findings = folder.findings(text)
    assert {finding.rule.code for finding in findings} == {"TC1015"}
    assert sorted(finding.path for finding in findings) == sorted(
        [f"tables.main.events.{k}" for k in later["table"]]
        + [f"sinks.copy.{k}" for k in later["sink"]]
        + later["spec"]
    )
    kinds = ["mariadb", "turso", "sharded", "mongodb", "pipeline"]
    assert {
        folder.findings(changed(MINIMAL, "source: {type: ducklake", f"source: {{type: {k}"))[0].rule.code
        for k in kinds
    } == {"TC1015"}


def test_the_interface_s_second_example_is_whole(folder: Folder) -> None:
    """Nothing in it is unknown, and nothing not yet."""
    text = """\
apiVersion: truecut/v1
kind: Pipeline
metadata:
  name: shop
spec:
  source:
    type: postgres
    dsn: host=shop
    slot: truecut_shop
    publication: truecut_shop
  tables:
    - name: public.*
      exclude: [public.tmp_*]
    - name: public.lines
    - name: public.orders
      backfill: initial
      on_schema_change: evolve
  sinks:
    - {name: lake, type: ducklake, catalog: ./lake.ducklake, data_path: ./lake-data}
    - name: warehouse
      type: postgres
      dsn: host=warehouse
      schema: shop
      tables:
        - {name: public.orders, mode: append}
  batch: {rows_max: 500000, bytes_max: 64MiB, interval: 2s}
  journal:
    path: ./journal
    bytes_max: 20GiB
  certificate: {path: ./certificates, interval: 10s, verify: {level: sink, interval: 1h}}
  control: ./control.db
  state: ./state
  spark: {master: "local[*]", conf: {}}
"""
    found = folder.load(text)
    assert found.certificate is not None
    assert found.certificate.verify == VerifySettings("sink", 3_600_000)
