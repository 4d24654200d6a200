"""Why a unit waits, by what its objects state: conditions, phases and counts.

Used where the plane that decides cannot be queried: of the closed list of reasons, the one is
chosen that the texts of the deciding systems stand for. A text that stands for none of them has no
reason, and is reported verbatim. Sources: specification of the quota plane, sections 8.4 and 9;
specification, sections 16 and 21, for the texts of filters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubeworld.objects.pods import is_over
from kubeworld.units.instants import Nanos, instant_or_none
from kubeworld.units.quantities import InvalidQuantity
from kubeworld.units.untrusted import Form, integer_or_none
from reprieve.answers.kept_nodes import nominated_node, refusal_of, refusing
from reprieve.answers.place_texts import short_of_places
from reprieve.answers.quantities import listed
from reprieve.answers.sources import Json
from reprieve.answers.unit import Unit
from reprieve.engine.diagnosis.causes import CAUSE, Cause
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Reason, dominant
from reprieve.engine.plan import Plane
from reprieve.intake.cluster.requests import amount_in_base_units
from reprieve.intake.gangs import is_by_label

__all__ = [
    "Reported",
    "condition",
    "gates_of",
    "is_held_for_quota",
    "is_unbound",
    "minimum_of",
    "of_pods",
    "of_workload",
]

_LONGEST: Final = 32_768
_LACKS: Final = Form(
    r"insufficient unused quota for ([^\s,]++) in flavor ([^\s,]++), ([^\s,.]++) more needed",
    _LONGEST,
)
_COUNTED: Final = Form(r"([0-9]++) ([^,]++)", _LONGEST)
_NOT_HELPFUL: Final = re.compile(
    r"preemption: 0/(\d++) nodes are available: "
    r"(\d++) Preemption is not helpful for scheduling\.?+$"
)
_NODES: Final = Form(r"0/([0-9]++) nodes are available", _LONGEST)
#: Beginnings of what follows a count, by the reason: rules about pods that may be together.
_TOGETHER: Final = (
    "pod topology spread",
    "pod affinity",
    "pod anti-affinity",
    "anti-affinity rules",
)
_ROOM: Final = (
    "Insufficient ",
    "Too many pods",
    "resourceclaim",
    "cannot allocate all claims",
    "exceed max volume",
)
_KUEUE_GATE: Final = "kueue.x-k8s.io/admission"
#: By which the quota plane holds pods; the second one until their places are chosen.
_QUOTA_GATES: Final = {_KUEUE_GATE, "kueue.x-k8s.io/topology"}


@dataclass(frozen=True, slots=True)
class Reported:
    """What the objects state: the reason as far as it is known, the message, since when.

    `plane`: whose question it is. `missing`: a PodGroup that was looked for and is not there.
    """

    plane: Plane
    message: str = ""
    since: Nanos | None = None
    diagnosis: Diagnosis | None = None

    @property
    def waits_for_a_node_that_refuses(self) -> bool:
        """Return whether a node keeps capacity for its pods that no longer accepts them."""
        return self.diagnosis is not None and self.diagnosis.cause is Cause.NODE_REFUSES


def of_workload(workload: Json) -> Reported:
    """Return why a Workload has no quota, or is not admitted yet."""
    status = workload.get("status") or {}
    reserved = condition(workload, "QuotaReserved")
    if reserved is not None and reserved.get("status") == "True":
        checks = [
            each["name"]
            for each in status.get("admissionChecks") or ()
            if each.get("state") not in ("Ready", "Rejected")
        ]
        found = Diagnosis(Plane.QUOTA, Reason.CHECKS_OPEN, {"checks": listed(checks, 5)})
        since = instant_or_none(reserved.get("lastTransitionTime"))
        return Reported(Plane.QUOTA, str(reserved.get("message", "")), since, found)
    message = "" if reserved is None else str(reserved.get("message", ""))
    begun = instant_or_none(workload["metadata"].get("creationTimestamp"))
    evicted = condition(workload, "Evicted")
    if evicted is not None and evicted.get("status") == "True":
        begun = instant_or_none(evicted.get("lastTransitionTime")) or begun
    again = (status.get("requeueState") or {}).get("requeueAt")
    reasons = list(_quota_reasons(message))
    if again and instant_or_none(again) is not None:
        reasons.append(Reason.BACKOFF)
    reason = dominant(Plane.QUOTA, reasons)
    if reason is None:
        return Reported(Plane.QUOTA, message, begun)
    deficit = dict(_lacks(message)) if reason is Reason.HELD_BY_OTHERS else {}
    pod_sets = (workload.get("spec") or {}).get("podSets") or ()
    values = _quota_values(reason, message, again or "", pod_sets)
    return Reported(
        Plane.QUOTA, message, begun, Diagnosis(Plane.QUOTA, reason, values, deficit=deficit)
    )


def of_pods(unit: Unit, waiting: Sequence[Json], groups_known: bool) -> Reported:
    """Return why pods of a unit have no node; `waiting` are those, at least one.

    `groups_known`: PodGroups could be listed, so that one that was not found is not there.
    """
    said = [each for pod in waiting if (each := condition(pod, "PodScheduled")) is not None]
    said = [each for each in said if each.get("status") == "False"]
    begun = [instant_or_none(pod["metadata"].get("creationTimestamp")) for pod in waiting]
    since = min((each for each in begun if each is not None), default=None)
    message = max((str(each.get("message") or "") for each in said), key=len, default="")
    if unit.group is not None and not message:
        about = condition(unit.group, "PodGroupInitiallyScheduled", "PodGroupScheduled")
        message = str((about or {}).get("message") or "")
    found = _of_group(unit, waiting, groups_known) or _nominated(unit, waiting)
    found = found or _of_message(message)
    return Reported(Plane.SCHEDULING, message, since, found)


def condition(obj: Json, *types: str) -> Json | None:
    """Return the first condition of one of the types."""
    for each in (obj.get("status") or {}).get("conditions") or ():
        if isinstance(each, dict) and each.get("type") in types:
            return each
    return None


def is_unbound(pod: Json) -> bool:
    """Return whether a pod has no node yet, and will get one."""
    return not pod["spec"].get("nodeName") and not (
        is_over(pod) or pod["metadata"].get("deletionTimestamp")
    )


_ROOM_IN_PRINCIPLE: Final = (
    "insufficient unused quota",
    "pending the preemption",
    "once their work is saved",
)
_SAVING: Final = re.compile(
    r"Preempts (\d++ workload\(s\)) once their work is saved, which is expected by (\S++)"
)


def _quota_reasons(message: str) -> Iterator[Reason]:
    """Yield the reasons for which a message of the quota plane stands."""
    for end, reason in (
        (" doesn't exist", Reason.INACTIVE),
        (" is inactive", Reason.INACTIVE),
        (" is terminating or missing", Reason.INACTIVE),
    ):
        # Of a LocalQueue none of the reasons speaks: the message does.
        if message.endswith(end) and message.startswith("ClusterQueue "):
            yield reason
    if message.endswith(" is stopped"):
        yield Reason.STOPPED
    lower = message.lower()
    for part, reason in (
        ("pending the preemption of", Reason.VICTIMS_LEAVING),
        ("once their work is saved", Reason.VICTIMS_LEAVING),
        ("podsready condition", Reason.PODS_NOT_READY),
        ("insufficient unused quota", Reason.HELD_BY_OTHERS),
        ("allows to fit only", Reason.PLACES_TAKEN),
        ("doesn't allow to fit", Reason.PLACES_TAKEN),
    ):
        if part in lower:
            yield reason
    permanent = (
        ("> maximum capacity", Reason.NEVER_FITS),
        ("untolerated taint", Reason.NO_FLAVOR_MATCHES),
        ("doesn't match node affinity", Reason.NO_FLAVOR_MATCHES),
    )
    # Where another flavor has capacity in principle, what keeps it from this one is no verdict.
    if not any(part in lower for part in _ROOM_IN_PRINCIPLE):
        for part, reason in permanent:
            if part in lower:
                yield reason


def _quota_values(
    reason: Reason, message: str, again: str, pod_sets: Sequence[Json]
) -> Mapping[str, str]:
    match reason:
        case Reason.PLACES_TAKEN if short := short_of_places(message, pod_sets):
            return {"short": short}
        case Reason.STOPPED:
            return {"queue": message.removesuffix(" is stopped")}
        case Reason.INACTIVE:
            _, name, why = message.split(" ", 2)
            return {"cluster_queue": name, "why": why}
        case Reason.NO_FLAVOR_MATCHES:
            return {"why": message}
        case Reason.BACKOFF:
            return {"until": again}
        case Reason.VICTIMS_LEAVING if (found := _SAVING.search(message)) is not None:
            return {"saving": found[1].replace("(s)", "s"), "saved": found[2]}
        case _:
            return {}


def _lacks(message: str) -> Iterator[tuple[tuple[str, str], int]]:
    for found in _found(_LACKS, message, "insufficient unused quota"):
        resource, flavor, amount = found
        try:
            yield (f"flavor {flavor}", resource), amount_in_base_units(resource, amount)
        except InvalidQuantity:
            continue


def _found(form: Form, message: str, start: str) -> Iterator[tuple[str, ...]]:
    place = message.find(start)
    while place >= 0:
        match = form.match(message, place)
        if match is not None:
            yield match.groups()
        place = message.find(start, place + 1)


def _of_group(unit: Unit, waiting: Sequence[Json], groups_known: bool) -> Diagnosis | None:
    """Return what keeps a group from being tried at all."""
    if not unit.group_name:
        return None
    pod = waiting[0]
    by_object = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or is_by_label(
        pod["metadata"].get("labels") or {}
    )
    if unit.group is None:
        if by_object and groups_known:
            group = f"PodGroup {pod['metadata']['namespace']}/{unit.group_name}"
            return Diagnosis(Plane.SCHEDULING, Reason.GROUP_MISSING, {"group": group})
        return None
    minimum = minimum_of(unit.group)
    present = len([pod for pod in unit.members or unit.pods if not is_over(pod)])
    if minimum is not None and present < minimum:
        values = {"present": str(present), "minimum": str(minimum)}
        return Diagnosis(Plane.SCHEDULING, Reason.GROUP_INCOMPLETE, values)
    return None


def minimum_of(group: Json) -> int | None:
    """Return how many members a PodGroup of any API waits for, None where it does not state it."""
    spec: dict[str, Any] = group.get("spec") or {}
    gang = (spec.get("schedulingPolicy") or {}).get("gang") or {}
    found = gang.get("minCount", spec.get("minMember"))
    return found if isinstance(found, int) else None


def _nominated(unit: Unit, waiting: Sequence[Json]) -> Diagnosis | None:
    """Return that nodes keep capacity for pods, and which of them would not accept them now."""
    kept = list(filter(None, map(nominated_node, waiting)))
    if not kept:
        return None
    values = {"on": listed(kept)}
    why = refusal_of(waiting, unit.kept_nodes)
    if why:
        there = listed(refusing(waiting, unit.kept_nodes))
        values |= {CAUSE: Cause.NODE_REFUSES, "why": why, "nodes": there}
    return Diagnosis(Plane.SCHEDULING, Reason.NOMINATED_WAITING, values)


def _of_message(message: str) -> Diagnosis | None:
    nodes = _NODES.match(message, max(0, message.find("0/")))
    filters = dict(_filters(message))
    reason = _scheduling_reason(message, filters) if nodes is not None and filters else None
    if nodes is None or reason is None:
        return None
    return Diagnosis(Plane.SCHEDULING, reason, {"nodes": nodes.group(1)})


def _scheduling_reason(message: str, filters: Mapping[str, int]) -> Reason | None:
    """Return what a fit text stands for; None where it leaves open who could be preempted."""
    if any(part in text for text in filters for part in _TOGETHER):
        return Reason.SPREAD_OR_AFFINITY_BLOCKS
    if not any(part in text for text in filters for part in _ROOM):
        return Reason.NO_NODE_MATCHES
    if "preemptionPolicy=Never" in message:
        return Reason.POLICY_NEVER
    if "No preemption victims found" in message:
        return Reason.FULL
    # On no node its request fits, whoever is preempted; of claims this is true of every peer.
    whole = _NOT_HELPFUL.search(message)
    too_large = whole is not None and whole.group(1) == whole.group(2)
    only = not any(part in text for text in filters for part in _ROOM[1:])
    return Reason.NO_NODE_MATCHES if too_large and only else None


def _filters(message: str) -> Iterator[tuple[str, int]]:
    """Yield how many nodes each filter refused, by the text of its reason."""
    start = message.find("nodes are available: ")
    if start < 0:
        return
    counts = message[start + len("nodes are available: ") :]
    for end in (". preemption:", " preemption:", ". no new claims", " pod group preemption:"):
        counts = counts.split(end)[0]
    for part in counts.rstrip(".").split(", "):
        match = _COUNTED.fullmatch(part.strip())
        number = integer_or_none(match.group(1)) if match else None
        if match is not None and number:
            yield match.group(2).removeprefix("node(s) "), number


def is_held_for_quota(pod: Json) -> bool:
    """Return whether the quota plane holds a pod until its Workload is admitted."""
    return _KUEUE_GATE in _gates(pod)


def gates_of(pods: Sequence[Json]) -> list[str]:
    """Return the names of scheduling gates that hold pods, those of the quota plane left out."""
    left_out = (_QUOTA_GATES if is_held_for_quota(pod) else set() for pod in pods)
    found = (_gates(pod) - without for pod, without in zip(pods, left_out, strict=True))
    return sorted(set().union(*found))


def _gates(pod: Json) -> set[str]:
    gates = pod["spec"].get("schedulingGates") or ()
    return {str(gate.get("name")) for gate in gates if isinstance(gate, dict)}
