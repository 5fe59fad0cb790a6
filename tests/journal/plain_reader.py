"""A journal's records, read off its files by docs/journal-format.md alone. Shares nothing with src."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

Row = tuple[bytes, int, str, int, tuple[int, ...], int, bool, int, str]  # a record in the order of its fields


def frames(file: Path, log_id: str, number: int, epoch: int, before: int, end: int) -> dict[int, Row]:
    """The records of a segment, by number, up to an offset; every checksum and every link is checked."""
    data, at, found = file.read_bytes()[:end], 4096, {}
    assert len(data) == end
    while at < end:
        magic, log, first, count, heads_size, by, size, previous, crc = struct.unpack_from(
            "<4s16sQIIQIII", data, at
        )
        assert (magic, log.hex(), first, by, previous) == (b"TCF1", log_id, number, epoch, before)
        at, heads, payload = at + 56, at + 56, at + 56 + heads_size
        assert zlib.crc32(data[at - 56 : at - 4] + bytes(4) + data[at:payload]) == crc
        for number in range(first, first + count):
            length, check, generation, part, rows, kind, last, codec, schemas, told = struct.unpack_from(
                "<IIIIIBBBBH", data, heads
            )
            text, content = heads + 26, data[payload:][:length]
            heads = text + codec + 8 * schemas + told
            assert zlib.crc32(content) == check
            ids = struct.unpack_from(f"<{schemas}Q", data, text + codec)
            name, source = data[text : text + codec].decode(), data[heads - told : heads].decode()
            found[number] = (content, kind, name, generation, ids, part, bool(last), rows, source)
            payload += length
        assert payload == heads + size
        at, number, before = payload, first + count, crc
    return found


def committed(file: Path) -> int:
    """Where the readable part of an open segment ends: its newest whole mark."""
    marks = [struct.unpack_from("<QQIQI", file.read_bytes(), at) for at in (512, 1024)]
    whole = [one for one in marks if one[0] and zlib.crc32(struct.pack("<QQIQI", *one[:4], 0)) == one[4]]
    return int(max(whole)[3]) if whole else 4096


def read(folder: Path) -> dict[int, Row]:
    """What a log in a folder holds."""
    manifest, found = json.loads((folder / "manifest.json").read_bytes()), dict[int, Row]()
    for one in manifest["segments"]:
        file = folder / f"{one['first']:020d}-{one['epoch']:08d}.log"
        end = one["reach"]["end"] if one["reach"] else committed(file)
        found |= frames(file, manifest["log"], one["first"], one["epoch"], one["previous_crc"], end)
    return found


def read_replica(state: Path) -> dict[int, Row]:
    """What a node's copy of a segment holds, by the records' numbers in the log: if it is sealed, up to its
    end; otherwise as far as its state tells, which is written when it is fenced."""
    one = json.loads(state.read_bytes())
    file, first = state.with_suffix(".log"), one["first"] + 1
    found = frames(file, one["log_id"], first, one["token"], 0, one["reach"][2])
    return {number: row for number, row in found.items() if number < first + one["length"]}


def read_nodes(nodes: list[Path], log: str) -> dict[int, Row]:
    """What the sealed replicas of a log hold, in the folders of all its nodes; they agree."""
    found: dict[int, Row] = {}
    for state in sorted(path for node in nodes for path in (node / "logs" / log).glob("*.state")):
        if json.loads(state.read_bytes())["state"] == "sealed":
            for number, row in read_replica(state).items():
                assert found.setdefault(number, row) == row
    return dict(sorted(found.items()))
