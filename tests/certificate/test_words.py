"""Certificates for people: the page that is exported, and what `show` prints."""

from __future__ import annotations

import re
import zipfile
from html.parser import HTMLParser
from pathlib import Path

from click.testing import CliRunner

from tests.verify.issuer import CopyOf, World, position
from truecut.certificate.words import DOES_NOT_SAY
from truecut.cli.certificate import command
from truecut.errors import TruecutError
from truecut_verify.main import main as verify

PIPELINE = """
apiVersion: truecut/v1
kind: Pipeline
metadata: {name: shop}
spec:
  source: {type: ducklake, catalog: ./source.ducklake, data_path: ./source}
  tables: [{name: main.t, key: [id]}]
  sinks: [{name: lake, type: ducklake, catalog: ./lake.ducklake, data_path: ./lake}]
  certificate: {path: ./certificates}
"""


LIMITS = {
    "whole tables": "tables and rows that are not listed",
    "what the sink holds now": "changed",
    "delivery": "delivered exactly once",
    "transfer": "another deployment",
}


def test_every_limit_is_told_wherever_limits_are_told() -> None:
    """What acceptance alone does not give: of whole tables, of the sink's state, of exactly-once delivery, of
    other deployments. In the page and the terminal's words, and in both documents."""
    docs = Path(__file__).parents[2] / "docs"
    texts = [DOES_NOT_SAY]
    for name in ("certificates.md", "certificate-format.md"):
        (told,) = re.findall(
            r"^## What it does not say$(.*?)(?=^## |\Z)", (docs / name).read_text(), re.M | re.S
        )
        texts.append(re.sub(r"\s+", " ", told))
    assert [(limit, text) for text in texts for limit, said in LIMITS.items() if said not in text] == []


class Tags(HTMLParser):
    """What a page is made of: tags still open, attributes, text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.rects = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        self.rects += tag == "rect"
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def made(folder: Path) -> Path:
    """A certified copy that was read in units, and one that is unknown, with a name that is no HTML."""
    copies = [CopyOf("main.<b>", "lake", verdict="unknown"), CopyOf("main.t", "lake")]
    world = World(folder / "certificates", copies)
    for copy in copies:
        world.base(copy, [{"id": n, "v": "private"} for n in (4711, 4712, 4713)], upto=10)
    ends = [(None, 4712, 1), (4712, None, 2)]
    copies[1].units = [
        {"low": low, "high": high, "lo": position(3), "hi": position(5), "snapshot": "1:9:", "rows": rows}
        | {"digest": "0" * 32}
        for low, high, rows in ends
    ]
    world.certify()
    (folder / "shop.yaml").write_text(PIPELINE)
    return folder / "shop.yaml"


def run(*arguments: str) -> str:
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_the_archive_explains_itself_and_verifies(tmp_path: Path) -> None:
    """The page loads nothing, is whole, tells scope, frontier and limits; the verifier takes the archive."""
    file, target = made(tmp_path), tmp_path / "out.zip"
    run("export", str(file), "--output", str(target))
    with zipfile.ZipFile(target) as archive:
        assert not {"secret", "signing.pem"} & set(archive.namelist())
        html = archive.read("index.html").decode()
    page = Tags(html)
    assert page.open == []
    assert not [name for name, _ in page.attributes if name in ("src", "href", "srcset")]
    assert not re.search(r"url\(|@import|https?://|<script", html)
    for said in (position(10), "main.t", "main.<b>", "unknown: no ledger", DOES_NOT_SAY, "1 of 2 copies"):
        assert said in page.text
    assert page.rects == 2
    assert "4712" not in html, "keys are values of rows"
    assert verify([str(target)]) == 5  # one copy is unknown; nothing fails


def test_an_archive_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """With the place, and what to do; not as a fault of ours."""
    target = tmp_path / "nowhere" / "out.zip"
    done = CliRunner().invoke(command, ["export", str(made(tmp_path)), "--output", str(target)])
    assert isinstance(done.exception, TruecutError)
    assert done.exception.fault.code == "TC7011"
    assert str(target) in done.exception.fault.message


def test_show_draws_the_units_up_to_the_frontier(tmp_path: Path) -> None:
    """Each as wide as its share of the rows, in the order of keys, without the keys."""
    said = run("show", str(made(tmp_path)))
    lines = [line.strip() for line in said.splitlines()]
    assert f"├{'▇' * 20}│{'▇' * 40}┤" in lines
    assert f"└─ all of them, with the changes since ─▶ frontier {position(10)}" in lines
    assert "2 units of 1, 2 rows, read between" in said
    assert DOES_NOT_SAY in lines
    assert "4712" not in said
