"""How narrowly something starts: with how little less free another is preempted, or it waits.

It is decided about again on the same cluster with less free, in two places:

1. on one of the nodes where it runs, that with the least left over; as much as was free there
2. in its ClusterQueue, of a flavor that it has been given

What is looked for is the smallest amount that changes the verdict or who is preempted, by halving
up to what one of its pods requests; beyond that it is not called fragile. Halving assumes
that less free is never easier. Amounts are counted in devices, else in cores, else in whole pods.

Source: the API's `status.allocatable` of nodes; Kueue's nominal quota, of which less is the same as
use by other work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from kubeworld.objects.paths import Json, first
from kubeworld.objects.pods import OVER
from kubeworld.units.quantities import quantity_text
from reprieve.engine.lost_work import is_device
from reprieve.intake.cluster.requests import amount_in_base_units
from reprieve.kube.resource import NODES, PODS
from reprieve.units.errors import UsageError
from reprieve.whatif.happened import Run, Undecided
from reprieve.whatif.questions.answer import Answer, Fragile, Verdict
from reprieve.whatif.questions.asked import requests_of_spec
from reprieve.whatif.snapshots.snapshot import KindKey, Snapshot

__all__ = ["MOST_DECISIONS", "fragility"]

#: How often the whole cluster is decided about again.
MOST_DECISIONS: Final = 10
_NODES: Final[KindKey] = (NODES.group, NODES.plural)
_QUEUES: Final[KindKey] = ("kueue.x-k8s.io", "clusterqueues")
_WORKLOADS: Final = ("kueue.x-k8s.io", "workloads")
_CORE: Final = 1_000

#: What would happen on another cluster.
Decide = Callable[[Snapshot], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where something may be less free: up to `most`, in steps of `step` base units."""

    kind: KindKey
    name: str
    flavor: str
    resource: str
    step: int
    most: int

    def with_less(self, amount: int, verdict: Verdict | None) -> Fragile:
        """Return the text about it."""
        kind = "Node" if self.kind == _NODES else "ClusterQueue"
        return Fragile(self.resource, amount, kind, self.name, self.flavor, verdict)


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class _Bound(msgspec.Struct, frozen=True, gc=False):
    spec: _Spec
    status: _Status = _Status()


_BOUND: Final = msgspec.json.Decoder(_Bound, strict=False)


async def fragility(
    run: Run, answer: Answer, decide: Decide, over: Callable[[], bool]
) -> Fragile | None:
    """Return with how little less free it is another answer; None where a pod's worth is not it.

    `over` states that there is no time to decide again: then it is not known either.
    """
    if answer.verdict not in (Verdict.STARTS, Verdict.STARTS_WITH_VICTIMS):
        return None
    snapshot, left = run.overlay.snapshot, MOST_DECISIONS
    best: Fragile | None = None
    for place in (*_on_nodes(run, answer), *_in_queues(run, answer)):
        steps = place.most // place.step
        if best is not None and best.resource == place.resource:
            steps = min(steps, best.amount // place.step - 1)
        low, high = 1, steps
        found: Fragile | None = None
        while low <= high and left > 0 and not over():
            # The most first: where that changes nothing, less does not.
            tried = high if found is None else (low + high) // 2
            left -= 1
            try:
                other = await decide(_less(snapshot, place, tried * place.step))
            except (UsageError, Undecided):
                break  # it is not known
            if _same(answer, other):
                if found is None:
                    break
                low = tried + 1
            else:
                found = place.with_less(tried * place.step, other.verdict)
                high = tried - 1
        best = found or best
    return best


def _same(answer: Answer, other: Answer) -> bool:
    return answer.verdict is other.verdict and _victims(answer) == _victims(other)


def _victims(answer: Answer) -> set[tuple[str, str, str]]:
    return {(each.kind, each.namespace, each.name) for each in answer.victims}


def _on_nodes(run: Run, answer: Answer) -> Iterator[_Place]:
    """Yield the node of its pods with the least left over, of what was free there."""
    names = {each.node for each in answer.placement}
    mine = {each.pod for each in answer.placement}
    made = {
        change.new["metadata"]["uid"]
        for change in run.history
        if change.kind == (PODS.group, PODS.plural) and change.old is None and change.new
    }
    pods = [pod for pod in _pods_on(run, names) if pod["spec"]["nodeName"] in names]
    # Another owner's pod may have the same name in another namespace.
    asked = [
        pod for pod in pods if pod["metadata"]["name"] in mine and pod["metadata"]["uid"] in made
    ]
    resource = _scarce(requests_of_spec(pod["spec"]) for pod in asked)
    if not resource:
        return
    gone = [
        change.old
        for change in run.history
        if change.kind == (PODS.group, PODS.plural) and change.new is None and change.old
    ]
    rows = []
    for name in sorted(names):
        node = run.overlay.get(NODES, "", name)
        if node is None:
            continue  # a pod may name a node that there is not
        whole = amount_in_base_units(resource, first(node, "status.allocatable").get(resource, 0))
        used = _sum(resource, (pod for pod in pods if pod["spec"]["nodeName"] == name))
        own = [pod for pod in asked if pod["spec"]["nodeName"] == name]
        before = (
            used
            - _sum(resource, own)
            + _sum(resource, (pod for pod in gone if pod["spec"].get("nodeName") == name))
        )
        largest = max((_sum(resource, [pod]) for pod in own), default=0)
        rows.append((whole - used, name, min(largest, whole - before), largest))
    if not rows:
        return
    _, name, most, largest = min(rows)
    step = _step(resource, largest)
    if most >= step > 0:
        yield _Place(_NODES, name, "", resource, step, most)


def _in_queues(run: Run, answer: Answer) -> Iterator[_Place]:
    """Yield the ClusterQueue and flavor of what has quota, of the resource that counts."""
    table = run.overlay.table(*_WORKLOADS)
    ours = {(each.namespace, each.queue) for each in answer.outcomes if each.queue}
    made = {
        change.object["metadata"]["uid"]
        for change in run.history
        if change.kind == _WORKLOADS and change.old is None
    }
    for workload in run.overlay.all(table) if table is not None and ours else ():
        metadata = workload["metadata"]
        queue = (metadata["namespace"], first(workload, "spec.queueName"))
        admission = first(workload, "status.admission")
        if metadata["uid"] not in made or queue not in ours or not admission:
            continue
        for found in admission.get("podSetAssignments") or ():
            count = max(1, int(found.get("count") or 1))
            usage = {
                name: amount_in_base_units(name, amount) // count
                for name, amount in (found.get("resourceUsage") or {}).items()
            }
            resource = _scarce([usage])
            flavor = (found.get("flavors") or {}).get(resource)
            if resource and flavor:
                step = _step(resource, usage[resource])
                name = admission["clusterQueue"]
                yield _Place(_QUEUES, name, flavor, resource, step, usage[resource])
                return


def _pods_on(run: Run, names: set[str]) -> Iterator[Json]:
    """Yield the pods that use capacity of these nodes."""
    for _, raw in run.overlay.raw(PODS):
        pod = _BOUND.decode(raw)
        if pod.spec.node_name in names and pod.status.phase not in OVER:
            yield dict(msgspec.json.decode(raw))


def _scarce(requests: Any) -> str:
    """Return the resource that counts: the first device, else cpu; empty without either."""
    names = {name for each in requests for name, amount in each.items() if amount > 0}
    devices = sorted(filter(is_device, names))
    return devices[0] if devices else "cpu" if "cpu" in names else ""


def _step(resource: str, amount: int) -> int:
    if resource != "cpu":
        return 1
    return _CORE if amount >= _CORE else amount


def _sum(resource: str, pods: Any) -> int:
    return sum(requests_of_spec(pod["spec"]).get(resource, 0) for pod in pods)


def _less(snapshot: Snapshot, place: _Place, amount: int) -> Snapshot:
    """Return the cluster with so much less of it free."""
    listed = snapshot.kinds[place.kind]
    found = dict(msgspec.json.decode(listed.objects["", place.name]))
    if place.kind == _NODES:
        _lower(found["status"]["allocatable"], place.resource, place.resource, amount)
    else:
        for group in first(found, "spec.resourceGroups") or ():
            for flavor in group["flavors"]:
                for each in flavor["resources"] if flavor["name"] == place.flavor else ():
                    if each["name"] == place.resource:
                        _lower(each, "nominalQuota", place.resource, amount)
    objects = {**listed.objects, ("", place.name): msgspec.json.encode(found)}
    return replace(snapshot, kinds={**snapshot.kinds, place.kind: replace(listed, objects=objects)})


def _lower(found: Json, field: str, resource: str, amount: int) -> None:
    there = amount_in_base_units(resource, found.get(field, 0))
    found[field] = quantity_text(resource, max(0, there - amount))
