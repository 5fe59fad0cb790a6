"""Whether two addresses mean the same lake, without connecting to either."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable
from urllib.parse import parse_qs, unquote, urlsplit

from truecut.lake import LakeAddress

_PAIR = re.compile(r"(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|[^\s']*)")


class Identities:
    """Knows the folders it has seen, so that thousands of files cost one look each."""

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}

    def of(self, address: LakeAddress) -> Hashable:
        """Equal for two addresses of one lake: symbolic links, `..` and the order of words do not count."""
        target = address.target.reveal()
        if address.kind == "postgres":
            return _database(target)
        return target if "://" in target else self._file(target)

    def _file(self, path: str) -> str:
        if os.path.islink(path):
            return os.path.realpath(path)
        folder, name = os.path.split(os.path.normpath(path) if ".." not in path else os.path.realpath(path))
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        return os.path.join(self._folders[folder], name)


def _database(conninfo: str) -> Hashable:
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
