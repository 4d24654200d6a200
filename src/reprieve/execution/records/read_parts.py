"""Reads the parts of plans, which `stored_parts` writes: for reports of decisions, too.

It knows no client that writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from reprieve.api.reprieve import Preemption, PreemptionPart, PreemptionSpec
from reprieve.kube.errors import NotFound
from reprieve.kube.reader import Reader
from reprieve.kube.resource import PREEMPTION_PARTS
from reprieve.records.plans.parts import PartsMissing, joined, left, whole

__all__ = ["names_of_parts", "stored_whole", "with_parts"]

log: Final = logging.getLogger(__name__)


async def stored_whole(reader: Reader, intent: Preemption) -> Preemption:
    """Return an intent as it was decided, with its input, whatever it was stored in.

    Raises:
        PartsMissing: not all of it is there.
        ApiError: a part could not be read.
    """
    parts = await _read_parts(reader, intent, names_of_parts(intent.spec))
    spec = whole(intent.spec, [part.spec for part in parts])
    return msgspec.structs.replace(intent, spec=spec)


async def with_parts(reader: Reader, intent: Preemption) -> Preemption:
    """Return an intent with what there is of its parts; the log states where that is not all."""
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


def names_of_parts(spec: PreemptionSpec) -> Sequence[str]:
    """Return the names of all parts of a plan, those of its input included."""
    return (*spec.parts, *spec.input_parts)
