"""Separate kinds that exist but may not be read from kinds that the server does not have.

The API server answers 403 before it looks whether a kind exists. A kind that is not there protects
no workload, so its absence holds nothing back; one that is there may protect some, so that nothing
is decided until it can be read, and the log names the rule to add. Discovery, which every
authenticated client may read, states which of the two it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.kube.discovery import NotServed, RestMapper
from reprieve.kube.errors import ApiError, Forbidden
from reprieve.kube.reader import Reader
from reprieve.kube.reflector import Health
from reprieve.kube.resource import Resource

__all__ = ["RefusedKinds"]

_LOOK_AGAIN = 10 * SECOND


class _Read(Protocol):
    @property
    def resource(self) -> Resource: ...
    @property
    def synced(self) -> asyncio.Event: ...
    @property
    def health(self) -> Health: ...
    @property
    def error(self) -> Exception | None: ...


class RefusedKinds:
    """The kinds of one reader that it can do without where they are not served.

    Args:
        client: for discovery.
        clock: for pauses.
        log: for the warning about a kind that exists and may not be read.
        effect: what is not done without it, as the end of that warning.
    """

    def __init__(self, client: Reader, clock: Clock, log: logging.Logger, effect: str) -> None:
        self._mapper = RestMapper(client, clock)
        self._clock = clock
        self._log = log
        self._effect = effect
        self._absent: set[Resource] = set()
        self._reported: set[Resource] = set()
        self._refused = asyncio.Event()

    def report(self, trouble: Exception) -> None:
        """Record the trouble of a reflector; a refusal is reported once its kind is found."""
        if isinstance(trouble, Forbidden):
            self._refused.set()

    def absent(self, read: _Read) -> bool:
        """Whether a kind counts as empty, since the server does not have it."""
        if read.health is Health.FORBIDDEN:
            return read.resource in self._absent
        return read.health is Health.NOT_SERVED

    def known(self, read: _Read) -> bool:
        """Whether a kind was listed, or counts as empty."""
        return read.synced.is_set() or self.absent(read)

    def troubling(self, kinds: Iterable[_Read]) -> list[_Read]:
        """Return those kinds whose absence is no explanation of what they fail at."""
        return [each for each in kinds if not self.absent(each)]

    async def run(self, kinds: Sequence[_Read]) -> None:
        """Query discovery about each refused kind until cancelled."""
        while True:
            await self._refused.wait()
            self._refused.clear()
            refused = [each for each in kinds if each.health is Health.FORBIDDEN]
            for each in refused:
                await self._ask(each)
            if refused:
                await self._clock.sleep(_LOOK_AGAIN)
                self._refused.set()
            else:
                self._reported.clear()

    async def _ask(self, read: _Read) -> None:
        resource = read.resource
        try:
            await self._mapper.resource_for(resource.api_version, resource.kind)
        except NotServed:
            self._absent.add(resource)
            return
        except ApiError:
            return  # discovery is queried again
        self._absent.discard(resource)
        if resource not in self._reported:
            self._reported.add(resource)
            self._log.warning("%s; %s until it is granted", read.error, self._effect)
