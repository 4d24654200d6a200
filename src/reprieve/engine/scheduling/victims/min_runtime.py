"""Work that has just started is no victim for as long as it requests (`maxMinRuntime`).

What counts for a pod, the first that states something:
1. the annotation `reprieve.dev/preempt-min-runtime` of its PodGroup, or of the nearest composite
   group above that; of the pod itself if it is in no group;
2. that of its PriorityClass;
3. that of its namespace.
It counts up to `maxMinRuntime`. What cannot be read states nothing.

Time counts from the earliest start of the pods that are there of its group, or of all that are
evicted with it as a whole, and the longest time of any of these holds: a pod that is started again
protects no work anew. What has not started yet, or starts in the future, has nothing to lose; what
is on its way out is not kept, and no part of a whole (with `nonUniformGroups`: of a group) that is
being preempted. So no work is protected for longer than the limit after its first pod has started.
Source: KEP-5710, "Future extensions".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import numpy as np

from reprieve.engine.cluster.arrays import I32, I64, Mask
from reprieve.engine.cluster.rows import GroupRow, Kind, NamespaceRow, PriorityClassRow
from reprieve.engine.cluster.snapshot import NO_START, Flag, Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.outcome import Spared
from reprieve.engine.scheduling.victims.hierarchy import effective_priority, trees_of, whole_groups

__all__ = ["protected_until", "spared_by", "work_of"]

_UNSTATED: Final = -1
_Row: TypeAlias = GroupRow | NamespaceRow | PriorityClassRow


def protected_until(
    snapshot: Snapshot, policy: Policy, now: int, together: Iterable[I64] = ()
) -> I64 | None:
    """Return when each pod may be a victim again, 0 where it may be now: (slots,) Unix seconds.

    None where no work is protected. `together`: slots of pods in no group that are evicted as a
    whole.
    """
    if not policy.max_min_runtime:
        return None
    seconds = _seconds(snapshot, policy)
    if not seconds.any():
        return None
    there = snapshot.pod_node >= 0
    flags = snapshot.pod_flags
    work, as_one, count = work_of(snapshot, policy, together)
    begin = np.full(count, NO_START, np.int64)
    np.minimum.at(begin, work[there], snapshot.pod_start[there])
    longest = np.zeros(count, np.int64)
    np.maximum.at(longest, work[there], seconds[there])
    going = np.zeros(count, np.bool_)
    going[work[there & (flags & Flag.PREEMPTED > 0)]] = True
    out = np.where(as_one, going[work], flags & Flag.DELETING > 0)
    start = begin[work]
    started = there & (start <= now) & ~out
    end = np.where(started, start, 0) + longest[work]
    until: I64 = np.where(started & (end > now), end, 0)
    return until


def spared_by(
    snapshot: Snapshot, policy: Policy, until: I64 | None, below: int, *, groups: bool = True
) -> Spared | None:
    """Return which of lower priority are protected, None for none. `groups`: their priority counts.

    `until`: as in `protected_until`.
    """
    if until is None:
        return None
    priority = effective_priority(snapshot, policy) if groups else snapshot.pod_priority
    ends = until[(until > 0) & (priority < below)]
    return Spared(len(ends), int(ends.min())) if len(ends) else None


def work_of(
    snapshot: Snapshot, policy: Policy, together: Iterable[I64] = ()
) -> tuple[I64, Mask, int]:
    """Return the work that each pod belongs to, as a number, and whether it may be evicted as one.

    Both are (slots,); with how many numbers there are.
    """
    groups: I32 | I64 = snapshot.pod_group
    if not policy.gates.generic_workload:
        groups = np.full(len(groups), -1, np.int64)
    units = whole_groups(snapshot, policy)[groups]
    known = len(snapshot.group_rows)
    alone = known + np.arange(len(groups))
    work = np.where(units >= 0, units, np.where(groups >= 0, groups, alone)).astype(np.int64)
    as_one = units >= 0
    if policy.non_uniform_groups:
        as_one |= groups >= 0
    for number, slots in enumerate(together, known + len(groups)):
        work[slots] = number
        as_one[slots] = True
    return work, as_one, int(work.max(initial=-1)) + 1


def _seconds(snapshot: Snapshot, policy: Policy) -> I64:
    """Return the minimum runtime of each pod, capped: (slots,)."""
    tables = snapshot.tables
    classes = tables.get(Kind.PRIORITY_CLASS, {})
    namespaces = tables.get(Kind.NAMESPACE, {})
    column = snapshot.label_facts.namespaces
    # Number -1 reads the last entry.
    of_namespace = np.array(
        [*(_stated((namespaces.get(("", name)),)) for name in column.values), _UNSTATED], np.int64
    )[column.numbers]
    names = ("" if entry is None else entry.priority_class for entry in snapshot.classes)
    of_class = np.array([_stated((classes.get(("", name)),)) for name in names], np.int64)
    found = of_namespace[snapshot.pod_labels]
    named = of_class[snapshot.pod_class]
    found = np.where(named >= 0, named, found)
    groups = snapshot.pod_group
    in_group = np.zeros(len(groups), np.bool_)
    if policy.gates.generic_workload:
        trees = trees_of(snapshot, policy)
        rows = snapshot.group_rows
        ways = ((g,) if trees is None else trees.up(g) for g in range(len(rows)))
        said = [_stated(rows[group] for group in way) for way in ways]
        of_group = np.array([*said, _UNSTATED], np.int64)[groups]
        found = np.where(of_group >= 0, of_group, found)
        in_group = groups >= 0
    for slot, own in snapshot.min_runtimes.items():
        if own >= 0 and not in_group[slot]:
            found[slot] = own
    capped: I64 = np.clip(found, 0, policy.max_min_runtime)
    return capped


def _stated(rows: Iterable[_Row | None]) -> int:
    """Return the first minimum runtime that these rows state, -1 where none does."""
    said = (row.min_runtime for row in rows if row is not None)
    return next((each for each in said if each is not None and each >= 0), _UNSTATED)
