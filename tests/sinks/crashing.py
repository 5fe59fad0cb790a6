"""Run as a process of its own that is killed at a failpoint: takes a sink over and carries out one order.

The arguments are a pickled sink, order and list of packets, in a file.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

if __name__ == "__main__":
    sink, order, packets = pickle.loads(Path(sys.argv[1]).read_bytes())
    assert sink.recover(epoch=1, token=order.token).outcome == "applied"
    sink.apply(order, iter(packets))
