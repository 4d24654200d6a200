"""A port for a process that has to be told one before it starts."""

from __future__ import annotations

import os
import socket

__all__ = ["free_port"]

#: Below the ports that the system itself gives to connections and servers.
_FIRST, _LAST = 15_000, 32_000


def free_port() -> int:
    """Return a port that nobody listens at; processes begin to look at different places."""
    start = os.getpid() * 37 % (_LAST - _FIRST)
    for step in range(_LAST - _FIRST):
        port = _FIRST + (start + step) % (_LAST - _FIRST)
        with socket.socket() as found:
            try:
                found.bind(("", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")
