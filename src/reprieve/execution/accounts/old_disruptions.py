"""How long Disruptions stay: 168 hours, and 200 in a namespace; the oldest are deleted first.

All are listed once an hour, without their content. Between two lists those that are written are
counted (`crowding`), and a namespace that has too many is looked at by itself, once a minute.
Source: specification of disruptions, section 6.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.durations import HOUR, MINUTE
from kubeworld.units.instants import parse_instant
from reprieve.api.reprieve import Metadata
from reprieve.execution.accounts.crowding import MOST_IN_NAMESPACE, Crowding
from reprieve.execution.fence import Deposed, Fence
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError, NotFound
from reprieve.kube.resource import DISRUPTIONS

__all__ = ["TIME_TO_LIVE", "OldDisruptions"]

log: Final = logging.getLogger("reprieve.execution")

TIME_TO_LIVE: Final = 168 * HOUR
_SWEEP_EVERY: Final = HOUR
_PAGE: Final = 500


class _Head(msgspec.Struct, frozen=True):
    """A Disruption without its content."""

    metadata: Metadata


class OldDisruptions:
    """Removes those that are too old or too many, by calls of `writer`, `slots` at a time."""

    def __init__(
        self, client: Client, writer: Client, fence: Fence, clock: Clock, slots: asyncio.Semaphore
    ) -> None:
        self._client = client
        self._writer = writer
        self._fence = fence
        self._clock = clock
        self._slots = slots
        self._crowding = Crowding()

    @property
    def namespaces(self) -> int:
        """Of how many namespaces it is known how many there are."""
        return len(self._crowding)

    def written(self, namespace: str) -> None:
        """One more was written."""
        self._crowding.written(namespace)

    async def run(self) -> None:
        """Remove what is old, until cancelled."""
        next_sweep = 0
        while True:
            await self._clock.sleep(MINUTE)
            if not self._fence.open:
                continue
            try:
                if self._clock.monotonic() >= next_sweep:
                    await self._sweep()
                    next_sweep = self._clock.monotonic() + _SWEEP_EVERY
                for space in self._crowding.crowded:
                    await self._trim(space)
            except Deposed:
                continue
            except ApiError as failure:
                log.warning("expired Disruptions are not deleted, they are retried: %s", failure)
            except Exception:
                log.exception("expired Disruptions are not deleted, they are retried")

    async def _sweep(self) -> None:
        """Remove those of all namespaces that are too old, and count the others."""
        counts: dict[str, int] = {}
        old: list[Metadata] = []
        async for page in self._client.list_pages(
            DISRUPTIONS, _Head, page_size=_PAGE, metadata_only=True
        ):
            for each in page.items:
                if self._is_old(each.metadata):
                    old.append(each.metadata)
                else:
                    space = each.metadata.namespace
                    counts[space] = counts.get(space, 0) + 1
        await self._remove(old)
        self._crowding.counted(counts)

    async def _trim(self, namespace: str) -> None:
        """Remove the oldest of a namespace that has too many."""
        page = await self._client.list(DISRUPTIONS, _Head, namespace=namespace, metadata_only=True)
        ordered = sorted(
            (each.metadata for each in page.items),
            key=lambda metadata: (metadata.creation_timestamp, metadata.name),
        )
        surplus = max(0, len(ordered) - MOST_IN_NAMESPACE)
        await self._remove(ordered[:surplus])
        self._crowding.left(namespace, len(ordered) - surplus)

    async def _remove(self, old: Sequence[Metadata]) -> None:
        async def remove(metadata: Metadata) -> None:
            async with self._slots:
                try:
                    await self._writer.delete(
                        DISRUPTIONS, metadata.namespace, metadata.name, uid=metadata.uid
                    )
                except NotFound:
                    return

        await asyncio.gather(*map(remove, old))

    def _is_old(self, metadata: Metadata) -> bool:
        created = metadata.creation_timestamp
        return bool(created) and self._clock.wall() - parse_instant(created) >= TIME_TO_LIVE
