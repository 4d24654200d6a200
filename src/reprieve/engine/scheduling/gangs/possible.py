"""Possible victims of a job, and what each node would cost.

Every pod below the trigger's priority that no label protects may be preempted, whatever owns it.
The cost of a node counts possible victims, not those that are evicted in the end: priorities that
occur are ranked from 0, and each job (`questioned-object-key`; pods without one are one job) pays
the rank of its first victim. The reference uses the first in the order of its node cache, which
differs from run to run; here it is the most important one. Source: specification of gang jobs, 1.3,
7.1, 7.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.scheduling.gangs.job import JobPolicy

__all__ = ["JOB_KEY", "Possible", "possible_victims", "protected_labels"]

JOB_KEY: Final = "scheduling.koordinator.sh/questioned-object-key"
_PREEMPTIBLE: Final = ("quota.scheduling.koordinator.sh/preemptible", "false")
_DISABLED: Final = ("scheduling.koordinator.sh/disable-preemptible", "true")
_QUOTA: Final = "quota.scheduling.koordinator.sh/name"
_DENSE: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class Possible:
    """`slots`: (victims,). `job`: (slots,) rank of each pod's job key, ascending by text.

    `cost`: (nodes,), 0 where no pod could be evicted. `here`: (nodes,) whether any pod could be.
    """

    slots: I64
    job: I64
    cost: I64
    here: Mask


def protected_labels(snapshot: Snapshot, policy: JobPolicy) -> Mask:
    """Return which label sets protect their pods: (labels,)."""
    facts = snapshot.label_facts
    found = np.zeros(len(snapshot.labels), np.bool_)
    protecting = [(_PREEMPTIBLE[0], {_PREEMPTIBLE[1]}), (_DISABLED[0], {_DISABLED[1]})]
    if policy.protected_quotas:
        protecting.append((_QUOTA, set(policy.protected_quotas)))
    for key, texts in protecting:
        column = facts.label(key)
        numbers = [n for n, value in enumerate(column.values) if value in texts]
        if numbers:
            found |= np.isin(column.numbers, numbers)
    if policy.protected_namespaces:
        column = facts.namespaces
        names = policy.protected_namespaces
        found |= np.isin(column.numbers, [n for n, v in enumerate(column.values) if v in names])
    return found


def possible_victims(
    snapshot: Snapshot, present: Mask, below: int, nodes: Mask, policy: JobPolicy
) -> Possible:
    """Return who could be preempted on these nodes.

    `present`: (slots,) pods that are there and may be chosen. `nodes`: (nodes,) candidates.
    """
    chosen = present & (snapshot.pod_priority < below)
    protected = protected_labels(snapshot, policy)
    if protected.any():
        chosen &= ~protected[snapshot.pod_labels]
    if not nodes.all():
        chosen &= nodes[snapshot.pod_node]
    slots = np.flatnonzero(chosen)
    column = snapshot.label_facts.label(JOB_KEY)
    # Ranks by text, so that they also order victims; pods without a key come first.
    order = sorted(range(len(column.values)), key=column.values.__getitem__)
    ranks = np.zeros(len(column.values) + 1, np.int64)
    ranks[order] = np.arange(1, len(order) + 1)
    job = ranks[column.numbers][snapshot.pod_labels]  # number -1 reads the last entry, 0
    cost, here = _cost(snapshot, slots, job[slots])
    return Possible(slots, job, cost, here)


def _cost(snapshot: Snapshot, slots: I64, job: I64) -> tuple[I64, Mask]:
    nodes = len(snapshot.nodes)
    node = snapshot.pod_node[slots].astype(np.int64)
    here = np.zeros(nodes, np.bool_)
    here[node] = True
    if not len(slots):
        return np.zeros(nodes, np.int64), here
    rank = np.unique(snapshot.pod_priority[slots], return_inverse=True)[1].astype(np.int64)
    jobs = int(job.max()) + 1
    if nodes * jobs <= _DENSE:
        best = np.zeros(nodes * jobs, np.int64)
        np.maximum.at(best, node * jobs + job, rank)
        return best.reshape(nodes, jobs).sum(axis=1), here
    pairs, place = np.unique(node * jobs + job, return_inverse=True)
    best = np.zeros(len(pairs), np.int64)
    np.maximum.at(best, place, rank)
    cost = np.zeros(nodes, np.int64)
    np.add.at(cost, pairs // jobs, best)
    return cost, here
