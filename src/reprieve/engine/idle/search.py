"""Who makes way for one demand: idle workloads are added until it fits; what is spare goes back.

The sum over all resource names has to suffice, and with fit Node every pending pod needs a node.
Source: specification of the idle plane, sections 14 and 17.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from reprieve.engine.idle.model import Workload
from reprieve.engine.idle.outcome import Declined, Reason
from reprieve.engine.idle.placement import Room, leave, pending_pods, place, takes
from reprieve.engine.idle.resources import add
from reprieve.units.ids import Uid

__all__ = ["Search", "covered"]


def covered(need: Mapping[str, int], *amounts: Mapping[str, int]) -> bool:
    """Return whether the sum of `amounts` reaches `need` for every name."""
    return all(sum(a.get(name, 0) for a in amounts) >= count for name, count in need.items())


class Search:
    """The accumulation of victims for one demand.

    Args:
        demand: who waits.
        need: GPUs that it asks for, per resource name.
        incoming: what is on its way to it, per resource name.
        room: with fit Node, what it may use on each node before anybody else goes; changed here.
        taken: roots that make way for others.
    """

    def __init__(
        self,
        demand: Workload,
        need: Mapping[str, int],
        incoming: Mapping[str, int],
        room: Room | None,
        taken: Collection[Uid],
    ) -> None:
        self.demand = demand
        self.need = need
        self.incoming = incoming
        self.victims: list[Workload] = []
        self.placement: tuple[tuple[Uid, str], ...] = ()
        self.on_nodes = room is not None
        self.pods = pending_pods(demand) if self.on_nodes else ()
        # `after`: with the victims so far gone. `gained`: nodes, since no placement was found.
        self.after = room or {}
        self.gained = set(self.after)
        self.taken = taken
        # Incoming and freed so far, for every name of the need.
        self.sum = dict(incoming)

    def add(self, victim: Workload) -> None:
        self.victims.append(victim)
        for name in self.need:
            self.sum[name] += victim.gpus.get(name, 0)
        if self.on_nodes:
            leave(self.after, victim.pods)
            self.gained.update(pod.node for pod in victim.pods if pod.node in self.after)

    def useful(self, candidate: Workload) -> bool:
        """Return whether it adds to a short name, or (fit Node) may help a pod to a node."""
        enough = covered(self.need, self.sum)
        return any(
            candidate.gpus.get(name, 0) > 0 and (enough or self.sum[name] < count)
            for name, count in self.need.items()
        )

    def fits(self) -> bool:
        if not covered(self.need, self.sum):
            return False
        if not self.on_nodes or not self.need:
            return True
        # Without a node that gained and now takes some pod, nothing has changed since last time.
        if self.pods and not any(takes(self.after, n, p) for n in self.gained for p in self.pods):
            self.gained.clear()
            return False
        placement = place(self.pods, self.after)
        self.placement = placement or ()
        self.gained.clear()
        return placement is not None and (bool(self.pods) or not self.victims)

    def spare(self) -> list[Workload]:
        """Return the victims that can be put back one after the other, youngest idle first."""
        total = dict(self.sum)
        left = {node: dict(amounts) for node, amounts in self.after.items()}
        demanded = {pod.uid: pod.gpus for pod in self.pods}
        asked = {(node, name) for uid, node in self.placement for name in demanded[uid]}
        for uid, node in self.placement:
            for name, count in demanded[uid].items():
                left[node][name] -= count
        spare = []
        for victim in reversed(self.victims):
            without = {name: total[name] - victim.gpus.get(name, 0) for name in self.need}
            returned: Room = {pod.node: {} for pod in victim.pods if pod.node in left and pod.node}
            leave(returned, victim.pods)
            if covered(self.need, without) and all(
                (node, name) not in asked or left[node].get(name, 0) >= count
                for node, amounts in returned.items()
                for name, count in amounts.items()
            ):
                total = without
                for node, amounts in returned.items():
                    for name, count in amounts.items():
                        left[node][name] = left[node].get(name, 0) - count
                spare.append(victim)
        return spare

    def declined(self, idle: Iterable[Workload]) -> Declined:
        free = (w.gpus for w in idle if w.root.uid not in self.taken)
        total = add(self.incoming, *free)
        missing = {n: c - total.get(n, 0) for n, c in self.need.items() if total.get(n, 0) < c}
        reason = Reason.SHORT if missing else Reason.NO_PLACEMENT
        return Declined(self.demand.ref, reason, missing)
