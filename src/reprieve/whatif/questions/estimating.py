"""When what waits will start: what is known of it first, what was measured then, else no estimate.

1. waiting helps, as the engine has decided: until that instant
2. those that are preempted have ended: their grace periods
3. what holds capacity states how long it runs: the cluster is decided about once more without all
   that has ended by an instant, the first that does being found by halving
4. similar work waited: a bound from at least 29 of them (`engine.diagnosis.estimates`)

A plan and an explanation run the same queries about the same work, so that they report the same. Of
what is there already, similar waits are only those that were longer than it has waited until now.
What was preempted before has no estimate from measured waits: first waits are measured.

An instant holds if no work that arrives later precedes it. Each question of 3 is a decision about
the whole cluster: there are at most five, and fewer where they last long; the end that is named
does in any case.

Source: the design's "Why work waits"; start estimates only where something was measured or stated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kubeworld.objects.paths import Json, first
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, instant_or_none
from reprieve.engine.diagnosis.estimates import Basis, Case, Estimate, bound
from reprieve.engine.diagnosis.model import Change, Diagnosis
from reprieve.engine.diagnosis.reasons import Reason, Trait, with_trait
from reprieve.engine.plan import Plane
from reprieve.units.errors import UsageError
from reprieve.whatif.happened import Undecided
from reprieve.whatif.questions.asked import requests_of_spec
from reprieve.whatif.questions.declared_ends import declared_ends, without
from reprieve.whatif.questions.similar import Alike, pod_cases, size_class, workload_cases
from reprieve.whatif.snapshots.snapshot import Snapshot
from reprieve.wording.estimates import too_few

__all__ = [
    "Starts",
    "Waiter",
    "after_victims",
    "by_run_times",
    "estimated",
    "waiting_pod",
    "waiting_workload",
]

#: Whether the queried work starts on this cluster.
Starts = Callable[[Snapshot], Awaitable[bool]]

#: What waits at all has waited longer than instants are exact.
JUST_WAITS: Final = SECOND
_MOST_DECISIONS: Final = 5
_LEAVING: Final = (Reason.VICTIMS_LEAVING, Reason.NOMINATED_WAITING)
#: What does not pass by itself.
_STAYS: Final = with_trait(Trait.LASTS)


@dataclass(frozen=True, slots=True)
class Waiter:
    """What waits, as far as similar work is looked for.

    Attributes:
        plane: in which it waits.
        alike: what similar work has in common with it.
        waited: for how long it has waited, in nanoseconds.
        why: why measured waits state nothing of it, in words.
    """

    plane: Plane
    alike: Alike
    waited: int = JUST_WAITS
    why: str = ""


def waiting_pod(
    pod: Json, group: Mapping[str, int], uids: frozenset[str] = frozenset(), at: Nanos | None = None
) -> Waiter:
    """Return what is known of a pod that waits for a node.

    Args:
        pod: the pod.
        group: what all pods of its PodGroup request, which start together.
        uids: of all queried work, itself and its members.
        at: the instant until which it has waited; None: it is only submitted.
    """
    spec = pod["spec"]
    grouped = first(pod, "spec.schedulingGroup.podGroupName")
    total = group if grouped else requests_of_spec(spec)
    place, priority = str(spec.get("schedulerName") or ""), int(spec.get("priority") or 0)
    alike = Alike(place, priority, size_class(total), uids)
    return Waiter(Plane.SCHEDULING, alike, _waited(pod, at))


def waiting_workload(
    workload: Json, queue: str, uids: frozenset[str] = frozenset(), at: Nanos | None = None
) -> Waiter:
    """Return what is known of a Workload that waits for quota of a ClusterQueue.

    `uids` and `at` are those of `waiting_pod`.
    """
    spec = workload["spec"]
    total: Counter[str] = Counter()
    for each in spec.get("podSets") or ():
        count = int(each.get("count", 1))
        for name, amount in requests_of_spec(each["template"].get("spec") or {}).items():
            total[name] += count * amount
    types = {each.get("type") for each in first(workload, "status.conditions") or ()}
    why = (
        "it has been preempted before, and first waits alone are measured"
        if "Evicted" in types
        else ""
    )
    alike = Alike(queue, int(spec.get("priority") or 0), size_class(total), uids)
    return Waiter(Plane.QUOTA, alike, _waited(workload, at), why)


def _waited(obj: Json, at: Nanos | None) -> int:
    created = instant_or_none(str(obj["metadata"].get("creationTimestamp") or ""))
    return JUST_WAITS if at is None or created is None else max(JUST_WAITS, at - created)


async def estimated(
    snapshot: Snapshot,
    diagnosis: Diagnosis | None,
    waiter: Waiter | None,
    starts: Starts,
    over: Callable[[], bool],
) -> Estimate:
    """Return when what waits starts at the latest, or why there is no estimate.

    Args:
        snapshot: the cluster.
        diagnosis: why it waits.
        waiter: the pending work; None where its pods are not there.
        starts: decides about it once more, on another cluster; it may refuse to.
        over: whether there is no time for that any more.
    """
    found = _known(diagnosis)
    if found is not None:
        return found

    async def starts_there(other: Snapshot) -> bool:
        try:
            return await starts(other)
        except (UsageError, Undecided):
            return False  # with that capacity others would make more pods than there may be, state

    own = frozenset[str]() if waiter is None else waiter.alike.but
    found = await by_run_times(snapshot, starts_there, over, own)
    return found or _as_others(snapshot, waiter)


def _as_others(snapshot: Snapshot, waiter: Waiter | None) -> Estimate:
    """Return what the waits of similar work state."""
    if waiter is None:
        return Estimate(why="its pods are not there")
    if waiter.why:
        return Estimate(why=waiter.why)
    alike = waiter.alike
    if waiter.plane is Plane.QUOTA:
        cases = workload_cases(snapshot, alike)
        return _measured(cases, f"in ClusterQueue {alike.place}", waiter.waited)
    return _measured(pod_cases(snapshot, alike), f"among pods of {alike.place}", waiter.waited)


def _known(diagnosis: Diagnosis | None) -> Estimate | None:
    """Return what the diagnosis states of the start; None where it states nothing."""
    if diagnosis is None:
        return Estimate(why="it is not known why it waits")
    if diagnosis.reason in _STAYS:
        return Estimate(why="what it waits for does not pass by itself")
    for fix in diagnosis.fixes:
        at = instant_or_none(fix.after) if fix.change is Change.WAIT else None
        if at is not None:
            basis = Basis.LEAVING if diagnosis.reason in _LEAVING else Basis.PROTECTION
            return Estimate(basis, at)
    return None


async def by_run_times(
    snapshot: Snapshot,
    starts: Starts,
    over: Callable[[], bool],
    but: frozenset[str] = frozenset(),
) -> Estimate | None:
    """Return by when enough holders have ended, as far as they state how long they run.

    None where it does not start after all of it has ended, no end is stated, or no time is left for
    a query. `but`: uids of the queried work, whose own end helps it nothing.
    """
    ends = [each for each in declared_ends(snapshot) if but.isdisjoint(each.uids)]
    low, high, asked = 0, len(ends) - 1, 0
    if not ends or over() or not await starts(without(snapshot, ends)):
        return None
    while low < high and asked < _MOST_DECISIONS - 1 and not over():
        middle, asked = (low + high) // 2, asked + 1
        if await starts(without(snapshot, ends[: middle + 1])):
            high = middle
        else:
            low = middle + 1
    end = ends[high]
    return Estimate(Basis.RUN_TIME, end.at, end.holder, end.field)


def _measured(cases: Iterable[Case], where: str, waited: int) -> Estimate:
    """Return what measured waits state of something that has waited for so many nanoseconds."""
    found = bound(cases, waited)
    if found.wait is None:
        return Estimate(measured=found, where=where, why=too_few(found, where))
    return Estimate(Basis.MEASURED, measured=found, where=where)


def after_victims(at: Nanos, delays: Sequence[int], grace_seconds: int, plans: int) -> Estimate:
    """Return by when those who are preempted have ended.

    `delays`: after how many nanoseconds each part starts if all of them end at once; `plans`: how
    often a workload is preempted, one after the other.
    """
    latest = max(delays, default=0) + plans * grace_seconds * SECOND
    return Estimate(Basis.LEAVING, Nanos(at + latest))
