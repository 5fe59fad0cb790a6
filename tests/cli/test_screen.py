"""What `run` shows on a terminal."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from tests.runtime.views import TABLE, view_of
from truecut.cli.live import STOPPING, Show
from truecut.cli.screen import screen_of
from truecut.config.settings import CertificateSettings
from truecut.model.position import Position
from truecut.runtime.verified import Verified

FAULT = {"code": "TC4001", "message": "it is locked [/red]", "retryable": True, "fix": "Wait."}


def test_the_live_table_shows_every_sink_and_then_that_it_stops(tmp_path: Path) -> None:
    """Names and messages are data, a source that was not seen yet is no `None`, and Ctrl-C is answered."""
    terminal = io.StringIO()
    view = view_of(
        tmp_path, {"[/x]": {"rows": 1234}, "acme": {"state": "failed", "lag_ms": 2500, "error": FAULT}}
    )
    view.head = None
    view.unrouted = {"main.events": 7}
    view.seeds = {("[/x]",): 0.25}
    with screen_of(view.pipeline, Console(file=terminal, force_terminal=True, width=120)) as screen:
        show = Show(screen)
        show.update(view)
        show.stopping()
    shown = " ".join(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue()).split())
    for told in ("[/x]", "1,234", "acme", "2.5 s", "it is locked [/red]"):
        assert told in shown
    for told in ("source not seen yet", "7 rows matched no sink", "seeding [/x]", "25%", STOPPING):
        assert told in shown
    assert "None" not in shown


def test_the_live_table_shows_up_to_where_sinks_are_certified_and_verified(tmp_path: Path) -> None:
    """Beside the cursor, where certificates are issued; of a sink the table furthest behind counts, and
    one of which a table was never certified, or never passed, has none."""
    view = view_of(tmp_path, {"copy": {"cursor": str(Position(1, 9))}})
    view.pipeline = replace(view.pipeline, certificate=CertificateSettings(tmp_path, 1_000))
    view.certified = {(TABLE, "copy"): Position(1, 0xABC)}
    passed = Verified(TABLE, "copy", "sink", "pass", 1_000, upto=str(Position(1, 0xDEF)), passed_at_ms=1_000)
    for known, found in (({(TABLE, "copy"): passed}, "0000DEF"), ({}, None)):
        view.verified = known
        terminal = io.StringIO()
        with screen_of(view.pipeline, Console(file=terminal, force_terminal=True, width=120)) as screen:
            Show(screen).update(view)
        shown = terminal.getvalue()
        assert "certified" in shown
        assert f"…{str(Position(1, 9))[-7:]}" in shown
        assert "…0000ABC" in shown
        assert ("0000DEF" in shown) == (found is not None)
    assert view.certified_upto("copy") == str(Position(1, 0xABC))
    modes = {TABLE: "mirror", "main.b": "mirror"}
    sinks = tuple(replace(sink, modes=modes) for sink in view.pipeline.sinks)  # type: ignore[arg-type]
    view.pipeline = replace(view.pipeline, sinks=sinks)
    assert (view.certified_upto("copy"), view.verified_upto("copy")) == (None, None)
