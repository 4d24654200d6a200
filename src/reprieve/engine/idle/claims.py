"""What a committed plan keeps from every later one: its victims, and the room for its preemptor.

`committed` is the fold of one plan into a snapshot; folding all open intents gives the claims back
after a restart, in another process too. A claim ends with its intent, a reservation when its pod is
bound (the node's own figures count it then). Source: the design's section "State that can be
trusted".
"""

from __future__ import annotations

from dataclasses import replace

from reprieve.engine.idle.model import IdleSnapshot, Reservation
from reprieve.engine.plan import Plan
from reprieve.units.ids import GpuWorkloadKey

__all__ = ["committed"]


def committed(snapshot: IdleSnapshot, plan: Plan) -> IdleSnapshot:
    """Return the snapshot as it looks to the next decision."""
    preemptor = plan.preemptor
    demand = (
        None if preemptor is None else GpuWorkloadKey(f"{preemptor.namespace}/{preemptor.name}")
    )
    claims = {**snapshot.claims, **{victim.root.uid: demand for victim in plan.victims}}
    if demand is None or not plan.placement:
        return replace(snapshot, claims=claims)
    pods = {pod.uid: pod for w in snapshot.workloads if w.key == demand for pod in w.pods}
    reservations = tuple(
        Reservation(demand, uid, node, pods[uid].gpus)
        for uid, node in plan.placement
        if uid in pods and pods[uid].node is None
    )
    return replace(snapshot, claims=claims, reservations=(*snapshot.reservations, *reservations))
