"""Why a Workload waits, as the operator's last event on it reports.

A Workload behind the head of a queue has no condition: no cycle has decided about it. The event
`Waiting` of the operator states its reason all the same.
"""

from __future__ import annotations

from kubeworld.objects.paths import first
from reprieve.answers.sources import Json, Reading
from reprieve.kube.resource import EVENTS

__all__ = ["announced", "instant_of"]


async def announced(reading: Reading, workload: Json | None) -> str:
    """Return the sentence of the last event about why a Workload waits.

    Empty where there is none, or where a condition of the Workload states it.
    """
    if workload is None:
        return ""
    for each in first(workload, "status.conditions") or ():
        if each.get("type") == "QuotaReserved":
            return ""
    metadata = workload["metadata"]
    events = [
        event
        for event in await reading.listed((EVENTS,), metadata.get("namespace", ""), quietly=True)
        if event.get("reason") == "Waiting"
        and first(event, "involvedObject.uid") == metadata.get("uid")
    ]
    last = max(events, key=instant_of, default=None)
    return "" if last is None else str(last.get("message") or "").partition(": ")[2]


def instant_of(event: Json) -> str:
    """Return when an event came last; texts of instants in UTC sort as these do."""
    return str(
        (event.get("series") or {}).get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or ""
    )
