"""What holds quota, kept up to date by one change at a time.

`Holdings` belongs to the caller that feeds it events. An admission or a release costs the depth of
the tree plus one insertion into a sorted list (`holders`); nothing is rebuilt unless the
configuration changes. A `Snapshot` copies the columns and shares the lists, which are copied before
the next change.

Source: specification of the quota plane, sections 2, 3.2 and 6.3.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.engine.lost_work import is_device
from reprieve.engine.quota.assigning.checks import required_checks
from reprieve.engine.quota.assigning.requests import held_amounts
from reprieve.engine.quota.holdings.amounts import UNLIMITED
from reprieve.engine.quota.holdings.holders import (
    Borrowers,
    Gathered,
    Holder,
    Kind,
    Lists,
    effective_priority,
    row_of,
)
from reprieve.engine.quota.holdings.inactive import inactive_queues
from reprieve.engine.quota.holdings.placed import placed_by, places_of
from reprieve.engine.quota.holdings.reckoning import Reckoning
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.tree import Column, Tree, add, remove
from reprieve.engine.quota.model import (
    Check,
    Configuration,
    Eviction,
    FlavorResource,
    Reason,
    Workload,
)
from reprieve.engine.quota.targets.harm import UNRESERVED, unsaved_since
from reprieve.engine.quota.waiting.timing import queue_timestamp
from reprieve.engine.topology.places import Grounds, NodeUse, Places

__all__ = ["Holdings"]

_MOST_KINDS: Final = 50_000


class Holdings:
    """The workloads that hold quota, and the usage that follows from them."""

    def __init__(self, configuration: Configuration) -> None:
        self._holders: dict[str, Holder] = {}
        self._homeless: dict[str, Workload] = {}
        self._expected: dict[str, tuple[str, Eviction, Eviction]] = {}
        self._unready: set[str] = set()
        self._protected: set[str] = set()
        self.generations: dict[str, int] = {}
        self.local_queue_usage: dict[str, float] = {}
        self._grounds: Grounds | None = None
        self._unhealthy: set[str] = set()
        self._delayed: set[str] = set()
        self._version = 0
        self.configure(configuration)

    def configure(self, configuration: Configuration) -> None:
        """Apply a new configuration: the only change that rebuilds."""
        workloads = [each.workload for each in self._holders.values()]
        self.configuration = configuration
        self._version += 1
        used = {pair for each in workloads for pair in _pairs(each)}
        self.tree = Tree(
            configuration.cluster_queues,
            configuration.cohorts,
            inactive_queues(configuration),
            used,
        )
        self.reckoning = Reckoning(configuration, self.tree)
        self._related: dict[int, list[str]] = {}
        for name, node in self.tree.queues.items():
            if self.tree.path[node]:
                self._related.setdefault(self.tree.root(node), []).append(name)
        size = len(self.tree.names)
        self.usage: list[Column] = [[0] * size for _ in self.tree.flavor_resources]
        self._lists: list[Lists] = [{} for _ in self.tree.queues]
        self._own: set[int] = set(range(len(self._lists)))
        self._kinds: dict[tuple[str, str, int], Kind] = {}
        self._places = places_of(configuration, self._grounds)
        self._borrowers: Borrowers = {}
        # Those of them that no snapshot shares.
        self._unshared: dict[int, dict[int, Gathered]] = {}
        self._versions: dict[int, int] = {}  # by root
        self._queue_versions = [self._version] * len(self._lists)
        self._holders = {}
        self._unready, self._protected = set(), set()
        self._unhealthy, self._delayed = set(), set()
        for name in configuration.cluster_queues:
            self.generations[name] = self.generations.get(name, 0) + 1
        # Those whose ClusterQueue was deleted count again when it comes back.
        homeless, self._homeless = self._homeless, {}
        for workload in (*workloads, *homeless.values()):
            self.hold(workload)

    def stand_on(self, grounds: Grounds) -> None:
        """Apply the nodes, and the pods on them that no topology has placed, as they are now."""
        self._grounds = grounds
        self._places = places_of(self.configuration, grounds)
        if self._places is None:
            return
        self._version += 1
        for root in {path[-1] for path in self.tree.path if path}:
            self._versions[root] = self._version
        for key, holder in self._holders.items():
            placed = placed_by(holder.workload, holder.workload.admission, self._places)
            self._holders[key] = again = replace(holder, placed=tuple(placed))
            self._places.change(placed, 1)
            rows = self._rows(holder.queue)[holder.evicted, holder.columns]
            rows[bisect_left(rows, row_of(holder))] = row_of(again)

    def stand_beside(self, other: Holdings, gone: Iterable[NodeUse]) -> None:
        """Apply the nodes of others, without these pods; no workload holds quota here yet."""
        self._grounds = other.grounds
        self._places = None if other.places is None else other.places.emptied()
        if self._places is not None:
            self._places.free(gone)

    @property
    def grounds(self) -> Grounds | None:
        """Return the nodes that places are on, None where none were handed over."""
        return self._grounds

    @property
    def places(self) -> Places | None:
        """Return the nodes of flavors with topologies; callers that keep them use a snapshot."""
        return self._places

    @property
    def holders(self) -> Mapping[str, Holder]:
        """Return who holds quota, by key."""
        return self._holders

    @property
    def lists(self) -> Sequence[Lists]:
        """Return rows of holders, by ClusterQueue; callers that keep them use a snapshot."""
        return self._lists

    @property
    def version(self) -> int:
        """Return a number that is another one after each change."""
        return self._version

    def version_of(self, queue: int) -> int:
        """Return the version at which a holder came to a ClusterQueue, or left it, last."""
        return self._queue_versions[queue]

    def hold(self, workload: Workload) -> None:
        """Count a workload that holds quota, in place of what was known of it.

        Raises:
            ValueError: it has no admission.
        """
        if workload.admission is None:
            raise ValueError(f"workload {workload.key} has no admission")
        self._version += 1
        queue = self.tree.queues.get(workload.admission.cluster_queue)
        workload = self._overlaid(workload)
        self._drop(workload.key)
        if queue is None:
            self._homeless[workload.key] = workload
            return
        holder = self.holder(workload, queue)
        self._holders[workload.key] = holder
        if not workload.pods_ready:
            self._unready.add(workload.key)
        if workload.preempt_min_runtime_s or workload.reclaim_min_runtime_s:
            self._protected.add(workload.key)
        path = self.tree.path[queue] or (queue,)
        for column, amount in holder.held:
            add(self.tree.local[column], self.usage[column], path, amount)
        if self._places is not None:
            self._places.change(holder.placed, 1)
        if workload.unhealthy_nodes:
            self._unhealthy.add(workload.key)
        if workload.admission is not None and any(e.delayed for e in workload.admission.pod_sets):
            self._delayed.add(workload.key)
        self._changed(path, holder.columns)
        insort(self._rows(queue).setdefault((holder.evicted, holder.columns), []), row_of(holder))

    def release(self, key: str) -> None:
        """Forget a workload; one that is not known changes nothing."""
        self._expected.pop(key, None)
        holder = self._holders.get(key)
        if holder is not None:
            self.generations[self.tree.names[holder.queue]] += 1
        self._drop(key)

    def expect_eviction(self, key: str, reason: Reason, now: Nanos) -> None:
        """Count a workload as evicted from now on, before its own condition states so."""
        holder = self._holders[key]
        if not holder.evicted:
            marks = (Eviction("Preempted", now), Eviction(reason, now))
            self._expected[key] = (holder.workload.uid, *marks)
            self.hold(holder.workload)

    def eviction_failed(self, key: str) -> None:
        """Undo `expect_eviction`: the eviction could not be written."""
        if self._expected.pop(key, None) is not None and key in self._holders:
            workload = self._holders[key].workload
            self.hold(replace(workload, evicted=None, preempted=None))

    def eviction_expected(self, key: str) -> bool:
        """Return whether an eviction was issued that was not observed yet."""
        return key in self._expected

    def related(self, cluster_queue: str) -> list[str]:
        """Return the ClusterQueues of its tree: whose heads may fit once it uses less."""
        node = self.tree.queues.get(cluster_queue)
        if node is None or not self.tree.path[node]:
            return []
        return self._related.get(self.tree.root(node), [])

    @property
    def all_ready(self) -> bool:
        """Whether the pods of everything that was admitted are ready."""
        return not self._unready

    @property
    def unhealthy(self) -> list[str]:
        """Return the keys of those of whose places a node failed, in order."""
        return sorted(self._unhealthy)

    @property
    def awaits_places(self) -> list[str]:
        """Return the keys of those whose checks are ready, and whose pods have no places yet."""
        return sorted(key for key in self._delayed if self._passed_checks(self._holders[key]))

    def _passed_checks(self, holder: Holder) -> bool:
        workload = holder.workload
        queue = self.configuration.cluster_queues[self.tree.names[holder.queue]]
        return (
            not holder.evicted
            and not workload.finished
            and all(state is Check.READY for state in workload.checks.values())
            and workload.checks.keys() >= {*required_checks(queue, workload.admission)}
        )

    @property
    def protects(self) -> bool:
        """Whether anything has a minimum runtime."""
        return bool(self._protected)

    def _overlaid(self, workload: Workload) -> Workload:
        expected = self._expected.get(workload.key)
        if expected is None:
            return workload
        uid, evicted, preempted = expected
        if workload.uid != uid or (workload.evicted and workload.evicted != evicted):
            del self._expected[workload.key]
            return workload
        return replace(workload, evicted=evicted, preempted=preempted)

    def _drop(self, key: str) -> None:
        self._homeless.pop(key, None)
        self._unready.discard(key)
        self._unhealthy.discard(key)
        self._delayed.discard(key)
        self._protected.discard(key)
        holder = self._holders.pop(key, None)
        if holder is None:
            return
        self._version += 1
        path = self.tree.path[holder.queue] or (holder.queue,)
        for column, amount in holder.held:
            remove(self.tree.local[column], self.usage[column], path, amount)
        if self._places is not None:
            self._places.change(holder.placed, -1)
        self._changed(path, holder.columns)
        lists = self._rows(holder.queue)
        name = (holder.evicted, holder.columns)
        rows = lists[name]
        del rows[bisect_left(rows, row_of(holder))]
        if not rows:
            del lists[name]

    def snapshot(self) -> Snapshot:
        """Return a copy that later changes do not reach."""
        self._own.clear()
        self._unshared.clear()
        for column in range(len(self.usage)):
            self._borrowers.setdefault(column, {})
        return Snapshot(
            self.configuration,
            self.tree,
            [column[:] for column in self.usage],
            self._lists[:],
            dict(self.local_queue_usage),
            self.reckoning,
            self._version,
            self._borrowers.copy(),
            self._versions.copy(),
            None if self._places is None else self._places.copy(),
        )

    def holder(self, workload: Workload, queue: int) -> Holder:
        """Return the workload as a holder in a ClusterQueue."""
        held: dict[int, int] = {}
        columns = set()
        settings = self.configuration.settings
        for pair, amount in held_amounts(workload, settings):
            column = self.tree.column(pair)
            columns.add(column)
            held[column] = held.get(column, 0) + amount
        while len(self.usage) < len(self.tree.flavor_resources):
            self.usage.append([0] * len(self.tree.names))
        return Holder(
            workload,
            workload.key,
            queue,
            effective_priority(workload, settings),
            queue_timestamp(workload, settings),
            workload.evicted is not None,
            workload.idle and settings.idle_first,
            unsaved_since(workload) if settings.harm_order else _reserved(workload),
            tuple((column, min(amount, UNLIMITED)) for column, amount in held.items() if amount),
            frozenset(columns),
            sum(
                min(amount, UNLIMITED)
                for column, amount in held.items()
                if is_device(self.tree.flavor_resources[column].resource)
            ),
            self._kind(
                workload.namespace, self.tree.names[queue], effective_priority(workload, settings)
            ),
            ()
            if self._places is None
            else tuple(placed_by(workload, workload.admission, self._places)),
        )

    def _kind(self, *said: *tuple[str, str, int]) -> Kind:
        found = self._kinds.get(said)
        if found is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            found = self._kinds[said] = Kind(*said)
        return found

    def _changed(self, path: Sequence[int], columns: Iterable[int]) -> None:
        """Forget what was found out about the nodes above a holder that comes or leaves."""
        self._versions[path[-1]] = self._queue_versions[path[0]] = self._version
        unshared = self._unshared
        for column in columns:
            known = unshared.get(column)
            if known is None:
                # A snapshot continues to fill what it shares.
                known = self._borrowers.get(column, {}).copy()
                self._borrowers[column] = unshared[column] = known
            if known:
                for node in path:
                    known.pop(node, None)

    def _rows(self, queue: int) -> Lists:
        """Return the lists of a ClusterQueue, copied first if a snapshot shares them."""
        if queue not in self._own:
            self._own.add(queue)
            self._lists[queue] = {name: rows[:] for name, rows in self._lists[queue].items()}
        return self._lists[queue]


def _reserved(workload: Workload) -> int:
    return UNRESERVED if workload.reserved_at is None else int(workload.reserved_at)


def _pairs(workload: Workload) -> Iterable[FlavorResource]:
    assert workload.admission is not None
    for pod_set in workload.admission.pod_sets:
        for resource, flavor in pod_set.flavors.items():
            yield FlavorResource(flavor, resource)
