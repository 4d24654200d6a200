"""Random clusters of which everything that topologies meet in the quota plane is drawn.

Two to four levels, with or without hosts as leaves; one or two flavors; queues below nested
cohorts, with limits, or weights where sharing is fair; all policies; slices, leaders, taints, pods
that are in no queue. Workloads arrive for a while; who is evicted leaves with all others or one in
each cycle, and does not come back.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.quota.assigning.constraints import Taint, Toleration
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.entries import CycleResult, Entry, Outcome
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    Configuration,
    FlavorQuotas,
    LocalQueue,
    PodSet,
    Policy,
    Preemption,
    QueueingStrategy,
    Quota,
    Reason,
    ResourceFlavor,
    ResourceGroup,
    Settings,
    Strategy,
    Workload,
)
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.engine.topology.model import (
    HOSTNAME,
    Layer,
    Topology,
    TopologyNode,
    TopologyRequest,
)
from reprieve.engine.topology.places import Grounds, NodeUse
from reprieve.engine.victim_choice import VictimChoice
from tests.conformance.topology_stories import Evicted, domains_of, needed_for_quota
from tests.engine.topology.build import GPU

NOW = Nanos(1_800_000_000_000_000_000)
POOL = "example.com/pool"
_LEVELS = ("example.com/zone", "example.com/block", "example.com/rack")
_MOVES = {Outcome.ADMITTED, Outcome.PREEMPTING, Outcome.DEFERRED, Outcome.SKIPPED}
_MARKED = Taint("maintenance", "", "NoSchedule")


@dataclass
class Cluster:
    """A drawn cluster, and what has become of the workloads of its story so far."""

    draw: random.Random
    profile: VictimChoice
    admitted: dict[str, frozenset[tuple[str, tuple[str, ...]]]] = field(default_factory=dict)
    evicted: list[Evicted] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        draw = self.draw
        depth = draw.randint(1, 3)
        self.by_host = draw.random() < 0.85 or depth == 1
        self.levels = (*_LEVELS[-depth:], *((HOSTNAME,) if self.by_host else ()))
        self.flavors = ("blue", "red")[: draw.choice((1, 1, 2))]
        nodes = self._nodes()
        self.gpus = sum(node.allocatable[GPU] for node in nodes)
        self.configuration = self._configuration()
        self.holdings, self.queues = Holdings(self.configuration), Queues(self.configuration)
        uses = tuple(
            NodeUse(node.name, {GPU: draw.randint(1, 4)}) for node in nodes if draw.random() < 0.15
        )
        self.seen["pods in no queue"] += bool(uses)
        self.holdings.stand_on(Grounds(nodes, uses))

    def _nodes(self) -> list[TopologyNode]:
        found: list[TopologyNode] = []
        paths: list[tuple[str, ...]] = [()]
        for _ in range(len(self.levels) - self.by_host):
            paths = [(*p, f"{p[-1] if p else ''}{n}") for p in paths for n in range(self._few())]
        for path in paths:
            for _ in range(self._few()):
                name = f"h{len(found)}"
                labels = dict(zip(self.levels, (*path, name), strict=False))
                labels[POOL] = self.draw.choice(self.flavors)
                taints = (_MARKED,) if self.draw.random() < 0.1 else ()
                free = {GPU: self.draw.choice((4, 8)), "pods": self.draw.choice((3, 110))}
                found.append(TopologyNode(name, labels, free, taints))
        return found

    def _few(self) -> int:
        return self.draw.choice((1, 2, 2, 3))

    def _configuration(self) -> Configuration:
        draw = self.draw
        parents = {"all": "", "left": "all", "right": "all"}
        if draw.random() < 0.2:
            parents = {"": ""}
        names = [f"q{n}" for n in range(draw.randint(1, 4))]
        queues = {name: self._queue(name, draw.choice([*parents])) for name in names}
        self.fair = draw.random() < 0.35
        strategies = draw.choice(((), (Strategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,)))
        self.seen["fair sharing"] += self.fair
        self.seen["nested cohorts"] += any(
            queue.cohort in ("left", "right") for queue in queues.values()
        )
        return Configuration(
            queues,
            {name: Cohort(name, parent) for name, parent in parents.items() if name},
            {name: ResourceFlavor(name, {POOL: name}, topology="default") for name in self.flavors},
            {f"ns/{name}": LocalQueue(f"ns/{name}", name) for name in names},
            {"ns": {}},
            topologies={"default": Topology("default", self.levels)},
            settings=Settings(fair_sharing=strategies if self.fair else None, profile=self.profile),
        )

    def _queue(self, name: str, cohort: str) -> ClusterQueue:
        draw = self.draw
        nominal = draw.choice((4, 8, 12, 1_000))
        limits = [draw.choice((None, None, 4, 8)) if cohort else None for _ in range(2)]
        lending = None if limits[1] is None else min(limits[1], nominal)
        offers = tuple(
            FlavorQuotas(flavor, {GPU: Quota(nominal, limits[0], lending)})
            for flavor in self.flavors
        )
        within = draw.choice(
            (Policy.NEVER, *[Policy.LOWER_PRIORITY] * 2, Policy.LOWER_OR_NEWER_EQUAL_PRIORITY)
        )
        reclaim = draw.choice((Policy.NEVER, Policy.LOWER_PRIORITY, Policy.ANY))
        borrow = None
        if reclaim is not Policy.NEVER and draw.random() < 0.3:
            borrow = BorrowWithinCohort(Policy.LOWER_PRIORITY, draw.choice((None, 1)))
        strict = draw.random() < 0.2
        return ClusterQueue(
            name,
            cohort,
            (ResourceGroup((GPU,), offers),),
            Preemption(within, reclaim, borrow),
            strategy=QueueingStrategy.STRICT_FIFO if strict else QueueingStrategy.BEST_EFFORT_FIFO,
            weight=draw.choice((1.0, 1.0, 2.0)),
        )

    def submit(self, number: int) -> None:
        """Queue a drawn workload in a drawn queue."""
        draw = self.draw
        name, queue = f"w{number}", draw.choice([*self.configuration.local_queues])
        request, size = self._request()
        count = size * draw.randint(1, max(1, 6 // size))
        stays = (Toleration("maintenance", "Exists"),) if draw.random() < 0.3 else ()
        each = {GPU: draw.choice((1, 1, 2, 4))}
        workers = PodSet("main", count, each, topology=request, tolerations=stays)
        pod_sets: tuple[PodSet, ...] = (workers,)
        if not request.layers and (request.required or request.preferred) and draw.random() < 0.2:
            grouped = [
                PodSet(n, c, r, topology=request, tolerations=stays, group="g")
                for n, c, r in (("leader", 1, {GPU: 1}), ("main", count, each))
            ]
            pod_sets = tuple(grouped) if count > 1 else pod_sets
            self.seen["leaders"] += count > 1
        self.seen["slices"] += bool(request.layers)
        self.queues.push(
            Workload(
                "ns",
                name,
                name,
                queue,
                draw.randint(0, 3),
                pod_sets=pod_sets,
                created=Nanos(NOW + number * SECOND),
            )
        )

    def _request(self) -> tuple[TopologyRequest, int]:
        """Return a request, and what the number of pods is a multiple of."""
        draw, at = self.draw, self.draw.randrange(len(self.levels))
        mode = draw.choice(("required", "required", "preferred", "unconstrained"))
        if mode == "unconstrained":
            return TopologyRequest(unconstrained=True), 1
        asked: dict[str, Any] = {mode: self.levels[at]}
        below = [level for level in self.levels[at:] if draw.random() < 0.3][:2]
        sizes = {1: (2,), 2: (4, 2)}.get(len(below), ())
        layers = tuple(Layer(level, size) for level, size in zip(below, sizes, strict=True))
        return TopologyRequest(**asked, layers=layers), sizes[0] if sizes else 1


def played(number: int, profile: VictimChoice, arrivals: int = 12, cycles: int = 40) -> Cluster:
    """Return a story with its end: who was evicted, for whom, and who was admitted where."""
    cluster = Cluster(random.Random(number), profile)
    staggered = cluster.draw.random() < 0.5
    leaving: list[str] = []
    idle = 0
    for turn in range(cycles):
        if turn < arrivals:
            cluster.submit(turn)
        now = Nanos(NOW + (100 + turn) * SECOND)
        result = cycle(cluster.holdings, cluster.queues, now, turn + 1)
        leaving += _noted(cluster, result)
        gone = leaving[:1] if staggered else leaving[:]
        del leaving[: len(gone)]
        for key in gone:
            cluster.holdings.release(key)
        cluster.queues.flush([*cluster.configuration.cluster_queues])
        moves = {entry.outcome for entry in result.entries} & _MOVES
        idle = 0 if moves or gone or turn < arrivals else idle + 1
        if idle > 2:
            break
    return cluster


def _noted(cluster: Cluster, result: CycleResult) -> list[str]:
    """Record what a cycle decided; return who was evicted."""
    earlier: list[Entry] = []
    evicted = []
    for entry in result.entries:
        key = entry.workload.key
        assert entry.outcome is not Outcome.FAULT, entry.message
        cluster.seen[entry.outcome.value] += 1
        if entry.outcome is Outcome.ADMITTED:
            cluster.admitted[key] = domains_of(cluster.holdings.holders[key])
        needed = needed_for_quota(cluster.holdings, entry, earlier) | _needed_by_rules(
            cluster, entry
        )
        if entry.outcome in (Outcome.PREEMPTING, Outcome.DEFERRED):
            earlier.append(entry)
        for target in entry.issued:
            victim = target.holder.key
            own = domains_of(target.holder)
            cluster.evicted.append(Evicted(victim, key, own, victim in needed))
            evicted.append(victim)
    return evicted


def _needed_by_rules(cluster: Cluster, entry: Entry) -> set[str]:
    """Return the victims of its own queue without which a queue may not reclaim from others.

    It would use more than its nominal quota with any of them.
    """
    own = entry.cluster_queue
    theirs = [t.holder for t in entry.targets if t.reason is not Reason.IN_CLUSTER_QUEUE]
    mine = [t.holder for t in entry.targets if t.reason is Reason.IN_CLUSTER_QUEUE]
    if not theirs or entry.assignment is None:
        return set()
    found = set()
    queue = cluster.configuration.cluster_queues[own]
    for offer in queue.groups[0].flavors:
        nominal = offer.resources[GPU].nominal
        used = _held(cluster, own, offer.flavor) - sum(_gpus(each, offer.flavor) for each in mine)
        used += sum(
            each.count * each.requests[GPU]
            for each, got in zip(entry.workload.pod_sets, entry.assignment.pod_sets, strict=True)
            if got.flavors[GPU].flavor == offer.flavor
        )
        found |= {e.key for e in mine if _gpus(e, offer.flavor) + used > nominal}
    return found


def _held(cluster: Cluster, queue: str, flavor: str) -> int:
    holders = cluster.holdings.holders.values()
    names = cluster.holdings.tree.names
    return sum(_gpus(each, flavor) for each in holders if names[each.queue] == queue)


def _gpus(holder: Holder, flavor: str) -> int:
    admission = holder.workload.admission
    assert admission is not None
    return sum(e.usage[GPU] for e in admission.pod_sets if e.flavors.get(GPU) == flavor)


def in_vain(cluster: Cluster) -> dict[str, str]:
    """Return the victims that helped nobody, by how: `never`, or `elsewhere`."""
    found = {}
    for each in cluster.evicted:
        if each.preemptor not in cluster.admitted:
            found[each.victim] = "never"
        elif not each.for_quota and not each.domains & cluster.admitted[each.preemptor]:
            found[each.victim] = "elsewhere"
    return found
