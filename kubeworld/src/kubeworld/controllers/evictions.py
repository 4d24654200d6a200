"""The status of an Eviction (`lifecycle.k8s.io`): which responder is active.

1. The responders of a pod are those of its spec, and the one that calls the eviction subresource,
   with priority 100. A higher priority comes first; of equal ones the name whose domain comes
   first, its top label compared before the others, and the key last.
2. One responder is active at a time. It has had its turn when it has set `completionTime`, and is
   interrupted when 20 minutes have passed since its last heartbeat, or since its start.
3. Where no requester requests the eviction any more, the active responder is canceled.
4. A pod that has ended or is deleted counts as evicted: an active responder that has not reported
   its end is interrupted, but for the one that calls the subresource.
5. A responder that was never active stays inactive. An Eviction that has ended changes no more; a
   new request needs another one.

Pure. Source: KEP-4563 and the types of Kubernetes 1.37, which has no such controller yet.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from kubeworld.objects.conditions import condition, set_condition
from kubeworld.objects.pods import is_over
from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos, format_instant, parse_instant

__all__ = ["EVICTOR", "HEARTBEAT_DEADLINE", "eviction_status", "responders_of"]

EVICTOR: Final = "imperative-eviction.k8s.io/evictor"
HEARTBEAT_DEADLINE: Final = 20 * MINUTE
_EVICTOR_PRIORITY: Final = 100
_MESSAGES: Final = {
    "AwaitingEviction": "the responders are asked one after the other",
    "CanceledDueToNoRequesters": "nobody requests the eviction any more",
    "EvictionFailed": "the target was not evicted",
    "NoFurtherResponder": "all responders have had their turn",
    "PodDeleted": "the pod is gone",
    "PodTerminal": "the pod has ended",
    "Succeeded": "the target is evicted",
}

Object = Mapping[str, Any]


def responders_of(pod: Object) -> list[dict[str, Any]]:
    """Return the responders of a pod with their priorities, in the order of their turns."""
    named = [dict(each) for each in pod["spec"].get("evictionResponders") or ()]
    found = [*named, {"name": EVICTOR, "priority": _EVICTOR_PRIORITY}]
    return sorted(found, key=lambda each: (-each["priority"], _domain(each["name"])))


def eviction_status(
    eviction: Object, intents: Mapping[str, str], pod: Object | None, now: Nanos
) -> tuple[dict[str, Any], int | None]:
    """Return the status of an Eviction, and the nanoseconds until it has to be computed again.

    Args:
        eviction: with the status that it has.
        intents: of each requester whose EvictionRequest is there: `Eviction` or `Withdrawn`.
        pod: its target; None where it is deleted, or another one has its name.
        now: by the wall clock.
    """
    status: dict[str, Any] = copy.deepcopy(eviction.get("status") or {})
    status["observedGeneration"] = eviction["metadata"].get("generation", 1)
    known = {each["name"]: "Withdrawn" for each in status.get("requesters") or ()} | dict(intents)
    status["requesters"] = [{"name": name, "intent": known[name]} for name in sorted(known)]
    if any(_is_true(eviction, kind) for kind in ("TargetEvicted", "Failed")):
        return status, None
    if pod is not None and not status.get("targetResponders"):
        turns = responders_of(pod)
        status["targetResponders"] = [{**each, "state": "Inactive"} for each in turns]
        status["responders"] = [{"name": each["name"]} for each in turns]
    if pod is None or is_over(pod):
        _end_turn(status, "Interrupted", now)
        reason = "PodDeleted" if pod is None else "PodTerminal"
        _conclude(status, (True, reason), (False, "Succeeded"), now)
        return status, None
    waits = ("Active", "Inactive")
    if "Eviction" not in known.values():
        _end_turn(status, "Canceled", now)
        reason = "CanceledDueToNoRequesters"
        _conclude(status, (False, reason), (True, reason), now)
        return status, None
    again = _next_turn(status, now)
    if any(turn["state"] in waits for turn in status["targetResponders"]):
        _conclude(status, (False, "AwaitingEviction"), (False, "AwaitingEviction"), now)
    else:
        _conclude(status, (False, "EvictionFailed"), (True, "NoFurtherResponder"), now)
    return status, again


def _end_turn(status: dict[str, Any], state: str, now: Nanos) -> None:
    """Set a final state for the active responder."""
    said = {each["name"]: each for each in status.get("responders") or ()}
    for turn in status.get("targetResponders") or ():
        if turn["state"] == "Active":
            mine = said[turn["name"]]
            if turn["name"] == EVICTOR and state == "Interrupted":
                mine["completionTime"] = format_instant(now)
            turn["state"] = "Completed" if mine.get("completionTime") else state


def _is_true(obj: Object, kind: str) -> bool:
    found = condition(obj, kind)
    return found is not None and found["status"] == "True"


def _next_turn(status: dict[str, Any], now: Nanos) -> int | None:
    """End the turn that is over, begin the next; return how long until silence ends this one."""
    said = {each["name"]: each for each in status["responders"]}
    for turn in status["targetResponders"]:
        mine = said[turn["name"]]
        if turn["state"] == "Active":
            if mine.get("completionTime"):
                turn["state"] = "Completed"
                continue
            heard = parse_instant(mine.get("heartbeatTime") or mine["startTime"])
            left = heard + HEARTBEAT_DEADLINE - now
            if left > 0:
                return left
            turn["state"] = "Interrupted"
        elif turn["state"] == "Inactive":
            turn["state"] = "Active"
            mine["startTime"] = format_instant(now)
            return HEARTBEAT_DEADLINE
    return None


def _conclude(
    status: dict[str, Any],
    evicted: tuple[bool, str],
    failed: tuple[bool, str],
    now: Nanos,
) -> None:
    at = format_instant(now)
    for kind, (value, reason) in (("TargetEvicted", evicted), ("Failed", failed)):
        set_condition(status, kind, value, at, reason=reason, message=_MESSAGES[reason])


def _domain(name: str) -> tuple[tuple[str, ...], str]:
    domain, _, key = name.partition("/")
    return tuple(reversed(domain.split("."))), key
