"""Protocol state machines without I/O or clocks, each beside its TLA+ module in specs/."""
