"""What would give a waiting workload its quota, found by deciding again on changed input.

One change at a time, the smallest kind first (`Change`): waiting, fewer pods, fewer devices a pod,
one constraint less, a wider level of its topology, another flavor, another LocalQueue of the
namespace, a higher priority class.
Of a number the largest that helps is looked for by halves, of classes the lowest. Some twenty
decisions at most are made, and a kind that needs many leaves some to the next kinds; that none
was found is an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kubeworld.units.instants import Nanos, format_instant
from reprieve.engine.diagnosis.model import Change, Diagnosis, Fix
from reprieve.engine.diagnosis.quota_rehearsal import Rehearsal
from reprieve.engine.diagnosis.quota_trial import QuotaFacts
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.lost_work import is_device
from reprieve.engine.quota.model import (
    ClusterQueue,
    PodSet,
    ResourceFlavor,
    Taint,
    Toleration,
    Workload,
)

__all__ = ["MOST_DECISIONS", "ClassChoice", "Remedy", "remedies"]

MOST_DECISIONS: Final = 20
#: Decisions that a kind leaves to each kind after it.
_KEPT: Final = 2
_REQUIRED_LEVEL: Final = "kueue.x-k8s.io/podset-required-topology"
_LEFT = "those that are preempted already have ended"


@dataclass(frozen=True, slots=True)
class ClassChoice:
    """A priority class that may be named: what field names it, and what it gives."""

    name: str
    value: int
    field: str = "metadata.labels[kueue.x-k8s.io/priority-class]"


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that helps: its text, and the workload as it is then, at which instant."""

    fix: Fix
    workload: Workload
    at: Nanos


class _Search:
    """The changes of one workload. `name` is the class that it names now, for the text."""

    def __init__(
        self, facts: QuotaFacts, workload: Workload, classes: Sequence[ClassChoice], name: str
    ) -> None:
        self.facts = facts
        self.workload = workload
        self.classes = classes
        self.name = name
        self.rehearsal = Rehearsal(facts, MOST_DECISIONS)
        self.kinds_after = len(Change)

    def run(self, diagnosis: Diagnosis) -> Iterator[Remedy]:
        """Yield what helps, the smallest change first."""
        if diagnosis.reason is Reason.SET_ASIDE:
            # What failed about it may fail again: that another form does not is no knowledge.
            yield from self._wait(diagnosis)
            return
        kinds: tuple[Callable[[], Iterable[Remedy]], ...] = (
            lambda: self._wait(diagnosis),
            self._wider_levels,
            self._fewer_pods,
            self._fewer_devices,
            self._without_constraint,
            self._other_flavor,
            self._other_queue,
            self._higher_priority,
        )
        for position, kind in enumerate(kinds):
            self.kinds_after = len(kinds) - position - 1
            yield from kind()

    def _try(
        self, change: Change, field: str, before: str, after: str, workload: Workload
    ) -> Remedy | None:
        victims = self.rehearsal.victims(workload)
        if victims is None:
            return None
        return Remedy(Fix(change, field, before, after, victims), workload, self.facts.now)

    def _may_try(self) -> bool:
        return self.rehearsal.left > _KEPT * self.kinds_after

    def _wait(self, diagnosis: Diagnosis) -> Iterator[Remedy]:
        now, until = self.facts.now, diagnosis.earliest
        before = format_instant(now)
        victims = self.rehearsal.victims(self.workload, without_leaving=True)
        if victims is not None:
            yield Remedy(Fix(Change.WAIT, "", before, _LEFT, victims), self.workload, now)
        if until is None or until <= now:
            return
        rested = replace(self.workload, requeue_at=None, requeued=True)
        victims = self.rehearsal.victims(rested, until)
        if victims is not None:
            fix = Fix(Change.WAIT, "", before, format_instant(until), victims)
            yield Remedy(fix, rested, until)

    def _fewer_pods(self) -> Iterator[Remedy]:
        for pod_set in sorted(self.workload.pod_sets, key=lambda each: -each.count):
            least = 1 if pod_set.min_count is None else max(1, pod_set.min_count)

            def changed(count: int, pod_set: PodSet = pod_set) -> Workload:
                return self._with(pod_set, replace(pod_set, count=count, min_count=None))

            field = f"spec.podSets[{pod_set.name}].count"
            found = self._largest(Change.FEWER_PODS, field, pod_set.count, least, changed)
            if found is not None:
                yield found
                return

    def _fewer_devices(self) -> Iterator[Remedy]:
        for pod_set in self.workload.pod_sets:
            for resource in sorted(filter(is_device, pod_set.requests)):

                def changed(
                    amount: int, pod_set: PodSet = pod_set, resource: str = resource
                ) -> Workload:
                    requests = {**pod_set.requests, resource: amount}
                    return self._with(pod_set, replace(pod_set, requests=requests))

                field = f"spec.podSets[{pod_set.name}].template.spec, requests of {resource}"
                amount = pod_set.requests[resource]
                found = self._largest(Change.FEWER_DEVICES, field, amount, 1, changed)
                if found is not None:
                    yield found
                    return

    def _largest(
        self, change: Change, field: str, now: int, least: int, changed: Callable[[int], Workload]
    ) -> Remedy | None:
        """Return the change to the largest number below `now` that helps."""
        if least >= now or not self._may_try():
            return None
        best = self._try(change, field, str(now), str(least), changed(least))
        low, high = least, now
        while best is not None and high - low > 1 and self._may_try():
            middle = (low + high) // 2
            found = self._try(change, field, str(now), str(middle), changed(middle))
            if found is None:
                high = middle
            else:
                low, best = middle, found
        return best

    def _without_constraint(self) -> Iterator[Remedy]:
        for pod_set in self.workload.pod_sets:
            spec = f"spec.podSets[{pod_set.name}].template.spec"
            for key, value in sorted(pod_set.node_selector.items()):
                if any(each.labels.get(key, value) != value for each in self._flavors()):
                    rest = {k: v for k, v in pod_set.node_selector.items() if k != key}
                    loose = self._with(pod_set, replace(pod_set, node_selector=rest))
                    field = f"{spec}.nodeSelector[{key}]"
                    yield from self._one(Change.WITHOUT_CONSTRAINT, field, value, "", loose)
            if pod_set.affinity is not None:
                loose = self._with(pod_set, replace(pod_set, affinity=None))
                field = f"{spec}.affinity.nodeAffinity"
                yield from self._one(Change.WITHOUT_CONSTRAINT, field, "required", "", loose)

    def _wider_levels(self) -> Iterator[Remedy]:
        for pod_set in self.workload.pod_sets:
            yield from self._wider_level(pod_set)

    def _wider_level(self, pod_set: PodSet) -> Iterator[Remedy]:
        """Yield the nearest wider level with which it starts, of a required or unknown one."""
        asked = pod_set.topology
        if asked is None or not asked.required:
            return
        field = f"spec.podSets[{pod_set.name}].template.metadata.annotations[{_REQUIRED_LEVEL}]"
        topologies = self.facts.configuration.topologies
        names = dict.fromkeys(e.topology for e in self._flavors() if e.topology in topologies)
        for name in names:
            levels = topologies[name].levels
            # Of a level that it does not have every other one is tried, the narrowest first.
            wider = levels[: levels.index(asked.required)] if asked.required in levels else levels
            for level in reversed(wider):
                loose = self._with(
                    pod_set, replace(pod_set, topology=replace(asked, required=level))
                )
                found = [*self._one(Change.WIDER_LEVEL, field, asked.required, level, loose)]
                yield from found
                if found:
                    return

    def _other_flavor(self) -> Iterator[Remedy]:
        for pod_set in self.workload.pod_sets:
            spec = f"spec.podSets[{pod_set.name}].template.spec"
            for flavor in self._flavors():
                for key, value in sorted(pod_set.node_selector.items()):
                    other = flavor.labels.get(key, value)
                    if other != value:
                        selector = {**pod_set.node_selector, key: other}
                        moved = self._with(pod_set, replace(pod_set, node_selector=selector))
                        field = f"{spec}.nodeSelector[{key}]"
                        yield from self._one(Change.OTHER_FLAVOR, field, value, other, moved)
                taint = _only_taint(flavor, pod_set)
                if taint is not None:
                    one = Toleration(taint.key, "Equal", taint.value, taint.effect)
                    tolerations = (*pod_set.tolerations, one)
                    moved = self._with(pod_set, replace(pod_set, tolerations=tolerations))
                    text = f"{taint.key}={taint.value}:{taint.effect}"
                    field = f"{spec}.tolerations"
                    yield from self._one(Change.OTHER_FLAVOR, field, "none for it", text, moved)

    def _other_queue(self) -> Iterator[Remedy]:
        queues = self.facts.configuration.local_queues
        namespace, _, door = self.workload.queue.partition("/")
        here = queues.get(self.workload.queue)
        for key in sorted(queues):
            there, _, name = key.partition("/")
            same = here is not None and here.cluster_queue == queues[key].cluster_queue
            if there != namespace or key == self.workload.queue or same:
                continue
            moved = replace(self.workload, queue=key)
            yield from self._one(Change.OTHER_QUEUE, "spec.queueName", door, name, moved)

    def _higher_priority(self) -> Iterator[Remedy]:
        higher = sorted(
            (each for each in self.classes if each.value > self.workload.priority),
            key=lambda each: (each.value, each.name),
        )

        def attempt(choice: ClassChoice) -> Remedy | None:
            raised = replace(self.workload, priority=choice.value)
            before = self.name or str(self.workload.priority)
            return self._try(Change.HIGHER_PRIORITY, choice.field, before, choice.name, raised)

        best = attempt(higher[-1]) if higher else None
        low, high = -1, len(higher) - 1
        while best is not None and high - low > 1:
            middle = (low + high) // 2
            found = attempt(higher[middle])
            if found is None:
                low = middle
            else:
                high, best = middle, found
        if best is not None:
            yield best

    def _one(
        self, change: Change, field: str, before: str, after: str, workload: Workload
    ) -> Iterator[Remedy]:
        found = self._try(change, field, before, after, workload) if self._may_try() else None
        if found is not None:
            yield found

    def _with(self, pod_set: PodSet, other: PodSet) -> Workload:
        pod_sets = tuple(other if each is pod_set else each for each in self.workload.pod_sets)
        return replace(self.workload, pod_sets=pod_sets)

    def _flavors(self) -> list[ResourceFlavor]:
        """Return the flavors of its ClusterQueue."""
        configuration = self.facts.configuration
        local = configuration.local_queues.get(self.workload.queue)
        queue: ClusterQueue | None = None
        if local is not None:
            queue = configuration.cluster_queues.get(local.cluster_queue)
        names = [] if queue is None else [f.flavor for g in queue.groups for f in g.flavors]
        return [configuration.flavors[n] for n in names if n in configuration.flavors]


def remedies(
    facts: QuotaFacts,
    workload: Workload,
    diagnosis: Diagnosis,
    classes: Sequence[ClassChoice] = (),
    class_name: str = "",
) -> tuple[Remedy, ...]:
    """Return the changes that would give a waiting workload its quota, the smallest first.

    Args:
        facts: the state; not changed.
        workload: as it waits.
        diagnosis: why it does.
        classes: priority classes that it may name.
        class_name: the one that it names now.
    """
    return tuple(_Search(facts, workload, classes, class_name).run(diagnosis))


def _only_taint(flavor: ResourceFlavor, pod_set: PodSet) -> Taint | None:
    """Return the one taint that keeps pods from a flavor, None where there is none or are more."""
    known = (*pod_set.tolerations, *flavor.tolerations)
    found = [
        taint
        for taint in flavor.taints
        if taint.effect in ("NoSchedule", "NoExecute")
        and not any(each.tolerates(taint) for each in known)
    ]
    return found[0] if len(found) == 1 else None
