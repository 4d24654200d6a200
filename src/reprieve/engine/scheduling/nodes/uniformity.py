"""Whether the pods of a group agree with each other and with the group (specification 4.1).

Every queued pod of the unit and every placed pod of the group, or of the tree, is looked at; per
pod, in this order:
1. the scheduler name of the first queued pod;
2. the group's priority, as a number; in a tree the root's, or with `CompositePriority.NEAREST` that
   of the pod's own group;
3. the preemption policy: the group's with gate PodGroupPreemptionPolicy, else the first pod's;
4. a profile for that scheduler name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reprieve.engine.cluster.rows import GroupRow, PodClass
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.outcome import Explanation, Sentence
from reprieve.engine.scheduling.victims.hierarchy import group_priority, members_of

__all__ = ["POLICIES", "disagreement"]

POLICIES = {True: "PreemptLowerPriority", False: "Never"}


def disagreement(
    snapshot: Snapshot, group: GroupRow, queued: Sequence[Pending], policy: Policy
) -> Explanation | None:
    """Return the first thing that the pods disagree about, or None.

    Values of the explanation: what the offending pod has, and what it should have.
    """
    first = queued[0]
    reference = _class_of(snapshot, first.pod_class)
    by_group = policy.gates.pod_group_preemption_policy
    wanted = group.preempts if by_group else reference.preempts
    sentence = Sentence.POLICIES_OF_GROUP if by_group else Sentence.POLICIES_OF_PODS
    for entry, priority, leaf in _pods(snapshot, group, queued):
        expected = group.priority
        if group.composite:
            expected = group_priority(snapshot, policy, leaf) or 0
        if entry.scheduler_name != reference.scheduler_name:
            names = (entry.scheduler_name, reference.scheduler_name)
            return Explanation(Sentence.SCHEDULER_NAMES, names)
        if priority != expected:
            return Explanation(Sentence.PRIORITIES, (priority, expected))
        if entry.preempts != wanted:
            return Explanation(sentence, (POLICIES[entry.preempts], POLICIES[wanted]))
        if policy.profile(entry.scheduler_name) is None:
            return Explanation(Sentence.NO_PROFILE, (entry.scheduler_name,))
    return None


def _pods(
    snapshot: Snapshot, group: GroupRow, queued: Sequence[Pending]
) -> Iterator[tuple[PodClass, int, int]]:
    """Yield class, own priority and group of each pod."""
    for pending in queued:
        leaf = snapshot.group_index.get(f"{pending.row.namespace}/{pending.row.group}", -1)
        yield _class_of(snapshot, pending.pod_class), pending.row.priority, leaf
    placed = members_of(snapshot, group).tolist()
    for slot in sorted(placed, key=lambda slot: snapshot.pod_keys[slot]):
        entry = _class_of(snapshot, int(snapshot.pod_class[slot]))
        yield entry, int(snapshot.pod_priority[slot]), int(snapshot.pod_group[slot])


def _class_of(snapshot: Snapshot, number: int) -> PodClass:
    entry = snapshot.classes[number]
    assert entry is not None, "a pod's class is never free"
    return entry
