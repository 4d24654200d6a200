"""The gate before the queue, and Permit: which members may be tried, and when all may be bound.

The gate checks in this order: is there a gang; is it initialized; has it been satisfied once
already; do all gangs of the group exist, are they initialized, and have they collected their
members; and is the pod the one that represents its group in the queue. Permit checks whether every
gang of the group has its minimum. Source: specification of gang jobs, sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from reprieve.engine.scheduling.gangs.records import Gang, GangPod, Gangs, MatchPolicy

__all__ = ["Barrier", "Barring", "Permission", "basic_barrier", "enqueue_barrier", "permit"]


class Barrier(Enum):
    """Why a member may not be tried."""

    NO_GANG = auto()
    NOT_INITIALIZED = auto()
    GROUP = auto()  # its gangs do not exist, are not initialized, or lack members
    SCHEDULING = auto()  # the group's cycle runs and has not come to this pod
    REPRESENTED = auto()  # another member stands in the queue
    UNKNOWN_POD = auto()


@dataclass(frozen=True, slots=True)
class Barring:
    """A barrier with what its text names."""

    barrier: Barrier
    pod: str
    gang: str
    group: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    uninitialized: tuple[str, ...] = ()
    short: bool = False
    representative: str = ""


class Permission(StrEnum):
    """What Permit states of a member that has a node."""

    NOT_SPECIFIED = "PodGroup not specified"
    NOT_FOUND = "PodGroup not found"
    WAIT = "Wait"
    SUCCESS = "Success"


def basic_barrier(gangs: Gangs, pod: GangPod) -> Barring | None:
    """Return what keeps the pod from being tried, before filtering as well as before the queue."""
    gang = gangs.get(pod.gang)
    if gang is None:
        return Barring(Barrier.NO_GANG, pod.key, pod.gang)
    if gang.spec is None:
        return Barring(Barrier.NOT_INITIALIZED, pod.key, gang.id)
    if gang.policy == MatchPolicy.ONCE_SATISFIED and gangs.satisfied(gang):
        return None
    missing, uninitialized, short = [], [], False
    for id in gang.group:
        member = gangs.get(id)
        if member is None:
            missing.append(id)
        elif member.spec is None:
            uninitialized.append(id)
        elif len(member.children) < member.minimum:
            short = True
    if not (missing or uninitialized or short):
        return None
    return Barring(
        Barrier.GROUP,
        pod.key,
        gang.id,
        gang.group,
        tuple(missing),
        tuple(uninitialized),
        short,
    )


def enqueue_barrier(
    gangs: Gangs, pod: GangPod, *, running: Iterable[str] = (), tried: Iterable[str] = ()
) -> Barring | None:
    """Return what keeps the pod out of a queue of pods; one that passes represents its group.

    Our own queue holds a group as one entry, so that of these checks only those of `basic_barrier`
    can keep its pods out; the others state what the reference would report for each pod. `running`:
    ids of the groups whose cycle runs. `tried`: pods that it has come to.
    """
    found = basic_barrier(gangs, pod)
    gang = gangs.get(pod.gang)
    if found is not None or gang is None:
        return found
    if gang.policy == MatchPolicy.ONCE_SATISFIED and gangs.satisfied(gang):
        return None
    group = gang.group_id
    if group in set(running) and pod.key not in set(tried):
        return Barring(Barrier.SCHEDULING, pod.key, gang.id, gang.group)
    if pod.key not in gang.children:
        return Barring(Barrier.UNKNOWN_POD, pod.key, gang.id)
    other = gangs.representative.get(group)
    if other is not None and other != pod.key:
        return Barring(Barrier.REPRESENTED, pod.key, gang.id, gang.group, representative=other)
    gangs.representative[group] = pod.key
    return None


def permit(gangs: Gangs, pod: GangPod | None) -> tuple[Permission, int]:
    """Return what Permit states of a pod that has a node, and nanoseconds that it may wait.

    None: the pod is no member of a gang. The caller notes that the pod waits before it calls this.
    """
    if pod is None:
        return Permission.NOT_SPECIFIED, 0
    gang = gangs.get(pod.gang)
    if gang is None:
        return Permission.NOT_FOUND, 0
    for id in gang.group:
        member = gangs.get(id)
        if member is None or not _enough(gangs, member):
            return Permission.WAIT, gang.spec.wait if gang.spec is not None else 0
    gangs.satisfy(gang)
    return Permission.SUCCESS, 0


def _enough(gangs: Gangs, gang: Gang) -> bool:
    if gang.spec is None:
        return False
    if gang.policy == MatchPolicy.ONLY_WAITING:
        return len(gang.waiting) >= gang.minimum
    if gang.policy == MatchPolicy.WAITING_AND_RUNNING:
        return len(gang.waiting) + len(gang.bound) >= gang.minimum
    return len(gang.waiting) >= gang.minimum or gangs.satisfied(gang)
