"""PostgreSQL as a source: its logical change stream, pgoutput, and its types."""
