"""Where a process listens: HOST:PORT, and whether only this machine can reach it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """HOST:PORT."""

    host: str
    port: int

    @staticmethod
    def parse(text: str) -> Address:
        """ValueError when it is anything else."""
        host, _, port = text.rpartition(":")
        if not host or not port.isdigit() or not 0 <= int(port) < 1 << 16:
            raise ValueError(f"not an address: {text!r}; expected HOST:PORT, e.g. 127.0.0.1:7000")
        return Address(host.strip("[]"), int(port))

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
