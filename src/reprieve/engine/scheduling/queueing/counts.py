"""How many entries and pods are in each queue, as the metrics of kube-scheduler count them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from reprieve.engine.scheduling.queueing.entries import Entry, Place

__all__ = ["entities_by_queue", "pods_by_queue"]

_QUEUES: Final = (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED)


def entities_by_queue(entries: Iterable[Entry]) -> Mapping[tuple[str, str], int]:
    """Return the number of entries by (queue, type), for the four queues."""
    found = {(str(queue), kind): 0 for queue in _QUEUES for kind in ("pod", "podgroup")}
    for entry in entries:
        if entry.queue in _QUEUES:
            found[str(entry.queue), entry.kind] += 1
    return found


def pods_by_queue(entries: Iterable[Entry], incomplete: int) -> Mapping[str, int]:
    """Return the number of pods by queue, `incomplete` and `pending` included."""
    found = dict.fromkeys((*map(str, _QUEUES), "incomplete", "pending"), 0)
    for entry in entries:
        if entry.queue in _QUEUES:
            found[str(entry.queue)] += len(entry.members)
        found["pending"] += len(entry.arrived)
    found["incomplete"] = incomplete
    return found
