"""Which workloads hold quota and which wait, kept equal to what the watches show.

Changes are noted as keys and applied by `settle`, between two runs of cycles: while the solver
thread decides, no other code touches `holdings` and `queues` (`engine`). What this process wrote
and no watch has shown yet lies over the caches. A workload whose admission is being written is left
as the cycle set it until the write has ended.

A Workload that cannot be applied for a fault of ours is set aside and tried again later, longer
each time; while it holds quota that is not counted nothing is decided in its tree. Source: the
design's "State that can be trusted".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.api import kueue
from reprieve.api.reprieve import ObjectRef
from reprieve.engine.disruptions.lineage import Participant
from reprieve.engine.quota.assigning.requests import held_amounts
from reprieve.engine.quota.holdings.placed import queues_with_places
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.holdings.usage_based import Consumptions
from reprieve.engine.quota.model import Configuration, Workload
from reprieve.engine.quota.waiting.faults import Faults
from reprieve.engine.quota.waiting.queueing import held_places, offers_alike
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.intake.quota_workloads import (
    PodSetRows,
    condition_of,
    is_condition_true,
    workload_row,
)
from reprieve.kube.objects import version_number
from reprieve.kube.overlay import Unseen
from reprieve.planes.quota.configuring import ConfigurationReader, rules_of, stated_by
from reprieve.planes.quota.context import QuotaContext, log, reference_of
from reprieve.planes.quota.deciding.idle_facts import IdleFacts
from reprieve.planes.quota.deciding.notice_facts import NoticeFacts
from reprieve.planes.quota.deciding.protections import Protections
from reprieve.planes.quota.job_reconciler.lineages import Lineages
from reprieve.planes.quota.pod_reconcilers.pod_facts import PodFacts
from reprieve.planes.quota.queue_status.tallies import Tallies, standing_of
from reprieve.planes.quota.watches import Held, HeldWatch, Watches
from reprieve.telemetry.capped_names import OTHER
from reprieve.telemetry.quota import Place
from reprieve.wording.kueue import decision_failed

__all__ = ["QuotaState", "key_of", "states_cause"]


def key_of(workload: kueue.Workload) -> str:
    """Return `namespace/name`."""
    return f"{workload.metadata.namespace}/{workload.metadata.name}"


def states_cause(workload: kueue.Workload) -> bool:
    """Return whether a Workload that waits states why, rightly or not any more."""
    condition = condition_of(workload.status.conditions, "QuotaReserved")
    return condition is not None and condition.reason != "PendingEvaluation"


class QuotaState:
    """The engine's state and its feed.

    `changed` is called with Workloads, `woken` on any change.
    """

    def __init__(
        self,
        context: QuotaContext,
        watches: Watches,
        changed: Callable[[str], None],
        woken: Callable[[], None],
    ) -> None:
        self._context = context
        self._watches = watches
        self._changed = changed
        self._woken = woken
        self._pods = PodFacts(context, watches, lambda each: self._reread(key_of(each)))
        self.protections = Protections(context, watches)
        self.lineages = Lineages(watches)
        self.idle = IdleFacts(context, self._reread)
        self.reported = NoticeFacts(context, self.protections, self.lineages, self._reread)
        self._written: Unseen[str, kueue.Workload] = Unseen()
        # The row of each Workload that was requested last and is not finished.
        self._row_of: dict[str, tuple[kueue.Workload, Workload]] = {}
        self._dirty: dict[str, None] = {}
        self._stale = True
        self._configured = ConfigurationReader(context, watches)
        # Workloads that could not be applied: how often in a row, and when to try again.
        self._faults = Faults()
        # Of these those with quota that is not counted, and the ClusterQueue that it is of.
        self._uncounted: dict[str, str] = {}
        # ClusterQueues that place pods on nodes which are not known yet.
        self.unplaced: frozenset[str] = frozenset()
        # Workloads that wait and do not state why.
        self.unexplained: set[str] = set()
        # Workloads whose admission is on its way to the API server.
        self.deciding: set[str] = set()
        self.configuration = Configuration(settings=context.options.settings)
        self.holdings = Holdings(self.configuration)
        self.queues = Queues(self.configuration)
        self.tallies = Tallies()
        # What LocalQueues used, where admission fair sharing is on.
        self.consumptions: Consumptions | None = None
        # Called between two runs of cycles, before changes are applied.
        self.settlers: list[Callable[[], None]] = []
        # Called with every change of a Workload that the watch shows.
        self.listeners: list[
            Callable[[Held[kueue.Workload] | None, Held[kueue.Workload] | None], None]
        ] = []
        # Called with every Workload that was applied; one that is deleted or finished has no row.
        self.took: Callable[[str, kueue.Workload | None, Workload | None], None] = (
            lambda key, found, row: None
        )
        self.revision = 0
        self.engine = asyncio.Lock()

    def subscribe(self) -> None:
        """Apply the Workloads that the cache holds, and every change from now on."""
        self._pods.follow()
        self._watches.workloads.cache.subscribe(self._workload_changed)

    def follow(self) -> None:
        """Apply every change of the configuration from now on."""
        watches = self._watches
        kinds: tuple[HeldWatch[Any], ...] = (
            watches.cluster_queues,
            watches.local_queues,
            watches.cohorts,
            watches.flavors,
            watches.topologies,
            watches.checks,
            watches.namespaces,
        )
        for watch in kinds:
            watch.cache.subscribe(self._configuration_changed)

    def reconsider(self) -> None:
        """Read what comes from now on under the context's options."""
        self._pods.reset()
        self._row_of.clear()
        self._stale = True

    # Workloads

    def workload(self, key: str) -> kueue.Workload | None:
        """Return a Workload as it was written or seen last."""
        written = self._written.get(key)
        if written is not None:
            return written
        namespace, _, name = key.partition("/")
        held = self._watches.workloads.cache.named(namespace, name)
        return None if held is None else held.object

    def workloads(self) -> Iterable[kueue.Workload]:
        """Return all Workloads, as they were written or seen last."""
        seen = {
            f"{held.namespace}/{held.name}": held.object for held in self._watches.workloads.cache
        }
        return {**seen, **dict(self._written)}.values()

    def wrote(self, workload: kueue.Workload) -> None:
        """Apply the answer to a write of ours, unless something newer is known."""
        key = key_of(workload)
        known = self.workload(key)
        if known is None or _version(known) <= _version(workload):
            self._written.wrote(key, _version(workload), workload)
            self.look_at(key)

    def gone(self, key: str) -> None:
        """Forget a Workload that a write did not find."""
        self._written.forget(key)
        self.look_at(key)

    def look_at(self, key: str) -> None:
        """Note that a Workload has to be adopted again."""
        self._dirty[key] = None
        self._changed(key)
        self._woken()

    def _reread(self, key: str) -> None:
        """Record that something beside the Workload changes what is known of it."""
        self._row_of.pop(key, None)
        self._dirty[key] = None
        self._woken()

    def pod_rows(self, namespace: str) -> PodSetRows:
        """Return what pods of a namespace request beside what they state; from any thread."""
        return self._pods.known(namespace)

    def row(self, workload: kueue.Workload) -> Workload:
        """Return the engine's row of a Workload."""
        key = key_of(workload)
        known = self._row_of.get(key)
        if known is not None and known[0] is workload:
            return known[1]
        found = workload_row(
            workload,
            self._pods.rows(workload.metadata.namespace),
            waits_for_pods=self._context.options.settings.block_admission,
            min_runtimes_s=self.protections.of(workload),
            idle=self.idle.of(key, workload),
            participant=self.lineages.of(workload),
            delay=self.protections.delay(workload),
            terms=self.reported.of(key, workload),
            now=self._context.clock.wall(),
        )
        row = self._context.ranking.of(found)
        self._row_of[key] = (workload, row)
        return row

    def place(self, workload: kueue.Workload) -> Place:
        """Return where a Workload counts; without a reservation its ClusterQueue is empty.

        Users can make up names of queues and classes in Workloads: those that are not there have no
        series of their own.
        """
        admission, reference = workload.status.admission, workload.spec.priority_class_ref
        namespace, queue = workload.metadata.namespace, workload.spec.queue_name
        known = self._watches.local_queues.cache.named(namespace, queue) is not None
        name = "" if reference is None else reference.name
        caches = self._watches.classes.cache, self._watches.priorities.cache
        if name and all(each.named("", name) is None for each in caches):
            name = OTHER
        cluster_queue = "" if admission is None else admission.cluster_queue
        return Place(cluster_queue, namespace, queue if known else "", name)

    def participant(self, ref: ObjectRef) -> Participant | None:
        """Return the lineage of a Workload that is there."""
        workload = self.workload(f"{ref.namespace}/{ref.name}")
        if workload is None or workload.metadata.uid != ref.uid:
            return None
        return self.lineages.of(workload)

    def waits(self, ref: ObjectRef, since: Nanos) -> bool:
        """Return whether a Workload is there and has had no quota since an instant."""
        workload = self.workload(f"{ref.namespace}/{ref.name}")
        if workload is None or workload.metadata.uid != ref.uid:
            return False
        if workload.status.admission is not None:
            return False
        reserved = condition_of(workload.status.conditions, "QuotaReserved")
        # Who never had quota was never evicted; its condition may be younger than what it decided.
        if reserved is None or condition_of(workload.status.conditions, "Evicted") is None:
            return True
        return parse_instant(reserved.last_transition_time) <= since

    # Between two runs of cycles

    async def configured(self) -> Configuration:
        """Return the configuration as the watches show it now."""
        if self._stale:
            async with self.engine:
                self.settle()
        return self.configuration

    def settle(self) -> None:
        """Apply what has changed."""
        if self._stale:
            self._configure()
            self._stale = False
        for settler in self.settlers:
            try:
                settler()
            except Exception:
                log.exception("an observer failed on a change of the configuration")
        dirty, self._dirty = self._dirty, {}
        now = self._context.clock.wall()
        dirty.update(dict.fromkeys(self._faults.due(now)))
        for key in dirty:
            if key in self.deciding:
                self._dirty[key] = None
                continue
            try:
                self._read_workload(key)
            except Exception:
                self._set_aside(key)
            else:
                if key in self._faults:
                    self._faults.forget(key)
                    self._uncounted.pop(key, None)
        self.queues.uncounted = self.unplaced.union(
            name
            for queue in self._uncounted.values()
            for name in self.holdings.related(queue) or [queue]
        )
        if dirty:
            self.revision += 1

    def _set_aside(self, key: str) -> None:
        """Leave out a Workload that could not be adopted, until it is tried again."""
        now = self._context.clock.wall()
        due = self._faults.add(key, now)
        log.exception("%s is not decided for %d s after an error", key, (due - now) // SECOND)
        self.queues.delete(key)
        found = self.workload(key)
        if found is None:
            return
        admission = found.status.admission
        if admission is not None and key not in self.holdings.holders:
            self._uncounted[key] = admission.cluster_queue
        else:
            self._uncounted.pop(key, None)
        self._context.announce(reference_of(found), decision_failed())

    def decided(self, key: str) -> None:
        """The admission of a workload was written, or given up."""
        self.deciding.discard(key)
        self.look_at(key)

    def _read_workload(self, key: str) -> None:
        found = self.workload(key)
        self.unexplained.discard(key)
        holder = self.holdings.holders.get(key)
        finished = found is not None and _is_finished(found)
        row = None if found is None or finished else self.row(found)
        if found is None or row is None or row.admission is None:
            self.holdings.release(key)
            if holder is not None:
                name = self.holdings.tree.names[holder.queue]
                self._flush(name, *self._sharing(holder.workload))
            self.tallies.count(key, None if found is None else standing_of(found, row))
            if found is None or row is None or found.metadata.deletion_timestamp:
                self.queues.delete(key)
            else:
                self.queues.push(row)
                if not states_cause(found):
                    self.unexplained.add(key)
            self.took(key, found, row)
            return
        self.queues.delete(key)
        before = None if holder is None else holder.workload
        if before != row:
            self.holdings.hold(row)
            if before is not None and not offers_alike(before, row):
                self._flush(row.admission.cluster_queue, *self._sharing(before))
        amounts = tuple(held_amounts(row, self.configuration.settings))
        self.tallies.count(key, standing_of(found, row, amounts))
        self.took(key, found, row)

    def _flush(self, cluster_queue: str, *others: str) -> None:
        names = self.holdings.related(cluster_queue) or [cluster_queue]
        self.queues.flush([*dict.fromkeys((*names, *others))])

    def _sharing(self, workload: Workload) -> list[str]:
        """Return the ClusterQueues that may place pods where a workload has places."""
        return queues_with_places(self.configuration) if held_places(workload) else []

    # Configuration

    def _configure(self) -> None:
        before = self.configuration
        self.configuration = self._configured.read()
        self.holdings.configure(self.configuration)
        self.queues.configure(self.configuration)
        self.tallies.changed.update(self.configuration.cluster_queues)
        self.tallies.changed.update(self.configuration.local_queues)
        if rules_of(before) != rules_of(self.configuration):
            # Who holds quota may have to give it back, and who was drained may come again.
            for workload in self.workloads():
                self._changed(key_of(workload))

    def protection_changed(self, old: Held[Any] | None, new: Held[Any] | None) -> None:
        """Look again at those whom a queue or class protects, or delays, otherwise now."""
        if self.protections.changed(old, new):
            self._row_of.clear()
            admitted = (each for each in self.workloads() if each.status.admission is not None)
            self._dirty.update(dict.fromkeys(map(key_of, admitted)))
            self._woken()
        if self.protections.delays_otherwise(old, new):
            self._row_of.clear()
            waiting = (each for each in self.workloads() if each.status.admission is None)
            self._dirty.update(dict.fromkeys(map(key_of, waiting)))
            self._woken()

    def _configuration_changed(self, old: Held[Any] | None, new: Held[Any] | None) -> None:
        self.protection_changed(old, new)
        if old is not None and new is not None and stated_by(old.object) == stated_by(new.object):
            # Its status may have been compared with one that an older write had left behind.
            self.tallies.changed.add(f"{new.namespace}/{new.name}" if new.namespace else new.name)
            return
        self._stale = True
        self._woken()

    def _workload_changed(
        self, old: Held[kueue.Workload] | None, new: Held[kueue.Workload] | None
    ) -> None:
        held = new or old
        assert held is not None
        for listener in self.listeners:
            try:
                listener(old, new)
            except Exception:
                log.exception(
                    "an observer failed on a change of Workload %s/%s", held.namespace, held.name
                )
        key = f"{held.namespace}/{held.name}"
        if new is None:
            self.idle.forget(held.object)
        if new is None or _is_finished(new.object):
            self._row_of.pop(key, None)
        if new is None:
            self._written.forget(key)
        else:
            write = self._written.seen(key, new.resource_version)
            if write is not None and write.version == new.resource_version:
                # Nothing but what is known already.
                known = self._row_of.get(key)
                if known is not None and known[0] is write.value:
                    self._row_of[key] = (new.object, known[1])
                return
        self.look_at(key)


def _is_finished(workload: kueue.Workload) -> bool:
    return is_condition_true(workload, "Finished")


def _version(workload: kueue.Workload) -> int:
    return version_number(workload.metadata.resource_version)
