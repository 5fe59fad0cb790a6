"""Frozen values that every layer shares. Nothing here performs I/O."""
