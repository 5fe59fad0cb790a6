"""Whether two addresses mean the same file or the same database, without connecting to either."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable
from urllib.parse import parse_qs, unquote, urlsplit

_PAIR = re.compile(r"(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|[^\s']*)")


def file_identity(path: str, folders: dict[str, str]) -> Hashable:
    """Equal for two paths of one file: symbolic links and `..` do not count.

    `folders` remembers where the folders seen so far really are: thousands of files cost one look each.
    """
    if "://" in path:
        return path
    if os.path.islink(path):
        return os.path.realpath(path)
    folder, name = os.path.split(os.path.normpath(path) if ".." not in path else os.path.realpath(path))
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    return os.path.join(folders[folder], name)


def database_identity(conninfo: str) -> Hashable:
    """Server, port and database; who connects and how does not count."""
    words = _url_words(conninfo) if "://" in conninfo else dict(_PAIR.findall(conninfo))
    words = {key: value.strip("'") for key, value in words.items()}
    return (
        words.get("service", ""),
        words.get("hostaddr") or words.get("host", ""),
        words.get("port") or "5432",
        words.get("dbname") or words.get("user", ""),
    )


def _url_words(url: str) -> dict[str, str]:
    try:
        parts = urlsplit(url)
        words = {"host": parts.hostname or "", "port": str(parts.port or ""), "user": parts.username or ""}
    except ValueError:  # not a URL: then only the same text is the same database
        return {"dbname": url}
    words["dbname"] = unquote(parts.path.lstrip("/"))
    return {**words, **{key: values[0] for key, values in parse_qs(parts.query).items()}}
