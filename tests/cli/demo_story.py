"""What `truecut demo` tells of the shop, in its order."""

from __future__ import annotations

from collections.abc import Sequence


def told_in_order(lines: Sequence[str]) -> str:
    """Killed, resumed, verified, changed behind our back, found, repaired; the key that was changed."""
    (changed,) = (line for line in lines if line.startswith("! changed public.orders id="))
    key = changed.split()[3]
    wanted = [
        "✗ killed -9 in the middle of it",
        "✓ resumed from the cursors",
        "✓ verified at …",
        changed,
        f"✗ verify: public.orders at lake: {key} differs",
        "✓ repaired 1 row, verified",
    ]
    found = [[n for n, line in enumerate(lines) if line.startswith(one)] for one in wanted]
    assert all(found), [one for one, places in zip(wanted, found, strict=True) if not places]
    assert [places[0] for places in found] == sorted(places[0] for places in found)
    return key
