"""Pods that start together wait together: their workloads are one demand.

A pod without a controller is its own root, so that a group of them has as many GpuWorkloads as
pods. Each for itself would collect victims, more than the group needs, or only for some of it. So
the waiting members of a gang are seen as one demand: the oldest of them by creation, then by
namespace/name, requests the GPUs of all. What was evicted for a member earlier is for that one.

Workloads that share a claim of devices are evicted together: the devices come free with the last.

Source: issue contract of the quota plane (a waiting gang reclaims once); the design's promise
"Feasible".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.engine.idle.model import Phase, PodRow, Workload
from reprieve.engine.idle.resources import add
from reprieve.units.ids import GpuWorkloadKey, Uid

__all__ = ["SHARED_CLAIM", "gang_of", "joined", "tied", "units_of", "waits_since", "whole_units"]


#: Before the name of a claim of devices, as a tie.
SHARED_CLAIM: Final = "claim "


def gang_of(workload: Workload) -> str:
    """Return `namespace/group` of its pods; empty where they are not all of one group."""
    groups = {pod.group for pod in workload.pods if pod.live}
    if len(groups) != 1:
        return ""
    (group,) = groups
    return f"{workload.ref.namespace}/{group}" if group else ""


def waits_since(waiting: Iterable[PodRow], otherwise: Nanos) -> Nanos:
    """Return since when the first of these waits: a pod, or a group with its last pod.

    `otherwise`: where no pod states when it was made.
    """
    last: dict[str, Nanos] = {}
    for pod in waiting:
        if pod.created is not None:
            key = f"group {pod.group}" if pod.group else pod.uid
            last[key] = max(last.get(key, pod.created), pod.created)
    return min(last.values(), default=otherwise)


def joined(
    workloads: Sequence[Workload], members: Mapping[str, Collection[GpuWorkloadKey]]
) -> tuple[tuple[Workload, ...], dict[GpuWorkloadKey, GpuWorkloadKey]]:
    """Return the workloads with each waiting gang as one, and who speaks for whom.

    Args:
        workloads: of a snapshot.
        members: GpuWorkloads of each gang, also of those that wait no longer.
    """
    waiting: dict[str, list[Workload]] = {}
    for workload in workloads:
        gang = gang_of(workload) if workload.status.phase is Phase.PENDING_GPU else ""
        if gang:
            waiting.setdefault(gang, []).append(workload)
    speakers: dict[GpuWorkloadKey, GpuWorkloadKey] = {}
    demands: dict[GpuWorkloadKey, Workload] = {}
    for gang, several in waiting.items():
        first = min(several, key=lambda each: (each.created, each.key))
        speakers.update(dict.fromkeys((each.key for each in several), first.key))
        speakers.update(dict.fromkeys(members.get(gang, ()), first.key))
        demands[first.key] = _together(first, several)
    if not demands:
        return tuple(workloads), {}
    names = {_name(key): _name(speaker) for key, speaker in speakers.items()}
    silent = {each.key for several in waiting.values() for each in several} - demands.keys()
    kept = (each for each in workloads if each.key not in silent)
    return tuple(_renamed(demands.get(w.key, w), names) for w in kept), speakers


def tied(ties: Mapping[Uid, Sequence[str]]) -> dict[Uid, str]:
    """Return the unit of each root that has ties: the first of all ties that lead to each other.

    A tie is what several are evicted together for: a gang, or a claim of devices that they share.
    """
    first: dict[str, str] = {}

    def end(tie: str) -> str:
        while first.get(tie, tie) != tie:
            tie = first[tie]
        return tie

    for several in ties.values():
        ends = sorted({end(tie) for tie in several})
        for each in ends:
            first[each] = ends[0]
    return {root: end(several[0]) for root, several in ties.items() if several}


def whole_units(
    workloads: Sequence[Workload], eligible: Sequence[Workload], busy: Collection[str]
) -> tuple[list[Workload], list[Workload]]:
    """Return which may be evicted, and which may not since its unit is not evicted as a whole.

    Args:
        workloads: of the snapshot.
        eligible: those of them that may be evicted by themselves, in order.
        busy: units with a pod that is known to stay.
    """
    roots = {each.root.uid for each in eligible}
    torn = set(busy) | {w.unit for w in workloads if w.unit and w.root.uid not in roots}
    return (
        [each for each in eligible if each.unit not in torn],
        [each for each in eligible if each.unit in torn],
    )


def units_of(eligible: Sequence[Workload]) -> list[tuple[Workload, tuple[Workload, ...]]]:
    """Return each unit as one workload, with its members, in the order of the first of them."""
    members: dict[str, list[Workload]] = {}
    for each in eligible:
        members.setdefault(each.unit or f"/{each.root.uid}", []).append(each)
    return [
        (_together(first, (first, *rest)) if rest else first, (first, *rest))
        for first, *rest in members.values()
    ]


def _together(first: Workload, several: Sequence[Workload]) -> Workload:
    pods = {pod.uid: pod for each in several for pod in each.pods}
    return replace(
        first,
        gpus=add(*(each.gpus for each in several)),
        precedence=max(each.precedence for each in several),
        pods=tuple(sorted(pods.values(), key=lambda pod: (pod.name, pod.uid))),
    )


def _renamed(workload: Workload, names: Mapping[str, str]) -> Workload:
    whom = workload.status.preempted_for
    if names.get(whom, whom) == whom:
        return workload
    return replace(workload, status=replace(workload.status, preempted_for=names[whom]))


def _name(key: GpuWorkloadKey) -> str:
    return key.partition("/")[2]
