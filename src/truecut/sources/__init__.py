"""Where changes come from: one module for each kind of source, and their contract."""
