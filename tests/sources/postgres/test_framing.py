"""The framing of pgoutput/1, and a relation's JSON form."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truecut.model.table import TableName
from truecut.sources.postgres import framing
from truecut.sources.postgres.relation import Relation, RelationColumn


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_messages_come_back(messages: list[bytes]) -> None:
    """Each message is where the offsets say, and nothing else is there."""
    offsets, data = framing.decode(framing.encode(messages))
    assert [data[a:b] for a, b in pairwise(offsets)] == messages
    assert offsets[-1] == len(data)


@given(st.lists(st.binary(max_size=40), max_size=30), st.data())
def test_a_shortened_payload_is_refused(messages: list[bytes], data: st.DataObject) -> None:
    """No beginning of a payload is a payload."""
    payload = framing.encode(messages)
    shorter = payload[: data.draw(st.integers(0, len(payload) - 1))]
    with pytest.raises(ValueError, match=r"end"):
        framing.decode(shorter)


def test_a_relation_comes_back_from_json() -> None:
    """A schema record holds everything of a relation, also names beyond ASCII."""
    column = RelationColumn(
        7, 'k "ä', 1231, 327685, 2, "numeric(5,1)[]", 1700, 327685, "b", "numeric", True, True, True
    )
    relation = Relation(16400, TableName("Ünter", "a.b"), "d", ('k "ä',), (column,))
    assert Relation.of(json.loads(json.dumps(relation.document()))) == relation
