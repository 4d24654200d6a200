"""The StatefulSet controller: pods with ordinals, one after the other or all at once.

Source: `apps/v1` StatefulSets: OrderedReady and Parallel, RollingUpdate with partition, OnDelete,
the first ordinal. Not imitated: volume claims, ControllerRevision objects, adoption.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kubeworld.controllers.acts import Act, Create, Delete, Event, Object, Outcome, Suffix
from kubeworld.controllers.replicas import availability, replicas_of, revision_of, with_status
from kubeworld.objects.owners import child, template_hash
from kubeworld.objects.pods import is_active, is_ready
from kubeworld.units.instants import Nanos
from kubeworld.units.untrusted import integer_or_none

__all__ = ["is_ordered", "ordinal_pod", "ordinals", "revision_wanted", "step"]


def step(owner: Object, pods: Sequence[Object], now: Nanos, suffix: Suffix) -> Outcome:
    """Return what a StatefulSet does next; `pods`: those that it selects."""
    revision, held = revision_wanted(owner), _by_ordinal(owner, pods)
    acts = list(_next(owner, held, revision))
    gone = [act.object for act in acts if isinstance(act, Delete)]
    made = [act.object for act in acts if isinstance(act, Create)]
    active = [pod for pod in held.values() if is_active(pod) and pod not in gone] + made
    return _with_status(acts, owner, active, revision, now)


def ordinals(owner: Object) -> range:
    """Return the numbers of the pods that a set is to have."""
    first = int((owner["spec"].get("ordinals") or {}).get("start") or 0)
    return range(first, first + replicas_of(owner))


def is_ordered(owner: Object) -> bool:
    """Return whether each pod waits for the one before it."""
    return bool(owner["spec"].get("podManagementPolicy") != "Parallel")


def revision_wanted(owner: Object) -> str:
    """Return the name of the template that the set has now."""
    return f"{owner['metadata']['name']}-{template_hash(owner['spec']['template'])}"


def ordinal_pod(owner: Object, ordinal: int, revision: str) -> Object:
    """Return the pod of an ordinal."""
    name = f"{owner['metadata']['name']}-{ordinal}"
    labels = {
        "apps.kubernetes.io/pod-index": str(ordinal),
        "statefulset.kubernetes.io/pod-name": name,
        "controller-revision-hash": revision,
    }
    pod = child(owner, "v1", "Pod", name, owner["spec"]["template"], labels=labels)
    pod["spec"]["hostname"] = name
    if owner["spec"].get("serviceName"):
        pod["spec"]["subdomain"] = owner["spec"]["serviceName"]
    return pod


def _by_ordinal(owner: Object, pods: Sequence[Object]) -> dict[int, Object]:
    stem = f"{owner['metadata']['name']}-"
    numbers = ((pod["metadata"]["name"].removeprefix(stem), pod) for pod in pods)
    found = {integer_or_none(number, least=0): pod for number, pod in numbers}
    return {number: pod for number, pod in found.items() if number is not None}


def _next(owner: Object, pods: Mapping[int, Object], revision: str) -> Iterator[Act]:
    wanted, ordered = ordinals(owner), is_ordered(owner)
    for ordinal in wanted:
        pod = pods.get(ordinal)
        if pod is None:
            yield from _create(owner, ordinal, revision)
        elif not is_active(pod):
            if not pod["metadata"].get("deletionTimestamp"):
                yield from _delete(owner, pod)  # ended: it is made anew under the same name
        elif is_ready(pod):
            continue
        if ordered:
            return  # the next one waits for this one
    surplus = sorted((o for o in pods if o not in wanted), reverse=True)
    for ordinal in surplus:
        if is_active(pods[ordinal]):
            yield from _delete(owner, pods[ordinal])
        if ordered:
            return
    if not surplus:
        yield from _roll(owner, pods, revision)


def _roll(owner: Object, pods: Mapping[int, Object], revision: str) -> Iterator[Act]:
    """Replace the highest pod of an older template once all pods are ready."""
    strategy = owner["spec"].get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete" or len(pods) < replicas_of(owner):
        return
    if not all(is_active(pod) and is_ready(pod) for pod in pods.values()):
        return
    partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
    for ordinal in sorted(pods, reverse=True):
        if ordinal >= partition and revision_of(pods[ordinal]) != revision:
            yield from _delete(owner, pods[ordinal])
            return


def _create(owner: Object, ordinal: int, revision: str) -> Iterator[Act]:
    pod = ordinal_pod(owner, ordinal, revision)
    done = f"create Pod {pod['metadata']['name']} in StatefulSet {owner['metadata']['name']}"
    yield Create(pod, f"{done} failed error")
    yield Event("SuccessfulCreate", f"{done} successful")


def _delete(owner: Object, pod: Object) -> Iterator[Act]:
    yield Delete(pod)
    names = f"Pod {pod['metadata']['name']} in StatefulSet {owner['metadata']['name']}"
    yield Event("SuccessfulDelete", f"delete {names} successful")


def _with_status(
    acts: list[Act], owner: Object, pods: Sequence[Object], revision: str, now: Nanos
) -> Outcome:
    ready, available, again = availability(owner, pods, now)
    updated = sum(revision_of(pod) == revision for pod in pods)
    current = (owner.get("status") or {}).get("currentRevision") or revision
    if updated == len(pods) == replicas_of(owner) and ready == len(pods):
        current = revision
    status = {
        "observedGeneration": owner["metadata"].get("generation", 1),
        "replicas": len(pods),
        "readyReplicas": ready,
        "availableReplicas": available,
        "updatedReplicas": updated,
        "currentReplicas": sum(revision_of(pod) == current for pod in pods),
        "currentRevision": current,
        "updateRevision": revision,
        "collisionCount": 0,
    }
    return Outcome(with_status(acts, owner, status), again)
