"""PreEnqueue: which pods may not be tried yet, asked on the way into active and backoff.

In the order of the plugins: scheduling gates, a preemption that is being carried out, claims that
are missing or being deleted, the gang's pods. A group is refused when any member is. Source:
specification 5.1, 9.4, 21.9 and 22.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from reprieve.engine.cluster.rows import GroupRow, Labels, PodRow
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.scheduling.queue_entries import Gate
from reprieve.engine.scheduling.queue_events import DEFAULT_PREEMPTION, GANG, GATES

__all__ = ["Facts", "no_group", "refusal"]


class Facts(Protocol):
    """What PreEnqueue and hints ask about the cluster as it is now."""

    def group(self, key: str) -> GroupRow | None:
        """Return the group object of namespace/name."""
        ...

    def known(self, key: str) -> int:
        """Return how many pods of the group exist: placed, assumed and pending."""
        ...

    def claims(self, pod: PodRow) -> str:
        """Return why a claim of the pod cannot be used yet, empty when all can."""
        ...

    def namespace_labels(self, namespace: str) -> Labels:
        """Return the labels of a namespace."""
        ...

    def gang_key(self, pod: PodRow) -> str:
        """Return the key of the entry of a pod of an older front door's gang, empty for its own."""
        ...


def refusal(facts: Facts, group: str, pods: Iterable[PodRow], *, held: bool) -> Gate | None:
    """Return what refuses the first of the pods that is refused.

    `group`: namespace/name, empty for a plain pod; `held`: their preemption is being carried out.
    """
    for row in pods:
        if row.gates:
            return Gate(GATES, f"waiting for scheduling gates: [{' '.join(row.gates)}]")
        if held:
            what = "pod group" if group else "pod"
            message = f"waiting for the preemption for this {what} to be finished"
            return Gate(DEFAULT_PREEMPTION, message)
        claims = facts.claims(row) if row.claims else ""
        if claims:
            return Gate(FilterName.DYNAMIC_RESOURCES, claims)
    if not group:
        return None
    found = facts.group(group)
    if found is None:
        return no_group(group)
    if found.min_count is not None and facts.known(group) < found.min_count:
        return Gate(GANG, "waiting for minCount pods from a gang to appear in scheduling queue")
    return None


def no_group(key: str) -> Gate:
    """Return the refusal of a pod whose group object is unknown."""
    name = key.partition("/")[2]
    return Gate(GANG, f'waiting for pods\'s pod group "{name}" to appear in scheduling queue')
