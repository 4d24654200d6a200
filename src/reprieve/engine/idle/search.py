"""Victims for one demand: idle workloads are added until it fits; spare ones are reprieved.

With fit Node every pending pod has to have a node, in capacity that is free, on its way or made by
the victims. With fit Sum, and for demands that wait for quota, what is on its way and made by the
victims has to reach the need for every resource name. Source: specification of the idle plane,
sections 14 and 17; the design's promise "Feasible".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from reprieve.engine.idle.model import PodRow, Workload
from reprieve.engine.idle.outcome import Declined, Reason
from reprieve.engine.idle.placement import Room, admits, leave, place
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
        need: GPUs that it requests, per resource name.
        incoming: what is on its way to it, per resource name.
        room: where there are pods, what it may use on each node before any eviction.
        chosen: roots that are preempted for others.
    """

    def __init__(
        self,
        demand: Workload,
        pods: tuple[PodRow, ...],
        need: Mapping[str, int],
        incoming: Mapping[str, int],
        room: Room,
        chosen: Collection[Uid],
    ) -> None:
        self.demand = demand
        self.pods = pods
        self.need = need
        self.incoming = incoming
        self.victims: list[Workload] = []
        self.placement: tuple[tuple[Uid, str], ...] = ()
        self.before = room
        self.after = room  # with the victims evicted
        self.chosen = chosen
        # One pod of each kind: those that fit the same nodes.
        self.kinds = {(pod.nodes, frozenset(pod.amounts.items())): pod for pod in pods}.values()
        # Incoming and freed so far, for every name of the need.
        self.sum = dict(incoming)

    def fits(self) -> bool:
        """Return whether the demand fits without the victims, and where its pods run then."""
        if not self.pods:
            return covered(self.need, self.sum)
        usable = add(*(self._usable(node) for node in self.after))
        if not covered(self.need, usable):
            return False
        self.placement = place(self.pods, self.after) or ()
        return bool(self.placement)

    def collect(self, idle: Iterable[Workload]) -> bool:
        """Make those of `idle` victims, in their order, that are needed until the demand fits."""
        return self._collect_on_nodes(idle) if self.pods else self._collect_sum(idle)

    def _collect_sum(self, idle: Iterable[Workload]) -> bool:
        for candidate in idle:
            if candidate.root.uid not in self.chosen and any(
                candidate.gpus.get(name, 0) > 0 and self.sum[name] < count
                for name, count in self.need.items()
            ):
                self.victims.append(candidate)
                for name in self.need:
                    self.sum[name] += candidate.gpus.get(name, 0)
                if self.fits():
                    return True
        return False

    def _collect_on_nodes(self, idle: Iterable[Workload]) -> bool:
        """Find how many of the useful ones are the fewest, with few searches for a placement.

        From the number at which the nodes that accept some pod have the sum that is needed it
        continues by steps that double, then back by halves, since more capacity is never worse but
        where a search for a placement is cut off.
        """
        useful = [c for c in idle if c.root.uid not in self.chosen and self._useful(c)]
        enough = self._enough(useful)
        fewer, step = enough - 1, 1
        self._go(useful, min(enough, len(useful)))
        if enough > len(useful):
            return False
        while not self.fits():
            if enough == len(useful):
                return False
            fewer, enough, step = enough, min(enough + step, len(useful)), 2 * step
            self._go(useful, enough)
        placement = self.placement
        while enough - fewer > 1:
            middle = (fewer + enough) // 2
            self._go(useful, middle)
            if self.fits():
                enough, placement = middle, self.placement
            else:
                fewer = middle
        self._go(useful, enough)
        self.placement = placement
        return True

    def _enough(self, useful: Sequence[Workload]) -> int:
        """Return how many victims the sum needs; one more than all if it is never reached."""
        self._go(useful, 0)
        usable = {node: self._usable(node) for node in self.after}
        total = {name: sum(each.get(name, 0) for each in usable.values()) for name in self.need}
        for number, victim in enumerate(useful, 1):
            leave(self.after, victim.pods)
            for node in {pod.node for pod in victim.pods if pod.node in self.after and pod.node}:
                usable[node], old = self._usable(node), usable[node]
                for name in self.need:
                    total[name] += usable[node].get(name, 0) - old.get(name, 0)
            if covered(self.need, total):
                return number
        return len(useful) + 1

    def _go(self, useful: Sequence[Workload], number: int) -> None:
        """Make the first ones the victims."""
        self.victims = [*useful[:number]]
        self.after = {node: dict(amounts) for node, amounts in self.before.items()}
        for victim in self.victims:
            leave(self.after, victim.pods)

    def _usable(self, node: str) -> Mapping[str, int]:
        """Return what the demand could use of a node if its pods did not need it in one piece."""
        if not any(admits(self.after, node, pod) for pod in self.kinds):
            return {}
        return {name: max(0, self.after[node].get(name, 0)) for name in self.need}

    def _useful(self, candidate: Workload) -> bool:
        """Return whether it frees GPUs of a node that some pod may use."""
        return any(
            victim.node in self.before
            and (pod.nodes is None or victim.node in pod.nodes)
            and any(victim.gpus.get(name, 0) > 0 for name in pod.gpus)
            for victim in candidate.pods
            for pod in self.kinds
        )

    def spare(self) -> list[Workload]:
        """Return the victims that can be reprieved one after the other, youngest idle first."""
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

    @property
    def gpus(self) -> int:
        """Return how many GPUs the victims hold."""
        return sum(sum(victim.gpus.values()) for victim in self.victims)

    def reprieve(self, spare: Iterable[Workload]) -> None:
        """Reprieve these victims."""
        roots = {victim.root.uid for victim in spare}
        self.victims = [each for each in self.victims if each.root.uid not in roots]

    def declined(self, idle: Iterable[Workload]) -> Declined:
        """Return why no workload is evicted; every useful one of `idle` has been added in vain."""
        if self.pods:
            return self._not_placed()
        free = (w.gpus for w in idle if w.root.uid not in self.chosen)
        total = add(self.incoming, *free)
        missing = {n: c - total.get(n, 0) for n, c in self.need.items() if total.get(n, 0) < c}
        return Declined(self.demand.ref, Reason.SHORT, missing)

    def _not_placed(self) -> Declined:
        rooms = self.after.values()
        total = {n: sum(max(0, amounts.get(n, 0)) for amounts in rooms) for n in self.need}
        missing = {n: c - total.get(n, 0) for n, c in self.need.items() if total.get(n, 0) < c}
        if missing:
            return Declined(self.demand.ref, Reason.SHORT, missing)
        alone = (
            pod for pod in self.kinds if not any(admits(self.after, n, pod) for n in self.after)
        )
        first = next(alone, None)
        amounts = {} if first is None else first.amounts
        return Declined(self.demand.ref, Reason.NO_PLACEMENT, amounts)
