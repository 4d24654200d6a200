"""What each unit and each node holds, waits for and frees: sums over pods, made on request.

A change of a pod makes the sums of its unit and its node stale, and nothing else: fifty thousand
pods are added up once, at the start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from kubeworld.units.instants import Nanos
from reprieve.web.mirror.pods import NEVER, NodeRecord, PodRecord, PodState

__all__ = ["NodeSum", "UnitSum", "node_sum", "unit_sum"]

Amounts = Mapping[str, int]
#: What a pod requests, by resource, the devices of its claims included.
Requested = Callable[[PodRecord], Iterable[tuple[str, int]]]


@dataclass(frozen=True, slots=True)
class UnitSum:
    """What a unit is at; amounts by resource, cpu in thousandths.

    Attributes:
        held: allocated on nodes, what is idle and what leaves included.
        idle: of that, by pods whose GPUs are idle.
        leaving: of that, by pods that are being deleted.
        waiting: requested by pods without a node; of which `gated`, by those not to be scheduled.
        claimed: of that, for which a node is kept.
        nodes: names of the nodes that it is on, most pods first.
        since: its first pod got its node; `waits_since`: its first waiting pod was created.
        message: what the scheduler stated last of one of them.
    """

    unit: str
    namespace: str
    queue: str
    pods: int
    running: int
    held: Amounts
    idle: Amounts
    leaving: Amounts
    waiting: Amounts
    waiting_pods: int
    gated_pods: int
    claimed: Amounts
    nodes: tuple[tuple[str, int], ...]
    nominated: tuple[str, ...]
    since: Nanos
    waits_since: Nanos
    message: str

    @property
    def kind(self) -> str:
        """The kind in lower case."""
        return self.unit.partition("/")[0]

    @property
    def name(self) -> str:
        """The name within its namespace."""
        return self.unit.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class NodeSum:
    """What a node has, and who is on it; amounts by resource, cpu in thousandths.

    `total`: what it has, with devices that are published for claims. `claimed`: kept for pods that
    wait. `units`: what is on it, and how many pods of each. `shown`:
    what pages have made of it alone, by what they made: a sum never changes.
    """

    node: NodeRecord
    total: Amounts
    held: Amounts
    idle: Amounts
    leaving: Amounts
    claimed: Amounts
    units: tuple[tuple[str, int], ...]
    shown: dict[tuple[str, str], Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(slots=True)
class _Sums:
    requested: Requested
    held: Counter[str] = field(default_factory=Counter)
    idle: Counter[str] = field(default_factory=Counter)
    leaving: Counter[str] = field(default_factory=Counter)
    waiting: Counter[str] = field(default_factory=Counter)
    claimed: Counter[str] = field(default_factory=Counter)

    def add(self, pod: PodRecord, idle: Collection[tuple[str, str]]) -> None:
        """Add what a pod holds or waits for."""
        wanted = []
        if pod.state.holds:
            wanted.append(self.held)
            if pod.state is PodState.LEAVING:
                wanted.append(self.leaving)
            elif (pod.namespace, pod.name) in idle:
                wanted.append(self.idle)
        elif pod.state.waits:
            wanted.append(self.waiting)
            if pod.nominated:
                wanted.append(self.claimed)
        for total in wanted:
            for name, amount in self.requested(pod):
                total[name] += amount


def unit_sum(
    unit: str,
    pods: Iterable[PodRecord],
    idle: Collection[tuple[str, str]],
    requested: Requested = attrgetter("amounts"),
) -> UnitSum:
    """Return what the pods of a unit add up to; `idle`: namespace and name of idle pods."""
    sums = _Sums(requested)
    present = [pod for pod in pods if pod.state is not PodState.OVER]
    nodes: Counter[str] = Counter()
    for pod in present:
        sums.add(pod, idle)
        if pod.state.holds:
            nodes[pod.node] += 1
    held = [pod for pod in present if pod.state.holds]
    waiting = [pod for pod in present if pod.state.waits]
    return UnitSum(
        unit,
        unit.split("/")[1],
        next((pod.queue for pod in present if pod.queue), ""),
        len(present),
        sum(pod.state is PodState.RUNNING for pod in held),
        sums.held,
        sums.idle,
        sums.leaving,
        sums.waiting,
        len(waiting),
        sum(pod.state is PodState.GATED for pod in waiting),
        sums.claimed,
        _most_first(nodes),
        tuple(sorted({pod.nominated for pod in waiting if pod.nominated})),
        min((pod.since for pod in held), default=NEVER),
        min((pod.since for pod in waiting), default=NEVER),
        max((pod.message for pod in waiting), key=len, default=""),
    )


def node_sum(
    node: NodeRecord,
    pods: Iterable[PodRecord],
    idle: Collection[tuple[str, str]],
    requested: Requested = attrgetter("amounts"),
    free: Amounts = MappingProxyType({}),
) -> NodeSum:
    """Return what the pods on a node, and those that it is kept for, add up to.

    `free`: devices on it that are published for claims, and that no claim has.
    """
    sums = _Sums(requested)
    units: Counter[str] = Counter()
    for pod in pods:
        sums.add(pod, idle)
        if pod.state.holds:
            units[pod.unit] += 1
    # What a claim holds stands in no allocatable amount.
    total = Counter(node.amounts)
    for name in {*free, *sums.held} - node.amounts.keys():
        total[name] = sums.held[name]
    total.update(free)
    return NodeSum(
        node, total, sums.held, sums.idle, sums.leaving, sums.claimed, _most_first(units)
    )


def _most_first(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counts.items(), key=lambda each: (-each[1], each[0])))
