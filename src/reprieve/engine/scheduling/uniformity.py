"""Whether the pods of a group agree with each other and with the group (specification 4.1).

Every queued pod of the unit and every placed pod of the group is looked at; per pod, in this order:
1. the scheduler name of the first queued pod;
2. the group's priority, as a number;
3. the preemption policy: the group's with gate PodGroupPreemptionPolicy, else the first pod's;
4. a profile for that scheduler name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from reprieve.engine.cluster.rows import GroupRow, PodClass
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.outcome import Explanation, Sentence

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
    for entry, priority in _pods(snapshot, group, queued):
        if entry.scheduler_name != reference.scheduler_name:
            names = (entry.scheduler_name, reference.scheduler_name)
            return Explanation(Sentence.SCHEDULER_NAMES, names)
        if priority != group.priority:
            return Explanation(Sentence.PRIORITIES, (priority, group.priority))
        if entry.preempts != wanted:
            return Explanation(sentence, (POLICIES[entry.preempts], POLICIES[wanted]))
        if policy.profile(entry.scheduler_name) is None:
            return Explanation(Sentence.NO_PROFILE, (entry.scheduler_name,))
    return None


def _pods(
    snapshot: Snapshot, group: GroupRow, queued: Sequence[Pending]
) -> Iterator[tuple[PodClass, int]]:
    for pending in queued:
        yield _class_of(snapshot, pending.pod_class), pending.row.priority
    index = snapshot.group_index.get(f"{group.namespace}/{group.name}", -1)
    placed = np.flatnonzero((snapshot.pod_group == index) & (snapshot.pod_node >= 0))
    for slot in sorted(placed.tolist(), key=lambda slot: snapshot.pod_keys[slot]):
        number = int(snapshot.pod_class[slot])
        yield _class_of(snapshot, number), int(snapshot.pod_priority[slot])


def _class_of(snapshot: Snapshot, number: int) -> PodClass:
    entry = snapshot.classes[number]
    assert entry is not None, "a pod's class is never free"
    return entry
