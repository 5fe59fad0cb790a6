"""The wave: one Spark job that reads a window, routes its rows and applies them to all its sinks."""
