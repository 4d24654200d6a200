"""Who waits: work without quota, and work without nodes, with the reason that dominates.

A Workload that waits for quota stands for its job: its pods are not there, or gated. The reason is
that of the last event that stated one, else what the conditions stand for (`answers.conditions`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.answers.conditions import of_pods
from reprieve.answers.unit import Unit
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.plan import Plane
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.mirror.queues import WorkloadRecord, WorkloadState
from reprieve.web.mirror.sums import UnitSum
from reprieve.web.pages.asked import Asked, rank_of, whole
from reprieve.web.tables import Viewer
from reprieve.wording.diagnosis import next_step, sentence

__all__ = ["Waiter", "waiter_of", "waiters", "what_helps"]

_NOT_COUNTED: Final = ("memory", "pods", "ephemeral-storage")
_WAITING: Final = (WorkloadState.PENDING, WorkloadState.RESERVING)


@dataclass(frozen=True, slots=True)
class Waiter:
    """A unit that waits.

    Attributes:
        plane: `quota` or `scheduling`: whose decision it waits for.
        queue: the ClusterQueue, empty where it waits for nodes only.
        position: in its ClusterQueue, from 1; 0 without one.
        amount: what it requests of the resource that is shown.
        resource: that one; where all are shown the first of its own, GPUs before others.
        shape: pods and what each requests.
        each: the most that one of its pods requests.
        priority: 0 where it is not known.
    """

    unit: str
    namespace: str
    plane: str
    queue: str
    position: int
    pods: int
    amount: int
    resource: str
    shape: str
    each: int
    priority: int
    since: Nanos
    reason: str
    message: str


def waiters(mirror: Mirror, viewer: Viewer, asked: Asked) -> Iterator[Waiter]:
    """Yield the units that wait for the resource and may be shown, those of queues in their order.

    Those that wait longest come first within a ClusterQueue's rank and among pods.
    """
    shown: set[str] = set()
    uses = _uses_of(mirror) if viewer.sees_all else {}
    for queue, pending in sorted(_queues(mirror).items()):
        for unit, places in _units_of(mirror, pending).items():
            shown.add(unit)
            each = pending[places[0]]
            found = _counted(_sum(mirror, [pending[place] for place in places]), asked)
            if found is not None and asked.shows(viewer, each.namespace):
                same = [pending[place] for place in places]
                yield _with_use(_queued(mirror, unit, same, queue, places[0] + 1, *found), uses)
    for total in sorted(mirror.units(), key=attrgetter("waits_since")):
        found = _counted(total.waiting, asked) if total.waiting_pods else None
        if found is not None and total.unit not in shown and asked.shows(viewer, total.namespace):
            yield _unbound(mirror, total, *found)


def _uses_of(mirror: Mirror) -> dict[tuple[str, str], tuple[int, int]]:
    """Return what ClusterQueues use of each resource, and their nominal quota, over flavors."""
    used: Counter[tuple[str, str]] = Counter()
    for each in mirror.workloads:
        if each.state.holds:
            for _, resource, amount in each.held:
                used[each.cluster_queue, resource] += amount
    nominal: Counter[tuple[str, str]] = Counter()
    for queue in mirror.cluster_queues:
        for quota in queue.quotas:
            nominal[queue.name, quota.resource] += quota.nominal
    return {key: (used[key], amount) for key, amount in nominal.items()}


def _with_use(waiter: Waiter, uses: Mapping[tuple[str, str], tuple[int, int]]) -> Waiter:
    """Return it with the use of its queue before why others keep it."""
    known = uses.get((waiter.queue, waiter.resource))
    if known is None or waiter.reason != Reason.HELD_BY_OTHERS or not waiter.message:
        return waiter
    used, nominal, asks = (f"{whole(waiter.resource, n):,}" for n in (*known, waiter.amount))
    said = f"{waiter.queue}: {used} of {nominal} {waiter.resource} used, requests {asks}"
    if waiter.message.startswith(f"{waiter.queue}: "):
        return waiter  # it states it itself
    message = f"{waiter.message[0].lower()}{waiter.message[1:]}"
    return replace(waiter, message=f"{said}; {message}")


def _counted(amounts: Mapping[str, int], asked: Asked) -> tuple[int, str] | None:
    """Return which amount of what is shown, None where it requests nothing of what is wanted."""
    if asked.chosen:
        amount = amounts.get(asked.resource, 0)
        return (amount, asked.resource) if amount else None
    named = [name for name, amount in amounts.items() if amount and name not in _NOT_COUNTED]
    if not named:
        return 0, ""
    first = min(named, key=lambda name: (rank_of(name), name))
    return amounts[first], first


def what_helps(waiter: Waiter) -> str:
    """Return what helps against its reason in general, as `reprieve explain` states it.

    With figures, and changes that were tried, it is stated by the engine alone (`RowExplanations`).
    """
    try:
        reason, plane = Reason(waiter.reason), Plane(waiter.plane)
        return next_step(Diagnosis(plane, reason, {}))
    except (ValueError, KeyError):
        return ""


def waiter_of(mirror: Mirror, unit: str, resource: str) -> Waiter | None:
    """Return how a unit waits, None where it does not wait for the resource."""
    waiting = [each for each in mirror.workloads_of(unit) if each.state in _WAITING]
    for workload in waiting:
        if _sum(mirror, [workload])[resource]:
            queue = _queue_of(mirror, workload)
            pending, own = _queues(mirror)[queue], {each.uid for each in waiting}
            same = [each for each in pending if each.uid in own]
            position = pending.index(same[0]) + 1
            amount = _sum(mirror, same)[resource]
            return _queued(mirror, unit, same, queue, position, amount, resource)
    found = mirror.unit(unit)
    amount = found.waiting.get(resource, 0)
    return _unbound(mirror, found, amount, resource) if amount else None


def _queues(mirror: Mirror) -> dict[str, list[WorkloadRecord]]:
    """Return what waits for quota by ClusterQueue, in the order of the queue."""
    queued: dict[str, list[WorkloadRecord]] = {}
    for each in mirror.workloads:
        if each.state in _WAITING:
            queued.setdefault(_queue_of(mirror, each), []).append(each)
    for pending in queued.values():
        pending.sort(key=lambda each: (-each.priority, each.created, each.uid))
    return queued


def _units_of(mirror: Mirror, pending: Sequence[WorkloadRecord]) -> dict[str, list[int]]:
    """Return the places in a queue by unit: pods of a Deployment have a Workload each."""
    places: dict[str, list[int]] = {}
    for place, each in enumerate(pending):
        places.setdefault(mirror.unit_of_workload(each), []).append(place)
    return places


def _sum(mirror: Mirror, workloads: Sequence[WorkloadRecord]) -> Counter[str]:
    amounts: Counter[str] = Counter()
    for each in workloads:
        amounts.update(mirror.devices.of_workload(each)[0])
    return amounts


def _queue_of(mirror: Mirror, workload: WorkloadRecord) -> str:
    return workload.cluster_queue or mirror.cluster_queue_of(workload.namespace, workload.queue)


def _queued(
    mirror: Mirror,
    unit: str,
    same: Sequence[WorkloadRecord],
    queue: str,
    position: int,
    amount: int,
    resource: str,
) -> Waiter:
    """Return how a unit waits by its Workloads, the first of the queue first."""
    first = same[0]
    reason, message = _reported(mirror, first.unit, f"workload/{first.namespace}/{first.name}")
    if message and first.message.startswith(message.removesuffix(".")):
        message = first.message  # the same, and what is missing where
    counts: Counter[int] = Counter()
    for workload in same:
        for count, each in mirror.devices.of_workload(workload)[1]:
            counts[each.get(resource, 0)] += count
    shapes = [(count, each) for each, count in counts.items()]
    return Waiter(
        unit,
        first.namespace,
        "quota",
        queue,
        position,
        counts.total(),
        amount,
        resource,
        _shape_text([(count, each) for count, each in shapes if each]),
        max(counts, default=0),
        first.priority,
        min(each.since for each in same),
        reason or first.reason,
        message or first.message,
    )


def _unbound(mirror: Mirror, unit: UnitSum, amount: int, resource: str) -> Waiter:
    reason, message = _reported(mirror, unit.unit)
    if not reason:
        for pod in mirror.pods.by("unit", unit.unit):
            if pod.state.waits and not reason:
                reason, message = _reported(mirror, f"pod/{pod.namespace}/{pod.name}")
    if not reason:
        reason, message = _of_conditions(unit)
    counts: dict[int, int] = {}
    for pod in mirror.pods.by("unit", unit.unit):
        if pod.state.waits:
            each = dict(mirror.devices.of_pod(pod)).get(resource, 0)
            counts[each] = counts.get(each, 0) + 1
    shapes = [(count, each) for each, count in sorted(counts.items()) if each]
    return Waiter(
        unit.unit,
        unit.namespace,
        "scheduling",
        mirror.cluster_queue_of(unit.namespace, unit.queue),
        0,
        unit.waiting_pods,
        amount,
        resource,
        _shape_text(shapes),
        max(counts, default=0),
        0,
        unit.waits_since,
        reason,
        message,
    )


def _reported(mirror: Mirror, *units: str) -> tuple[str, str]:
    """Return the reason and sentence of the last event about one of the objects."""
    found = [each for unit in units for each in mirror.waiting.by("unit", unit)]
    last = max(found, key=attrgetter("at"), default=None)
    return ("", "") if last is None else (last.reason, last.message)


def _of_conditions(unit: UnitSum) -> tuple[str, str]:
    if unit.gated_pods == unit.waiting_pods:
        return "", "Its pods are gated: another controller has to remove the gate"
    return _of_message(unit.message, next(iter(unit.nominated), ""))


# Thousands of pods wait for the same reason.
@lru_cache(maxsize=4_096)
def _of_message(message: str, nominated: str) -> tuple[str, str]:
    """Return the reason that a scheduler's message stands for, and a sentence."""
    pod = {
        "metadata": {"name": "", "namespace": ""},
        "spec": {},
        "status": {
            "conditions": [{"type": "PodScheduled", "status": "False", "message": message}],
            "nominatedNodeName": nominated or None,
        },
    }
    said = of_pods(Unit(asked={"kind": "Pod", **pod}), [pod], groups_known=False)
    if said.diagnosis is None:
        return "", said.message
    return said.diagnosis.reason.value, sentence(said.diagnosis)


def _shape_text(shapes: list[tuple[int, int]]) -> str:
    return ", ".join(f"{count} x {each}" for count, each in shapes)
