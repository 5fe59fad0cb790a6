"""Where changes go: one module for each kind of sink, and their contract."""
