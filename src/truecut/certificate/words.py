"""A certificate in words and pictures: for a terminal, and as a page that explains itself without a network.

Pure. Keys are values of rows, so units are drawn by their order and their number of rows, never by their
bounds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from truecut.certificate.issue import Issued

DOES_NOT_SAY = (
    "It speaks of what was delivered up to these positions. It does not say that nobody has changed a copy "
    "since, that the source still is what it was, or anything of tables and rows that are not listed. Nor "
    "that each change was delivered exactly once, only what they came to; nor that another deployment, with "
    "other settings, servers or versions, does as well."
)
ASSUMED_WORDS = {
    "log-complete": "The source's log told every change, in the order of its commits.",
    "read-total": "A read of a range of keys gave every row that was there.",
    "rows-locked": "The source does not let two open transactions write one row.",
    "collation": "The source sorts keys the same way every time.",
    "secret-kept": "Whoever may write to a copy does not have the digests' secret.",
}
_WIDTH = 60  # characters of the axis of keys
Row = Mapping[str, Any]


def shown(issued: Issued) -> list[str]:
    """Lines for a terminal."""
    told = issued.document
    lines = [
        f"certificate {issued.number} of {told['pipeline']}, issued at {told['issued_at']}",
        f"source      {told['source']['type']} {told['source']['identity']}",
        f"frontier    {told['frontier']}",
        f"digest      {issued.digest}",
        *([f"kept        {trimmed(issued)}"] if "kept_from" in told else []),
        "",
    ]
    for row in issued.copies.values():
        lines.append(f"{row['table']} at {row['sink']} ({row['mode']}, {_share(row)}), at {row['at']}")
        lines += [f"  {_claim(row)}", *(f"  {line}" for line in axis(units_of(row), row["at"]))]
    assumed = ", ".join(told["assumptions"])
    return [*lines, "", f"taken for granted: {assumed}", DOES_NOT_SAY]


def trimmed(issued: Issued) -> str:
    """What a retention rule has taken."""
    first = issued.document["kept_from"]
    return (
        f"from certificate {first} on; those before it went, with their evidence. The replay of a copy whose "
        "base was among that (V1, V2) is unknown; V4 and V5 are not touched by it."
    )


def units_of(row: Row) -> list[Row]:
    """Those that the copy's base was read in; none where it was read at once."""
    found: list[Row] = json.loads(row["units"])
    return found


def axis(units: Sequence[Row], frontier: str) -> list[str]:
    """The units on the axis of keys, each as wide as its share of the rows, and the frontier of all."""
    if not units:
        return []
    widths = shares([unit["rows"] for unit in units], _WIDTH)
    bar = "│".join("▇" * width for width in widths)
    lowest, highest = "lowest key", "highest key"
    ends = lowest + highest.rjust(len(bar) + 2 - len(lowest))
    counts = ", ".join(f"{unit['rows']:,}" for unit in units[:8]) + (", …" if len(units) > 8 else "")
    first, last = min(unit["lo"] for unit in units), max(unit["hi"] for unit in units)
    return [
        ends,
        f"├{bar}┤",
        f"{len(units)} units of {counts} rows, read between {first} and {last}",
        f"└─ all of them, with the changes since ─▶ frontier {frontier}",
    ]


def shares(rows: Sequence[int], width: int) -> list[int]:
    """Of a width, at least one for each."""
    total = sum(rows) or 1
    return [max(1, round(width * one / total)) for one in rows]


def _share(row: Row) -> str:
    return "all rows" if row["route"] is None else f"the rows of route {row['route']}"


def _claim(row: Row) -> str:
    if row["verdict"] == "certified":
        return f"certified: {row['rows']:,} rows, root {row['root'].hex()}"
    return f"unknown: {row['reason']}"


# --- the page -----------------------------------------------------------------------------------------------

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222;
background:#fff}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.4em .6em;
border-bottom:1px solid #ddd;vertical-align:top}code{font-size:.85em;overflow-wrap:anywhere}
.certified{color:#126b2f}.unknown{color:#9a4a00}
svg{width:100%;height:3em}figure{margin:1em 0}figcaption{font-size:.9em;color:#555}
"""


def page(issued: Issued, *, certificates: int) -> str:
    """One HTML document that loads nothing. `certificates`: how many the archive holds."""
    told = {name: escape(str(issued.document[name])) for name in ("pipeline", "issued_at", "frontier", "key")}
    source = issued.document["source"]
    rows = list(issued.copies.values())
    certified = sum(row["verdict"] == "certified" for row in rows)
    assumed = [ASSUMED_WORDS.get(one, one) for one in issued.document["assumptions"]]
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Certificate {issued.number} of {told["pipeline"]}</title><style>{_STYLE}</style></head><body>
<h1>Certificate {issued.number} of {told["pipeline"]}</h1>
<p>Issued at {told["issued_at"]}. It is about data that was copied from <b>{escape(source["type"])}</b>
<code>{escape(source["identity"])}</code> to other places, and says what each copy held at a given moment.
<b>{certified} of {len(rows)} copies are certified.</b></p>
<h2>Scope: which copies</h2>
<p>Only the tables listed here, and of each only the rows named.</p>
<table><tr><th>Table</th><th>Copied to</th><th>Rows meant</th><th>Up to position</th><th>Claim</th></tr>
{"".join(map(_page_row, rows))}</table>
<p><b>Certified</b>: the copy was given exactly this many rows, and the root is a fingerprint that only their
content has. <b>Unknown</b>: nothing is claimed; the reason stands beside it. Unknown is never a yes.</p>
<h2>Frontier: up to when</h2>
<p>Every change that the source committed up to position <code>{told["frontier"]}</code> is counted in every
certified copy above; some are further. Positions sort in the order in which the source committed.</p>
{"".join(map(_page_units, rows))}
<h2>What it does not say</h2>
<p>{escape(DOES_NOT_SAY)}</p>
{_page_trimmed(issued)}<h2>What is taken for granted</h2>
<ul>{"".join(f"<li>{escape(one)}</li>" for one in assumed)}</ul>
<h2>How to check it</h2>
<p>This page only repeats what the files beside it say, and proves nothing by itself. The archive holds
{certificates:,} certificates, their evidence and the public key. On any machine:
<code>truecut-verify --public-key KEY.pem ARCHIVE.zip</code>. Take the key from somebody whom you trust; its
name is <code>{told["key"]}</code>. The hash of this certificate is <code>{escape(issued.digest)}</code>.</p>
</body></html>
"""


def _page_trimmed(issued: Issued) -> str:
    return f"<p>Kept {escape(trimmed(issued))}</p>\n" if "kept_from" in issued.document else ""


def _page_row(row: Row) -> str:
    cells = (row["table"], row["sink"], _share(row), row["at"])
    told = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<tr>{told}<td class="{escape(row["verdict"])}"><code>{escape(_claim(row))}</code></td></tr>\n'


def _page_units(row: Row) -> str:
    """The same picture as on a terminal."""
    units = units_of(row)
    if not units:
        return ""
    widths, bars, at = shares([unit["rows"] for unit in units], 1000), [], 0
    for unit, width in zip(units, widths, strict=True):
        bars.append(
            f'<rect x="{at}" y="4" width="{width}" height="32" fill="#4a7fb5" stroke="#fff">'
            f"<title>{unit['rows']:,} rows</title></rect>"
        )
        at += width
    name = escape(f"{row['table']} at {row['sink']}")
    return (
        f'<figure><svg viewBox="0 0 {at} 40" preserveAspectRatio="none" role="img">{"".join(bars)}</svg>'
        f"<figcaption>{name}: read in {len(units)} units, from the lowest key (left) to the highest (right), "
        f"none left out; all brought to position {escape(row['at'])}.</figcaption></figure>\n"
    )
