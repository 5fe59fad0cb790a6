"""Carries out what the pure core decides: leases, waves, retries, traces."""
