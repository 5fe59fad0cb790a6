"""Records `truecut demo` and draws it: demo.txt is what it printed, demo.svg is the picture in the README.

`python docs/record_demo.py` runs the demo and renews both; `--render` draws the recorded transcript again.
A test fails when picture and transcript differ.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

FOLDER = Path(__file__).parent
TRANSCRIPT = FOLDER / "demo.txt"
PICTURE = FOLDER / "demo.svg"

COLUMNS = 96
SHOWN_FOLDER = "./truecut-demo"
_STYLES = {r"✓ equal": "green", r"^✓": "green", r"^✗": "red", r"^(sink|compared|Next:).*": "bold"}

# Rich's own frame without its fonts, which it would fetch from elsewhere: any monospaced one will do.
_FRAME = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: arial, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def record() -> str:
    """Run the demo as a user does, without a terminal, and return what it printed."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve() / "truecut-demo"
        finished = subprocess.run(
            [sys.executable, "-m", "truecut", "demo", "--folder", str(folder)],
            env={**os.environ, "COLUMNS": "400", "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return finished.stdout.replace(str(folder), SHOWN_FOLDER)


def render(transcript: str) -> str:
    """The transcript as a picture of a terminal. The same text gives the same picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), highlight=False)
    console.print(Text("$ make demo", style="bold"))
    for line in transcript.splitlines():
        text = Text(line.rstrip())
        for pattern, style in _STYLES.items():
            text.highlight_regex(pattern, style)
        console.print(text)
    drawn = console.export_svg(title="truecut", theme=MONOKAI, code_format=_FRAME, unique_id="demo")
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"


def main() -> None:
    """Renew the recording, or only the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--render", action="store_true", help="draw demo.txt again without running the demo")
    if not parser.parse_args().render:
        TRANSCRIPT.write_text(record(), encoding="utf-8")
    PICTURE.write_text(render(TRANSCRIPT.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
