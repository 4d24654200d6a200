"""Whether a preemption requests what its preemptor needs, of flavors that there are for it.

Every pod set that has pods left gets all that its pods request together, with fewer pods than it
has only down to its `minCount`, and for each resource a flavor of the first group of its
ClusterQueue that covers it. A resource that no group covers may be left out where none of it is
requested, or where the settings state so; a group that covers `pods` gets the number of pods as the
request.

Source: specification of the quota plane, sections 2 and 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reprieve.engine.quota.holdings.amounts import UNLIMITED, plus
from reprieve.engine.quota.model import (
    AdmittedPodSet,
    ClusterQueue,
    FlavorResource,
    PodSet,
    Settings,
    Workload,
)

__all__ = ["NotOffered", "TooFewPods", "demand_of"]


class NotOffered(Exception):
    """A pod set has no flavor of its ClusterQueue for a resource; the message names it."""


class TooFewPods(Exception):
    """A pod set is given other pods than it has left; the message names it."""


def demand_of(
    workload: Workload,
    queue: ClusterQueue,
    settings: Settings,
    assigned: Mapping[str, AdmittedPodSet],
) -> dict[FlavorResource, int]:
    """Return what a workload requests, its pod sets having these flavors and numbers of pods.

    Raises:
        NotOffered: a resource has no flavor, or one that its ClusterQueue does not offer.
        TooFewPods: a pod set gets none, or fewer than may be, or more than it has.
    """
    found: dict[FlavorResource, int] = {}
    for pod_set in workload.pod_sets:
        given = assigned.get(pod_set.name)
        most, least = _counts(workload, pod_set, settings)
        if given is None or not least <= given.count <= most:
            raise TooFewPods(pod_set.name)
        for resource, amount in _requests(pod_set, given.count, queue):
            flavor = _flavor(queue, settings, given, resource, amount)
            if flavor is not None:
                pair = FlavorResource(flavor, resource)
                found[pair] = plus(found.get(pair, 0), amount)
    return found


def _counts(workload: Workload, pod_set: PodSet, settings: Settings) -> tuple[int, int]:
    """Return how many pods of a pod set may be requested, at most and at least."""
    most = pod_set.count
    if settings.gates.reclaimable_pods:
        most = max(0, most - workload.reclaimable.get(pod_set.name, 0))
    if pod_set.min_count is None or not settings.gates.partial_admission:
        return most, most
    return most, min(most, pod_set.min_count)


def _requests(pod_set: PodSet, count: int, queue: ClusterQueue) -> Iterator[tuple[str, int]]:
    for resource, amount in pod_set.requests.items():
        if resource != "pods" or _group(queue, "pods") is None:
            yield resource, min(UNLIMITED, max(0, amount) * count)
    if _group(queue, "pods") is not None:
        yield "pods", count


def _flavor(
    queue: ClusterQueue, settings: Settings, given: AdmittedPodSet, resource: str, amount: int
) -> str | None:
    offered = _group(queue, resource)
    flavor = given.flavors.get(resource)
    if offered is None and flavor is None and (settings.ignore_undeclared or not amount):
        return None
    if offered is None or flavor is None or flavor not in offered:
        said = "no flavor" if flavor is None else f"flavor {flavor}"
        raise NotOffered(f"{given.name}: {said} for {resource}")
    return flavor


def _group(queue: ClusterQueue, resource: str) -> tuple[str, ...] | None:
    for group in queue.groups:
        if resource in group.covered:
            return tuple(each.flavor for each in group.flavors)
    return None
