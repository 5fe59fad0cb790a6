"""Pipeline files for the tests: one that is right, and ways to make it wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from truecut.config.finding import ConfigError, Finding
from truecut.config.load import load
from truecut.config.settings import Pipeline

VALID = """\
apiVersion: truecut/v1
kind: Pipeline
metadata:
  name: tenants
spec:
  source:
    type: ducklake
    catalog: ./source.ducklake
    data_path: ./source-data
  tables:
    - name: main.events
      key: [id]
      route_by: tenant
  sinks:
    - name: acme
      type: ducklake
      catalog: ./acme.ducklake
      data_path: ./acme-data
      route: acme
    - name: "t-{tenant}"
      type: ducklake
      catalog: "./lakes/{tenant}.ducklake"
      data_path: "./lakes/{tenant}"
      route: "{tenant}"
      for_each: {file: tenants.csv}
      mode: mirror
"""
TENANTS = "tenant,region\nglobex,eu\ninitech,us\n"

MINIMAL = """\
apiVersion: truecut/v1
kind: Pipeline
metadata: {name: small}
spec:
  source: {type: ducklake, catalog: ./source.ducklake}
  tables:
    - {name: main.events, key: [id]}
  sinks:
    - {name: copy, type: ducklake, catalog: ./copy.ducklake}
"""


class Folder:
    """A folder with a pipeline file in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def load(self, content: str | bytes, environ: Mapping[str, str] | None = None) -> Pipeline:
        return load(self.write("p.yaml", content), environ=environ or {})

    def findings(self, content: str | bytes, environ: Mapping[str, str] | None = None) -> list[Finding]:
        """What is wrong with a file that cannot be used."""
        with pytest.raises(ConfigError) as caught:
            self.load(content, environ)
        assert caught.value.findings
        return list(caught.value.findings)

    def lines(self, content: str | bytes, environ: Mapping[str, str] | None = None) -> list[str]:
        """The findings as users see them, with file names without their folder."""
        return [str(finding).replace(str(self.path) + "/", "") for finding in self.findings(content, environ)]


def changed(text: str, old: str, new: str) -> str:
    """The text with one thing replaced, which must be there exactly once."""
    assert text.count(old) == 1, old
    return text.replace(old, new)
