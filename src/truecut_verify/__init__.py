"""Checks Truecut's certificates. Shares no code with what issues them: read it, then trust it."""
