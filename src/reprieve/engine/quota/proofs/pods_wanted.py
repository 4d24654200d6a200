"""The pods of workloads that do not exist yet, as a simulation of nodes places them.

Each pod set has the template that a scheduler sees, with what its flavors add, and where a topology
gives it places its pods in the domains that they were assigned: as they will be pinned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reprieve.engine.cluster import rows
from reprieve.engine.cluster.facts import LabelFacts
from reprieve.engine.cluster.rows import Labels, PodClass, PodLabels, PodRow
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.quota.assigning.assignment import Assignment
from reprieve.engine.quota.model import ResourceFlavor, Workload
from reprieve.engine.topology.model import TopologyAssignment
from reprieve.units.ids import Uid

__all__ = ["PodSetPlan", "PodsWanted", "Template", "admitted_sets", "assigned_sets"]


@dataclass(frozen=True, slots=True)
class Template:
    """What a scheduler sees of the pods of one pod set, before they get their flavors.

    `preempts_below`: which priority its pods may preempt, by their class.
    """

    pod_class: PodClass
    labels: Labels = ()
    preempts_below: int = 0


@dataclass(frozen=True, slots=True)
class PodSetPlan:
    """Pods of one pod set, by name: how many, of which flavors, and where, if that is stated."""

    name: str
    count: int
    flavors: frozenset[str]
    places: TopologyAssignment | None = None


def assigned_sets(assignment: Assignment) -> Iterator[PodSetPlan]:
    """Yield the pod sets of an assignment."""
    for each in assignment.pod_sets:
        flavors = frozenset(choice.flavor for choice in each.flavors.values())
        yield PodSetPlan(each.name, each.count, flavors, each.topology)


def admitted_sets(workload: Workload) -> Iterator[PodSetPlan]:
    """Yield the pod sets of a workload that holds quota."""
    assert workload.admission is not None
    for each in workload.admission.pod_sets:
        yield PodSetPlan(each.name, each.count, frozenset(each.flavors.values()), each.topology)


@dataclass(slots=True)
class PodsWanted:
    """Makes pods that `simulation` can place."""

    simulation: Simulation
    templates: Callable[[Workload], Mapping[str, Template]]
    _known: dict[tuple[PodClass, PodLabels], Pending] = field(default_factory=dict)

    def of(
        self,
        workload: Workload,
        sets: Iterable[PodSetPlan],
        flavors: Mapping[str, ResourceFlavor],
        *,
        pinned: bool = True,
    ) -> Sequence[Pending]:
        """Return the pods of these sets, the largest first; `pinned`: to the places they have."""
        templates = self.templates(workload)
        found = []
        for each in sets:
            template = templates.get(each.name)
            if template is None:
                continue
            reported = _reported(
                template.pod_class, [flavors[f] for f in sorted(each.flavors & flavors.keys())]
            )
            labels = PodLabels(workload.namespace, template.labels)
            for selector, count in _by_domain(each, pinned=pinned):
                found += [self._pending(_selecting(reported, selector), labels)] * count
        return sorted(found, key=self._size, reverse=True)

    def _size(self, pending: Pending) -> float:
        """Return the largest part of any node's capacity that the pod requests."""
        nodes = self.simulation.snapshot
        entry = nodes.classes[pending.pod_class]
        assert entry is not None, "a pod's class is never free"
        most = nodes.allocatable.max(axis=0, initial=1)
        offered = dict(zip(nodes.resources, most.tolist(), strict=True))
        return max((n / max(1, offered.get(name, 1)) for name, n in entry.requests), default=0.0)

    def _pending(self, pod_class: PodClass, labels: PodLabels) -> Pending:
        """Return a pod that does not exist, with numbers that the simulation knows."""
        known = self._known.get((pod_class, labels))
        if known is None:
            simulation = self.simulation
            nodes = simulation.snapshot
            row = PodRow(Uid(""), labels.namespace, "", 0, pod_class, labels.labels)
            known = Pending(row, len(nodes.classes), len(nodes.labels))
            self._known[pod_class, labels] = known
            every = (*nodes.labels, labels)
            simulation.snapshot = replace(
                nodes,
                classes=(*nodes.classes, pod_class),
                labels=every,
                label_facts=LabelFacts(every),
            )
            # What was compiled knows fewer labels.
            simulation.shared = {}
            simulation.rollback(simulation.checkpoint())
        return known


def _by_domain(plan: PodSetPlan, *, pinned: bool) -> Iterator[tuple[Mapping[str, str], int]]:
    """Yield what pods are pinned to, and how many are."""
    if plan.places is None or not pinned:
        yield {}, plan.count
        return
    for domain in plan.places.domains:
        yield dict(zip(plan.places.levels, domain.values, strict=True)), domain.count


def _reported(pod_class: PodClass, flavors: Collection[ResourceFlavor]) -> PodClass:
    """Return a class with what the flavors add: node labels and tolerations."""
    tolerations = [*pod_class.tolerations, *(e for each in flavors for e in _tolerations(each))]
    reported = replace(pod_class, tolerations=tuple(tolerations))
    for flavor in flavors:
        reported = _selecting(reported, flavor.labels)
    return reported


def _selecting(pod_class: PodClass, labels: Mapping[str, str]) -> PodClass:
    if not labels:
        return pod_class
    selector = {**dict(pod_class.node_selector), **labels}
    return replace(pod_class, node_selector=tuple(sorted(selector.items())))


def _tolerations(flavor: ResourceFlavor) -> Iterator[rows.Toleration]:
    for each in flavor.tolerations:
        yield rows.Toleration(each.key, each.operator, each.value, each.effect)
