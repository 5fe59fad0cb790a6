"""DuckLake as a sink."""
