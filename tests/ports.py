"""A port for a process that has to be told one before it starts."""

from __future__ import annotations

import os
import socket

__all__ = ["free_port", "free_ports"]

#: Below the ports that the system itself gives to connections and servers.
_FIRST, _LAST = 15_000, 32_000


def free_port() -> int:
    """Return a port that nobody listens at."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return different ports that nobody listens at.

    Processes begin to look at places that are far from each other, so that none is given a port
    that another has been given and does not listen at yet.
    """
    start = os.getpid() * 1009 % (_LAST - _FIRST)
    given: list[int] = []
    for step in range(_LAST - _FIRST):
        port = _FIRST + (start + step) % (_LAST - _FIRST)
        with socket.socket() as found:
            try:
                found.bind(("", port))
            except OSError:
                continue
        given.append(port)
        if len(given) == count:
            return given
    raise AssertionError(f"only {len(given)} ports are free")
