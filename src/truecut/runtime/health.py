"""Whether a pipeline is well, judged by its status document. Pure.

Well is a sink that lags at most as long as somebody allows, with every copy seeded and none held or failed,
and none that was found wrong and has not passed since.
What nobody knows is not well, nor a sink that was detached: it has to be copied anew. A sink that was taken
out of the file is nobody's concern.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def complaints(status: Mapping[str, Any], *, lag_max_ms: int) -> list[str]:
    """What is not well, a sentence each; nothing when all is."""
    return [*_of_copies(status), *_of_sinks(status, lag_max_ms)]


def _of_copies(status: Mapping[str, Any]) -> Iterator[str]:
    for copy in status["copies"]:
        name = f"{copy['table']} at sink {copy['sink']}"
        if copy["state"] == "failed":
            yield f"{name} is held: {copy['error']['code']}" if copy["error"] else f"{name} failed"
        elif copy["state"] == "pending":
            yield f"{name} was never seeded"
        elif copy["state"] == "backfilling":
            yield f"{name} is not seeded"
        if (copy.get("verification") or {}).get("failed"):
            yield f"{name} does not pass verification"


def _of_sinks(status: Mapping[str, Any], lag_max_ms: int) -> Iterator[str]:
    held = {copy["sink"] for copy in status["copies"] if copy["state"] == "failed"}
    for sink in status["sinks"]:
        if sink["state"] == "retired" or not sink["in_file"]:
            continue
        if sink["state"] == "detached":
            yield f"sink {sink['name']} is detached: the journal went on without it"
            continue
        if sink["state"] == "failed" and sink["name"] not in held:
            yield f"sink {sink['name']} failed: {(sink['error'] or {}).get('code')}"
        if sink["lag_ms"] is None:
            yield f"sink {sink['name']}: nobody knows how far it lags"
        elif sink["lag_ms"] > lag_max_ms:
            yield f"sink {sink['name']} lags {sink['lag_ms'] / 1000:.1f} s"
