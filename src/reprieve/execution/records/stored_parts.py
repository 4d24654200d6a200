"""Parts of plans on the API server, the `PreemptionPart` objects that `parts` makes.

They are written before their head, the `Preemption`, until which nothing is acted upon, and read
with it; they are removed after it. What a death leaves of them without a head is removed once it
has been seen so for ten minutes. Source: the design's "Intent log and executor", step 2.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE
from reprieve.api.reprieve import Metadata, Preemption, PreemptionPart, PreemptionSpec
from reprieve.execution.records.parts import PartsMissing, Split, joined, left, whole
from reprieve.kube.client import Client
from reprieve.kube.errors import AlreadyExists, ApiError, NotFound
from reprieve.kube.reader import Reader
from reprieve.kube.resource import PREEMPTION_PARTS
from reprieve.kube.writes import Priority

__all__ = ["StoredParts", "stored_whole", "with_parts"]

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
        for name in _names(spec):
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
        named = {name for head in heads for name in _names(head.spec)}
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
            # Its name says its content: an earlier try, whose answer was lost.
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


async def stored_whole(reader: Reader, intent: Preemption) -> Preemption:
    """Return an intent as it was decided, with its input, whatever it was stored in.

    Raises:
        PartsMissing: not all of it is there.
        ApiError: a part could not be read.
    """
    parts = await _read_parts(reader, intent, _names(intent.spec))
    spec = whole(intent.spec, [part.spec for part in parts])
    return msgspec.structs.replace(intent, spec=spec)


async def with_parts(reader: Reader, intent: Preemption) -> Preemption:
    """Return an intent with what there is of its parts; the log says where that is not all."""
    spec = intent.spec
    if not spec.parts or spec.victims:
        return intent
    parts = await _read_parts(reader, intent, spec.parts)
    try:
        found = joined(spec, [part.spec for part in parts])
        return msgspec.structs.replace(intent, spec=found)
    except PartsMissing as missing:
        log.error("preemption %s: %s", intent.metadata.name, missing)
    # Numbers count victims from the plan's first, who may be missing.
    status = msgspec.structs.replace(intent.status, numbers_by_state={})
    found = left(spec, [part.spec for part in parts])
    return msgspec.structs.replace(intent, spec=found, status=status)


async def _read_parts(
    reader: Reader, intent: Preemption, names: Iterable[str]
) -> list[PreemptionPart]:
    async def read(name: str) -> PreemptionPart | None:
        namespace = intent.metadata.namespace
        try:
            return await reader.get(PREEMPTION_PARTS, namespace, name, PreemptionPart)
        except NotFound:
            return None

    found = await asyncio.gather(*map(read, names))
    return [part for part in found if part is not None]


def _names(spec: PreemptionSpec) -> Sequence[str]:
    return (*spec.parts, *spec.input_parts)
