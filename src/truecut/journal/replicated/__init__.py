"""The journal on several machines: log nodes, a coordinator, a producer, readers."""
