"""What a workload requests, and what it holds.

A pending pod set requests its pods' requests times the count that is left after reclaimable pods.
An admitted one holds what its admission records, never what its spec states; where fewer pods are
left than were admitted, the recorded total is divided by the admitted count before it is multiplied
by the lower one.

Source: specification of the quota plane, section 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from reprieve.engine.quota.holdings.amounts import UNLIMITED
from reprieve.engine.quota.model import FlavorResource, PodSet, Settings, Workload

__all__ = ["PodSetRequest", "held_amounts", "pod_set_requests", "remaining_count"]


@dataclass(frozen=True, slots=True)
class PodSetRequest:
    """The total of one pod set, by resource."""

    pod_set: PodSet
    count: int
    amounts: Mapping[str, int]


def remaining_count(workload: Workload, pod_set: PodSet, settings: Settings) -> int:
    """Return how many pods of `pod_set` still need places."""
    if not settings.gates.reclaimable_pods:
        return pod_set.count
    return pod_set.count - min(pod_set.count, workload.reclaimable.get(pod_set.name, 0))


def pod_set_requests(
    workload: Workload, settings: Settings, counts: Sequence[int] | None = None
) -> list[PodSetRequest]:
    """Return what each pod set requests, with reduced `counts` where given."""
    found = []
    for position, pod_set in enumerate(workload.pod_sets):
        count = remaining_count(workload, pod_set, settings)
        if counts is not None:
            count = min(count, counts[position])
        amounts = {
            resource: min(UNLIMITED, max(0, amount) * count)
            for resource, amount in pod_set.requests.items()
        }
        found.append(PodSetRequest(pod_set, count, amounts))
    return found


def held_amounts(workload: Workload, settings: Settings) -> Iterator[tuple[FlavorResource, int]]:
    """Yield what an admitted workload holds by flavor and resource, also zeros."""
    assert workload.admission is not None
    left = {
        pod_set.name: remaining_count(workload, pod_set, settings) for pod_set in workload.pod_sets
    }
    for admitted in workload.admission.pod_sets:
        count = left.get(admitted.name, admitted.count)
        for resource, flavor in admitted.flavors.items():
            amount = max(0, admitted.usage.get(resource, 0))
            if count < admitted.count:
                amount = amount // admitted.count * count
            yield FlavorResource(flavor, resource), amount
