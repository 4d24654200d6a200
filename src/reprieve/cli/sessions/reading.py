"""The client of commands that only read."""

from __future__ import annotations

from kubeworld.units.clock import Clock
from reprieve.kube.client import Client
from reprieve.kube.credentials import Connection
from reprieve.kube.transport import HttpWire, Transport
from reprieve.whatif.copy.wire import ReadingWire

__all__ = ["reading_client"]


def reading_client(connection: Connection, clock: Clock) -> Client:
    """Return a client that cannot write."""
    return Client(Transport(ReadingWire(HttpWire(connection)), clock))
