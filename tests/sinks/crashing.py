"""A process of its own that is killed at a failpoint: takes a sink over and carries out one order."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tests.sinks.forked import CONTEXT
from truecut.model.order import Order
from truecut.sinks.contract import Packet, Sink


def exit_code(environment: Mapping[str, str], sink: Sink[Any], order: Order, packets: list[Packet]) -> Any:
    """How the process ended that did this with these variables."""
    process = CONTEXT.Process(target=_carry_out, args=(environment, sink, order, packets))
    process.start()
    process.join()
    return process.exitcode


def _carry_out(environment: Mapping[str, str], sink: Sink[Any], order: Order, packets: list[Packet]) -> None:
    os.environ.update(environment)
    assert sink.recover(epoch=1, token=order.token).outcome == "applied"
    sink.apply(order, iter(packets))
