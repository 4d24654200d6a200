"""Why something has no pods: the API server refuses them, and its controller says so in an event.

Source: the events `FailedCreate` of kube-controller-manager and of the controllers of jobs.
"""

from __future__ import annotations

from typing import Final

from reprieve.answers.document import State, Step
from reprieve.answers.sources import Json, Reading
from reprieve.answers.standing import Standing
from reprieve.answers.unit import Unit, name_of, namespace_of, uid_of
from reprieve.kube.resource import EVENTS, Resource

__all__ = ["with_refusal"]

_REFUSED: Final = "FailedCreate"
_MADE: Final = "SuccessfulCreate"
_REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
_LEADS: Final = ("Error creating: ", "failed error: ")


async def with_refusal(reading: Reading, unit: Unit, standing: Standing) -> Standing:
    """Return how a unit stands, with what its controller was told when it made its pods.

    Of something that has pods, or has a reason to have none, nothing is read.
    """
    if standing.state is not State.UNKNOWN:
        return standing
    namespace = namespace_of(unit.asked)
    uids = {uid_of(each) for each in (unit.asked, *unit.owners)}
    for each in await reading.listed((_REPLICA_SETS,), namespace, quietly=True):
        owners = each["metadata"].get("ownerReferences") or ()
        if uids & {str(owner.get("uid")) for owner in owners}:
            uids.add(uid_of(each))
    told = [
        event
        for event in await reading.listed((EVENTS,), namespace, quietly=True)
        if event.get("reason") in (_REFUSED, _MADE)
        and str((event.get("involvedObject") or {}).get("uid")) in uids
    ]
    newest = max(told, key=_instant, default=None)
    if newest is None or newest["reason"] != _REFUSED:
        return standing  # what was refused before has been made since
    why = str(newest.get("message", ""))
    for lead in _LEADS:
        why = why.rpartition(lead)[2]
    text = f"the API server refuses its pods: {why.rstrip('.')}"
    kind, name = unit.asked["kind"].lower(), name_of(unit.asked)
    remedy = Step(
        "Change what is refused, or have it allowed; its controller tries again by itself:",
        f"kubectl -n {namespace} describe {kind} {name}",
    )
    return Standing(State.STOPPED, text=text, remedy=remedy)


def _instant(event: Json) -> str:
    """Return when an event came last; texts of instants in UTC sort as these do."""
    return str(
        (event.get("series") or {}).get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or ""
    )
