"""What a committed plan keeps from every later one: its victims, and the room for its preemptor.

`committed` is the fold of one plan into a snapshot; folding all open intents gives the claims back
after a restart, in another process too. A claim ends with its intent, a reservation when its pod is
bound (the node's own figures count it then). Source: the design's section "State that can be
trusted".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from reprieve.engine.idle.model import IdleSnapshot, PodRow, Reservation
from reprieve.engine.plan import Plan
from reprieve.units.ids import GpuWorkloadKey, Uid

__all__ = ["before_each", "committed", "reserved"]


def before_each(
    plans: Iterable[Plan], snapshot: IdleSnapshot, reservations: Iterable[Reservation] = ()
) -> Iterator[tuple[Plan, IdleSnapshot]]:
    """Yield each plan of a run with the snapshot as it is after the plans before it.

    `reservations`: the evaluation's own, for demands that needed no plan.
    """
    snapshot = replace(snapshot, reservations=(*snapshot.reservations, *reservations))
    for plan in plans:
        yield plan, snapshot
        snapshot = committed(snapshot, plan)


def committed(snapshot: IdleSnapshot, plan: Plan) -> IdleSnapshot:
    """Return the snapshot as it looks to the next decision."""
    preemptor = plan.preemptor
    demand = (
        None if preemptor is None else GpuWorkloadKey(f"{preemptor.namespace}/{preemptor.name}")
    )
    claims = {**snapshot.claims, **{victim.root.uid: demand for victim in plan.victims}}
    if demand is None or not plan.placement:
        return replace(snapshot, claims=claims)
    pods = [pod for w in snapshot.workloads if w.key == demand for pod in w.pods]
    reservations = reserved(demand, plan.placement, pods)
    return replace(snapshot, claims=claims, reservations=(*snapshot.reservations, *reservations))


def reserved(
    demand: GpuWorkloadKey, placement: Iterable[tuple[Uid, str]], pods: Iterable[PodRow]
) -> tuple[Reservation, ...]:
    """Return the room that a placement holds: that of its pods which have no node yet."""
    waiting = {pod.uid: pod.amounts for pod in pods if pod.node is None and pod.live}
    return tuple(
        Reservation(demand, uid, node, waiting[uid]) for uid, node in placement if uid in waiting
    )
