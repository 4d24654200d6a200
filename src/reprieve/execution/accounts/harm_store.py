"""What of harm outlives a process: loaded once this one leads, and kept from then on.

The planes decide nothing before that (`loaded`). Where the operator may not read what is stored,
it begins with nothing and stores nothing.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.engine.disruptions.governor import Governor
from reprieve.execution.fence import Fence
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError, Forbidden
from reprieve.kube.writes import Priority

__all__ = ["AGAIN", "HarmSite", "HarmStore", "log"]

log: Final = logging.getLogger("reprieve.harm")

#: After how long what failed is tried again.
AGAIN: Final = 2 * SECOND


@dataclass(frozen=True, slots=True)
class HarmSite:
    """Where and by whom harm is stored.

    `wait_leading`: before that another process may write; None in a process that never does.
    """

    client: Client
    namespace: str
    fence: Fence
    clock: Clock
    governor: Governor
    wait_leading: Callable[[], Awaitable[None]] | None = None


class HarmStore(ABC):
    """Loads and keeps. `run` works beside the planes. `name`: what is stored, for the log."""

    name: str

    def __init__(self, site: HarmSite) -> None:
        self._client, self._fence, self._clock = site.client, site.fence, site.clock
        self._namespace, self._governor = site.namespace, site.governor
        check, timeout = site.fence.check, site.fence.request_timeout
        self._writer = site.client.at(Priority.STATUS, check, timeout=timeout)
        self._wait_leading = site.wait_leading
        self.loaded = False

    async def run(self) -> None:
        """Load once this process leads, then keep until cancelled."""
        if self._wait_leading is not None:
            await self._wait_leading()
        if await self.load():
            await self._keep()

    async def load(self) -> bool:
        """Adopt what former processes stored; False where that may not be read."""
        while True:
            try:
                await self._load()
            except Forbidden as refusal:
                log.warning("%s is not stored and is lost at a restart: %s", self.name, refusal)
                self._begin()
                self.loaded = True
                return False
            except ApiError as failure:
                log.warning("%s: cannot be read: %s", self.name, failure)
                await self._clock.sleep(AGAIN)
            else:
                self.loaded = True
                return True

    @abstractmethod
    async def _load(self) -> None:
        """Adopt what is stored."""

    @abstractmethod
    def _begin(self) -> None:
        """Begin with nothing."""

    @abstractmethod
    async def _keep(self) -> None:
        """Store what is new, until cancelled."""
