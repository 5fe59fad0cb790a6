"""A secret and a row's value that no message, report or log may repeat, and a source full of them."""

from __future__ import annotations

SECRET = "canary-secret-93b1"
ROW = "canary-row-5d20"

CREATE = "CREATE TABLE lake.main.events (id INTEGER, tenant VARCHAR, v VARCHAR)"
# Random text does not compress: it takes more room than a mebibyte.
NOISE = (
    f"INSERT INTO lake.main.events SELECT i, 't1', '{ROW}-' || hash(i) || hash(-i) || hash(i * 7)"
    " FROM range(1000, 61000) r(i)"
)


def assert_silent(*texts: str | bytes) -> None:
    """No secret and no row value in any of them."""
    for text in texts:
        content = text.encode() if isinstance(text, str) else text
        for canary in (SECRET, ROW):
            assert canary.encode() not in content, f"{canary} was told"
