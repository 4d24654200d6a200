"""Mean waits of queues that theory knows, as plain formulas; times in the unit of the service time.

Sources: Erlang's C formula for M/M/k; Pollaczek and Khinchine for M/D/1; for two classes at one
server with preemptive resume, the mean time in the system of Kleinrock's second volume, less the
service.
"""

from __future__ import annotations

from math import factorial


def mmk_wait(load: float, servers: int) -> float:
    """Mean wait of M/M/k at `load` of each server, for a mean service time of 1."""
    offered = load * servers
    waiting = offered**servers / factorial(servers) / (1 - load)
    idle = sum(offered**k / factorial(k) for k in range(servers)) + waiting
    return waiting / idle / (servers * (1 - load))


def md1_wait(load: float) -> float:
    """Mean wait of M/D/1 for a service time of 1."""
    return load / (2 * (1 - load))


def preemptive_waits(first: float, second: float) -> tuple[float, float]:
    """Mean waits of two classes of M/M/1 with these loads; the first displaces the second."""
    in_first = 1 / (1 - first)
    rest = first + second  # half of the second moment of the service is 1 for each of them
    in_second = (1 - first - second + rest) / ((1 - first) * (1 - first - second))
    return in_first - 1, in_second - 1
