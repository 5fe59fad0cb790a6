"""The log between capture and delivery: durable when an append returns, read in order, trimmed when done."""
