"""The types of columns, in one grammar: what every source says, and every sink understands.

    type     =  scalar | list | map | struct | unknown
    scalar   =  NAME [ "(" number { "," number } ")" ]   BIGINT, DECIMAL(10,2), TIMESTAMP WITH TIME ZONE
    list     =  type "[" [ number ] "]"                  VARCHAR[]; with a number: so many, always
    map      =  "MAP(" type "," type ")"
    struct   =  "STRUCT(" field { "," field } ")"        field = name type; the name in double quotes
    unknown  =  "<" the source's own word ">"            nobody takes it: the table cannot be copied

The spelling is DuckDB's, whose names and ranges of values are meant; that is all that the two share. Names:
BOOLEAN; TINYINT SMALLINT INTEGER BIGINT HUGEINT, and with U in front; FLOAT DOUBLE; DECIMAL(digits, those
behind the point); VARCHAR JSON BLOB UUID; DATE TIME; TIMESTAMP and TIMESTAMP_S _MS _NS without a zone;
TIMESTAMP WITH TIME ZONE. What the source knows beyond that is a column's `native` type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Kind = Literal["scalar", "list", "map", "struct", "unknown"]

SIGNED = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"})
UNSIGNED = frozenset(f"U{name}" for name in SIGNED)
FLOATS = frozenset({"FLOAT", "DOUBLE"})

_TOKEN = re.compile(r'\s*("(?:[^"]|"")*"|<[^>]*>|\w+|[()\[\],])')


@dataclass(frozen=True, slots=True)
class Type:
    """A parsed type. `parts`: a list's element, a map's key and value, a struct's fields by `names`."""

    kind: Kind
    name: str = ""  # of a scalar; of an unknown one, the source's word
    parameters: tuple[int, ...] = ()
    parts: tuple[Type, ...] = ()
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        match self.kind:
            case "list":
                return f"{self.parts[0]}[{','.join(map(str, self.parameters))}]"
            case "map":
                return f"MAP({self.parts[0]}, {self.parts[1]})"
            case "struct":
                fields = zip(self.names, self.parts, strict=True)
                return f"STRUCT({', '.join(f'{quoted(name)} {part}' for name, part in fields)})"
            case "unknown":
                return f"<{self.name}>"
        inside = ",".join(map(str, self.parameters))
        return f"{self.name}({inside})" if inside else self.name

    @property
    def is_integer(self) -> bool:
        """A whole number, of whatever width."""
        return self.name in SIGNED or self.name in UNSIGNED

    @property
    def is_float(self) -> bool:
        """Floating point: equal values need not be the same bits."""
        return self.name in FLOATS

    @property
    def unknown(self) -> str | None:
        """The first part, at any depth, that the grammar has no name for."""
        if self.kind == "unknown":
            return self.name
        return next((found for part in self.parts if (found := part.unknown) is not None), None)


def quoted(name: str) -> str:
    """A field's name as the grammar has it."""
    return '"' + name.replace('"', '""') + '"'


@lru_cache(4096)
def parse(text: str) -> Type:
    """Read a type; ValueError when it is none."""
    words = _Words(text)
    found = words.type()
    words.end()
    return found


class _Words:
    """The text, word by word."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def type(self) -> Type:
        found = self._simple()
        while self._takes("["):
            length = () if self._takes("]") else (self._number(),)
            if length:
                self._expect("]")
            found = Type("list", parameters=length, parts=(found,))
        return found

    def end(self) -> None:
        if self._text[self._at :].strip():
            raise self._wrong()

    def _simple(self) -> Type:
        word = self._take()
        if word.startswith("<"):
            return Type("unknown", word[1:-1])
        if not word.replace("_", "a").isalnum():
            raise self._wrong()
        if word == "MAP" and self._takes("("):
            key = self.type()
            self._expect(",")
            return self._closed(Type("map", parts=(key, self.type())))
        if word == "STRUCT" and self._takes("("):
            return self._closed(self._struct())
        return self._scalar(word)

    def _struct(self) -> Type:
        fields = [(self._name(), self.type())]
        while self._takes(","):
            fields.append((self._name(), self.type()))
        names, parts = zip(*fields, strict=True)
        return Type("struct", parts=parts, names=names)

    def _scalar(self, word: str) -> Type:
        words = [word]
        while (following := self._peek()) is not None and following.isalpha():
            words.append(self._take())
        if not self._takes("("):
            return Type("scalar", " ".join(words))
        numbers = [self._number()]
        while self._takes(","):
            numbers.append(self._number())
        return self._closed(Type("scalar", " ".join(words), tuple(numbers)))

    def _closed(self, found: Type) -> Type:
        self._expect(")")
        return found

    def _name(self) -> str:
        word = self._take()
        return word[1:-1].replace('""', '"') if word.startswith('"') else word

    def _number(self) -> int:
        word = self._take()
        if not word.isdecimal():
            raise self._wrong()
        return int(word)

    def _peek(self) -> str | None:
        match = _TOKEN.match(self._text, self._at)
        return None if match is None else match[1]

    def _take(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise self._wrong()
        self._at = match.end()
        return match[1]

    def _takes(self, word: str) -> bool:
        there = self._peek() == word
        if there:
            self._take()
        return there

    def _expect(self, word: str) -> None:
        if not self._takes(word):
            raise self._wrong()

    def _wrong(self) -> ValueError:
        return ValueError(f"not a type: {self._text}")
