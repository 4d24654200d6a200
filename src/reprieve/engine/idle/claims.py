"""What a committed plan keeps from every later one: its victims, and its preemptor's capacity.

`committed` is the fold of one plan into a snapshot; folding all open intents gives the claims back
after a restart, in another process too. A claim ends with its intent, a reservation when its pod is
bound (the node's own figures count it then). Source: the design's section "State that can be
trusted".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from reprieve.engine.idle.model import IdleSnapshot, PodRow, Reservation, Workload
from reprieve.engine.plan import Plan
from reprieve.units.ids import GpuWorkloadKey, Uid

__all__ = ["before_each", "committed", "demand_order", "reserved"]


def before_each(
    plans: Iterable[Plan], snapshot: IdleSnapshot, reservations: Iterable[Reservation] = ()
) -> Iterator[tuple[Plan, IdleSnapshot]]:
    """Yield each plan of a run with the snapshot as it is after what was decided before it.

    `reservations`: the evaluation's own, for demands that needed no plan. One that was made after
    the plan has its places among what the plan left, and is nothing that the plan could know.
    """
    order = {workload.key: demand_order(workload) for workload in snapshot.workloads}
    waiting = deque(sorted(reservations, key=lambda each: order[each.demand]))
    for plan in plans:
        # A plan for no work, or for an unknown demand, rests on no reservation.
        demand = _demand_of(plan)
        turn = None if demand is None else order.get(demand)
        made: list[Reservation] = []
        while turn is not None and waiting and order[waiting[0].demand] < turn:
            made.append(waiting.popleft())
        if made:
            snapshot = replace(snapshot, reservations=(*snapshot.reservations, *made))
        yield plan, snapshot
        snapshot = committed(snapshot, plan)


def demand_order(workload: Workload) -> tuple[int, int, GpuWorkloadKey]:
    """Order in which demands are served.

    1. Precedence, higher first, where other planes decide as well: the capacity that is freed is
       given to the higher priority; 2. creation of the GpuWorkload; 3. namespace/name.
    """
    return (-workload.precedence, workload.created, workload.key)


def committed(snapshot: IdleSnapshot, plan: Plan) -> IdleSnapshot:
    """Return the snapshot as it looks to the next decision."""
    demand = _demand_of(plan)
    claims = {**snapshot.claims, **{victim.root.uid: demand for victim in plan.victims}}
    if demand is None or not plan.placement:
        return replace(snapshot, claims=claims)
    pods = [pod for w in snapshot.workloads if w.key == demand for pod in w.pods]
    reservations = reserved(demand, plan.placement, pods)
    return replace(snapshot, claims=claims, reservations=(*snapshot.reservations, *reservations))


def reserved(
    demand: GpuWorkloadKey, placement: Iterable[tuple[Uid, str]], pods: Iterable[PodRow]
) -> tuple[Reservation, ...]:
    """Return the capacity that a placement holds: that of its pods which have no node yet."""
    waiting = {pod.uid: pod.amounts for pod in pods if pod.node is None and pod.live}
    return tuple(
        Reservation(demand, uid, node, waiting[uid]) for uid, node in placement if uid in waiting
    )


def _demand_of(plan: Plan) -> GpuWorkloadKey | None:
    preemptor = plan.preemptor
    return None if preemptor is None else GpuWorkloadKey(f"{preemptor.namespace}/{preemptor.name}")
