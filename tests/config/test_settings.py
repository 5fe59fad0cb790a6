"""What the settings promise by themselves."""

from __future__ import annotations

from dataclasses import replace

from tests.config.pipelines import VALID, Folder
from truecut.config.settings import copy_fingerprint


def test_a_fingerprint_covers_what_shapes_the_rows(folder: Folder) -> None:
    """Key, route and mode change it; place, order of the key and other settings do not."""
    pipeline = folder.load(VALID)
    table, (sink, other, _) = pipeline.tables[0], pipeline.sinks
    table = replace(table, key=("a", "b"))
    same = copy_fingerprint(table, sink)
    assert copy_fingerprint(replace(table, key=("b", "a"), unrouted="stop"), sink) == same
    assert copy_fingerprint(table, replace(sink, name="x", existing="replace", address=other.address)) == same
    different = {
        copy_fingerprint(replace(table, key=("a",)), sink),
        copy_fingerprint(replace(table, route_by="x"), sink),
        copy_fingerprint(replace(table, route_by=None, broadcast=True), sink),
        copy_fingerprint(table, replace(sink, route="x")),
        copy_fingerprint(table, replace(sink, modes={"main.events": "append"})),
        same,
    }
    assert len(different) == 6
