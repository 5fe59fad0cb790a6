"""Certificates: what was copied, as evidence that somebody else can check (docs/certificate-format.md)."""
