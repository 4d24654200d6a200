"""PreEnqueue: which pods may not be tried yet, checked on the way into active and backoff.

In the order of the plugins: scheduling gates, a preemption that is being carried out, claims that
are missing or being deleted, the gang's pods; of a tree, as many groups as it needs with as many
pods as they need. A group is refused when any member is. Source: specification 5.1, 9.4, 21.9 and
22; KEP-6012, "GangScheduling Plugin Changes".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from reprieve.engine.cluster.rows import COMPOSITE, GroupRow, PodRow
from reprieve.engine.cluster.trees import Way
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.scheduling.queueing.entries import Gate
from reprieve.engine.scheduling.queueing.events import DEFAULT_PREEMPTION, GANG, GATES
from reprieve.engine.scheduling.queueing.hints import Known

__all__ = ["Facts", "Groups", "no_composite", "no_group", "refusal", "tree_of"]


class Groups(Protocol):
    """Which groups there are now, and which stand below which."""

    def group(self, key: str) -> GroupRow | None:
        """Return the group of a key (`GroupRow.key`)."""
        ...

    def root(self, key: str) -> tuple[Way, str]:
        """Return where the way up from a pod group ends, and with which key (`Forest.root`)."""
        ...

    def children(self, key: str) -> Sequence[str]:
        """Return the keys of a composite group's children."""
        ...


class Facts(Groups, Known, Protocol):
    """What PreEnqueue and hints query about the cluster as it is now."""

    def known(self, key: str) -> int:
        """Return how many pods of the group exist: placed, assumed and pending."""
        ...

    def claims(self, pod: PodRow) -> str:
        """Return why a claim of the pod cannot be used yet, empty when all can."""
        ...

    def gang_key(self, pod: PodRow) -> str:
        """Return the key of the entry of a pod of an older API's gang, empty for its own."""
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
    if found.composite:
        if _quorum(facts, found):
            return None
        text = f'waiting for composite pod group "{found.name}" tree to meet quorum'
        return Gate(GANG, text)
    if found.min_count is not None and facts.known(group) < found.min_count:
        return Gate(GANG, "waiting for minCount pods from a gang to appear in scheduling queue")
    return None


def _quorum(facts: Facts, group: GroupRow) -> bool:
    """Whether as many pods, or children with a quorum, are known as the group needs."""
    if group.composite:
        children = (facts.group(key) for key in facts.children(group.key))
        got = sum(child is not None and _quorum(facts, child) for child in children)
    else:
        got = facts.known(group.key)
    return got >= (1 if group.min_count is None else group.min_count)


def tree_of(facts: Groups, root: str) -> frozenset[str]:
    """Return the pod groups below a composite group, nothing for a pod group."""
    if not root.startswith(COMPOSITE):
        return frozenset()
    below = (tree_of(facts, child) or {child} for child in facts.children(root))
    return frozenset(key for keys in below for key in keys)


def no_composite(key: str) -> Gate:
    """Return the refusal of a pod in whose tree a composite group is unknown."""
    name = key.partition("/")[2]
    return Gate(GANG, f'waiting for composite pod group "{name}" to appear in scheduling queue')


def no_group(key: str) -> Gate:
    """Return the refusal of a pod whose group object is unknown."""
    name = key.partition("/")[2]
    return Gate(GANG, f'waiting for pods\'s pod group "{name}" to appear in scheduling queue')
