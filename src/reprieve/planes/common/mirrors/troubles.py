"""Which of the watched kinds cannot be read: a plane decides nothing on facts that may be stale.

A refusal counts at once, a failure that may pass only when it has lasted for a while: a single 429
must not hold up decisions. Source: the design's "State that can be trusted".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.kube.reflector import Health
from reprieve.kube.resource import Resource

__all__ = ["Troubles"]

_TOLERANCE: Final = 10 * SECOND


class _Read(Protocol):
    """A kind that is read."""

    @property
    def resource(self) -> Resource: ...
    @property
    def health(self) -> Health: ...
    @property
    def error(self) -> Exception | None: ...


class Troubles:
    """Remembers since when each kind cannot be read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Kinds that failed when they were last looked at: since when, monotonic.
        self._failing: dict[str, Nanos] = {}

    def lines(self, reflectors: Iterable[_Read]) -> list[str]:
        """Return one line for each of these kinds that cannot be read."""
        now = self._clock.monotonic()
        failing = {}
        found = []
        for reflector in reflectors:
            health = reflector.health
            if health in (Health.WATCHING, Health.STARTING):
                continue
            kind = reflector.resource.qualified
            since = failing[kind] = self._failing.get(kind, now)
            lasting = health in (Health.FORBIDDEN, Health.NOT_SERVED)
            if lasting or now - since >= _TOLERANCE:
                found.append(f"{kind}: {health}: {reflector.error}")
        self._failing = failing
        return found
