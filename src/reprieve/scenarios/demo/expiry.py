"""Deletes old events, as an API server does after an hour, so that an endless demo stays small.

An event's age counts from the last time that it was seen. The demo makes hundreds a minute: its
events live for ten minutes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from kubelocal.machines.objects import Unanswered
from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import InvalidInstant, Nanos, parse_instant
from reprieve.scenarios.stage import Stage

__all__ = ["AGE", "expire_events", "remove_old"]

AGE: Final = 10 * MINUTE
_EVERY: Final = 15 * SECOND
_EVENTS: Final = "events"
_INSTANTS: Final = ("lastTimestamp", "eventTime")


async def expire_events(stage: Stage) -> None:
    """Delete events that are older than `AGE`, until cancelled."""
    while True:
        await stage.clock.sleep(_EVERY)
        with contextlib.suppress(Unanswered):  # the others are deleted in the next turn
            await remove_old(stage, Nanos(stage.clock.wall() - AGE))


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
