"""Deletes what has ended long ago, so that an endless demo stays small.

Events live for ten minutes, as those of an API server for an hour: an event's age counts from the
last time that it was seen, and the demo makes hundreds a minute. Of records, reports and
GpuWorkloads that are over the newest stay, at any speed: the operator would keep them for days.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Any, Final

from kubelocal.machines.objects import Unanswered
from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import InvalidInstant, Nanos, parse_instant
from reprieve.kube.resource import PREEMPTIONS
from reprieve.scenarios.observer import GPUWORKLOADS
from reprieve.scenarios.stage import Stage

__all__ = ["AGE", "KEPT", "expire", "remove_beyond", "remove_old"]

AGE: Final = 10 * MINUTE
_EVERY: Final = 15 * SECOND
_EVENTS: Final = "events"
#: Resources with how many of their objects that are over stay, and in which phases those are.
KEPT: Final[Mapping[str, tuple[int, tuple[str, ...]]]] = {
    PREEMPTIONS.qualified: (200, ("Completed", "Abandoned")),
    "disruptions.reprieve.dev": (300, ("",)),
    GPUWORKLOADS: (20, ("Deleted", "Preempted")),
}
_INSTANTS: Final = ("lastTimestamp", "eventTime")


async def expire(stage: Stage) -> None:
    """Delete events that are older than `AGE`, and all but `KEPT`, until cancelled."""
    while True:
        await stage.clock.sleep(_EVERY)
        with contextlib.suppress(Unanswered):  # the others are deleted in the next turn
            await remove_old(stage, Nanos(stage.clock.wall() - AGE))
            for resource, (most, over) in KEPT.items():
                await remove_beyond(stage, resource, most, over)


async def remove_beyond(stage: Stage, resource: str, most: int, over: Collection[str]) -> int:
    """Delete all but the newest objects in these phases; return how many these were."""
    ended = [
        each["metadata"]
        for each in stage.observer.all(resource)
        if str((each.get("status") or {}).get("phase", "")) in over
    ]
    ended.sort(key=lambda each: str(each.get("creationTimestamp")))
    for metadata in ended[: max(0, len(ended) - most)]:
        await stage.objects.delete(resource, metadata["namespace"], metadata["name"])
    return max(0, len(ended) - most)


async def remove_old(stage: Stage, before: Nanos) -> int:
    """Delete the events that were last seen before an instant; return how many these were."""
    old = [each for each in stage.observer.all(_EVENTS) if _seen(each) < before]
    for event in old:
        metadata = event["metadata"]
        await stage.objects.delete(_EVENTS, metadata["namespace"], metadata["name"])
    return len(old)


def _seen(event: Mapping[str, Any]) -> Nanos:
    written = (event.get("series") or {}).get("lastObservedTime")
    texts = (written, *(event.get(name) for name in _INSTANTS))
    found = [*filter(None, texts), event["metadata"].get("creationTimestamp") or ""]
    try:
        return max(parse_instant(str(each)) for each in found if each)
    except (InvalidInstant, ValueError):
        return Nanos(0)
