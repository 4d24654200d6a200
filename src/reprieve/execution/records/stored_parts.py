"""Parts of plans on the API server, the `PreemptionPart` objects that `parts` makes.

They are written before their head, the `Preemption`, until which nothing is acted upon, and read
with it; they are removed after it. What a death leaves of them without a head is removed once it
has been seen so for ten minutes. Source: the design's "Intent log and executor", step 2.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import Final

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE
from reprieve.api.reprieve import Metadata, Preemption, PreemptionPart, PreemptionSpec
from reprieve.execution.records.read_parts import names_of_parts
from reprieve.kube.client import Client
from reprieve.kube.errors import AlreadyExists, ApiError, NotFound
from reprieve.kube.resource import PREEMPTION_PARTS
from reprieve.kube.writes import Priority
from reprieve.records.plans.parts import Split

__all__ = ["StoredParts"]

log: Final = logging.getLogger("reprieve.execution")

_ORPHANED: Final = 10 * MINUTE
_SWEEP_EVERY: Final = 5 * MINUTE


class _PartHead(msgspec.Struct, frozen=True):
    """A part without its content."""

    metadata: Metadata


class StoredParts:
    """Writes and removes the parts of one operator namespace."""

    def __init__(self, client: Client, namespace: str, clock: Clock) -> None:
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._orphans: dict[str, int] = {}  # parts without a head, and since when that is seen
        self._swept: int | None = None

    async def write(self, writer: Client, apart: Split) -> ApiError | None:
        """Write all parts of a plan; return why its input could not be, None where it is.

        Raises:
            ApiError: another part cannot be written.
        """
        lost, *_ = await asyncio.gather(
            self._write_inputs(writer, apart.inputs),
            *(self._write_part(writer, part) for part in apart.parts),
        )
        return lost

    async def remove(self, spec: PreemptionSpec) -> None:
        """Delete the parts of a plan; should this fail they are orphans."""
        for name in names_of_parts(spec):
            await self._remove_part(name)

    async def sweep(self, plane: str, heads: Iterable[Preemption]) -> None:
        """Remove parts of a plane that have had no head for ten minutes; looks every five minutes.

        `heads`: all intents of the plane.

        Raises:
            ApiError: to be tried again.
        """
        now = self._clock.monotonic()
        if self._swept is not None and now - self._swept < _SWEEP_EVERY:
            return
        self._swept = now
        named = {name for head in heads for name in names_of_parts(head.spec)}
        try:
            listed = await self._client.list(
                PREEMPTION_PARTS, _PartHead, namespace=self._namespace, metadata_only=True
            )
        except NotFound:
            return  # the kind is not served: there are none
        before, self._orphans = self._orphans, {}
        for part in listed.items:
            metadata = part.metadata
            if metadata.name in named or not metadata.name.startswith(f"{plane}-"):
                continue
            since = before.get(metadata.uid, now)
            if now - since >= _ORPHANED:
                await self._remove_part(metadata.name, metadata.uid)
            else:
                self._orphans[metadata.uid] = since

    async def _remove_part(self, name: str, uid: str = "") -> None:
        writer = self._client.at(Priority.STATUS)
        with contextlib.suppress(NotFound):
            await writer.delete(PREEMPTION_PARTS, self._namespace, name, uid=uid)

    async def _write_part(self, writer: Client, part: PreemptionPart) -> None:
        try:
            await writer.create(PREEMPTION_PARTS, part, _PartHead)
        except AlreadyExists:
            # Its name states its content: an earlier try, whose answer was lost.
            return

    async def _write_inputs(
        self, writer: Client, parts: Iterable[PreemptionPart]
    ) -> ApiError | None:
        """Write the parts of the input; return why that failed, None where it did not."""
        try:
            for part in parts:
                await self._write_part(writer, part)
        except ApiError as failure:
            return failure
        return None
