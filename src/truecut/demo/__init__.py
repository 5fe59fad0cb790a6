"""A live source, its tenants, a kill -9 and a comparison: what `truecut demo` shows."""
