"""Who makes way for one demand: idle workloads are added until it fits; what is spare goes back.

With fit Node every pending pod has to have a node, in room that is free, on its way or made by the
victims. With fit Sum, and for demands that wait for quota, what is on its way and made by the
victims has to reach the need for every resource name. Source: specification of the idle plane,
sections 14 and 17; the design's promise "Feasible".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from reprieve.engine.idle.model import PodRow, Workload
from reprieve.engine.idle.outcome import Declined, Reason
from reprieve.engine.idle.placement import Room, leave, place, takes
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
        pods: its pods that wait for a node, each of which has to have one; none for a sum.
        need: GPUs that it asks for, per resource name.
        incoming: what is on its way to it, per resource name.
        room: where there are pods, what it may use on each node before anybody else goes; changed
            here.
        taken: roots that make way for others.
    """

    def __init__(
        self,
        demand: Workload,
        pods: tuple[PodRow, ...],
        need: Mapping[str, int],
        incoming: Mapping[str, int],
        room: Room,
        taken: Collection[Uid],
    ) -> None:
        self.demand = demand
        self.pods = pods
        self.need = need
        self.incoming = incoming
        self.victims: list[Workload] = []
        self.placement: tuple[tuple[Uid, str], ...] = ()
        # `after`: with the victims so far gone. `gained`: nodes, since no placement was found.
        self.after = room
        self.gained = set(self.after)
        self.taken = taken
        # Incoming and freed so far, for every name of the need.
        self.sum = dict(incoming)

    def add(self, victim: Workload) -> None:
        self.victims.append(victim)
        for name in self.need:
            self.sum[name] += victim.gpus.get(name, 0)
        if self.pods:
            leave(self.after, victim.pods)
            self.gained.update(pod.node for pod in victim.pods if pod.node in self.after)

    def useful(self, candidate: Workload) -> bool:
        """Return whether it adds to a short name, or frees GPUs of a node that some pod may use."""
        if not self.pods:
            return any(
                candidate.gpus.get(name, 0) > 0 and self.sum[name] < count
                for name, count in self.need.items()
            )
        return any(
            victim.node in self.after
            and (pod.nodes is None or victim.node in pod.nodes)
            and any(victim.gpus.get(name, 0) > 0 for name in pod.gpus)
            for victim in candidate.pods
            for pod in self.pods
        )

    def fits(self) -> bool:
        if not self.pods:
            return covered(self.need, self.sum)
        # Without a node that gained and now takes some pod, nothing has changed since last time.
        if not any(takes(self.after, n, p) for n in self.gained for p in self.pods):
            self.gained.clear()
            return False
        placement = place(self.pods, self.after)
        self.placement = placement or ()
        self.gained.clear()
        return placement is not None

    def spare(self) -> list[Workload]:
        """Return the victims that can be put back one after the other, youngest idle first."""
        return self._spare_on_nodes() if self.pods else self._spare_of_sum()

    def _spare_of_sum(self) -> list[Workload]:
        total = dict(self.sum)
        spare = []
        for victim in reversed(self.victims):
            without = {name: total[name] - victim.gpus.get(name, 0) for name in self.need}
            if covered(self.need, without):
                total = without
                spare.append(victim)
        return spare

    def _spare_on_nodes(self) -> list[Workload]:
        left = {node: dict(amounts) for node, amounts in self.after.items()}
        demanded = {pod.uid: pod.amounts for pod in self.pods}
        asked = {(node, name) for uid, node in self.placement for name in demanded[uid]}
        for uid, node in self.placement:
            for name, count in demanded[uid].items():
                left[node][name] -= count
        spare = []
        for victim in reversed(self.victims):
            returned: Room = {pod.node: {} for pod in victim.pods if pod.node in left and pod.node}
            leave(returned, victim.pods)
            if all(
                (node, name) not in asked or left[node].get(name, 0) >= count
                for node, amounts in returned.items()
                for name, count in amounts.items()
            ):
                for node, amounts in returned.items():
                    for name, count in amounts.items():
                        left[node][name] = left[node].get(name, 0) - count
                spare.append(victim)
        return spare

    def declined(self, idle: Iterable[Workload]) -> Declined:
        """Return why nobody goes; every useful workload of `idle` has been added in vain."""
        if self.pods:
            return self._not_placed()
        free = (w.gpus for w in idle if w.root.uid not in self.taken)
        total = add(self.incoming, *free)
        missing = {n: c - total.get(n, 0) for n, c in self.need.items() if total.get(n, 0) < c}
        return Declined(self.demand.ref, Reason.SHORT, missing)

    def _not_placed(self) -> Declined:
        rooms = self.after.values()
        total = {n: sum(max(0, amounts.get(n, 0)) for amounts in rooms) for n in self.need}
        missing = {n: c - total.get(n, 0) for n, c in self.need.items() if total.get(n, 0) < c}
        if missing:
            return Declined(self.demand.ref, Reason.SHORT, missing)
        alone = (pod for pod in self.pods if not any(takes(self.after, n, pod) for n in self.after))
        first = next(alone, self.pods[0])
        return Declined(self.demand.ref, Reason.NO_PLACEMENT, first.amounts)
