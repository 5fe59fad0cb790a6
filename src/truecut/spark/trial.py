"""Whether Spark starts with some settings, tried in a process and a folder of its own: for `doctor`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from truecut.spark.jvm import JvmEnded
from truecut.spark.session import Starting

PATIENCE_S = 120.0


class TooSlow(Exception):
    """It neither started nor refused in time."""


def refusal(*, master: str | None, conf: Mapping[str, str]) -> str | None:
    """What Spark said when it did not start; None when it did; TooSlow when nobody knows."""
    with tempfile.TemporaryDirectory(prefix="truecut-trial-") as scratch:
        try:
            done = subprocess.run(
                [sys.executable, "-m", "truecut.spark.trial", scratch],
                input=json.dumps({"master": master, "conf": dict(conf)}),
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise TooSlow from None
    return done.stdout if done.returncode else None


def _try() -> int:
    wanted = json.load(sys.stdin)
    starting = Starting(app="trial", **wanted, scratch=Path(sys.argv[1]))
    try:
        starting.session().stop()
    except JvmEnded as ended:
        print(ended.said)
        return 1
    except Exception as error:  # noqa: BLE001 - Spark raises many kinds
        print(error)
        return 1
    finally:
        starting.end()
    return 0


if __name__ == "__main__":
    sys.exit(_try())
