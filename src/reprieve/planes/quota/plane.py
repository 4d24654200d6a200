"""The quota plane: everything wired together, run under the process lease.

Order: watches, the first lists, recovery of open intents, then jobs, Workloads and cycles. Source:
the design's "Processes and time".
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from kubeworld.objects.paths import Json
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.kueue import Workload
from reprieve.engine.plan import Plane
from reprieve.execution.fence import Deposed
from reprieve.jobs.model import JobKind
from reprieve.kube.errors import ApiError
from reprieve.planes.common.dirty import DirtyKeys
from reprieve.planes.common.foreign_decider import ForeignDecider
from reprieve.planes.common.mirrors.cluster_view import ClusterView
from reprieve.planes.common.persistent import persistent, recovered
from reprieve.planes.common.workers import look_at_each, spawn
from reprieve.planes.quota.context import QuotaContext, QuotaOptions, log, reference_of
from reprieve.planes.quota.deciding.decisions import Decisions
from reprieve.planes.quota.deciding.failed_nodes import FailedNodes
from reprieve.planes.quota.deciding.grounds import GroundView
from reprieve.planes.quota.deciding.held_pairs import HeldPairs
from reprieve.planes.quota.deciding.joint_side import QuotaJoint
from reprieve.planes.quota.deciding.node_view import NodeView
from reprieve.planes.quota.deciding.preemptions import Preemptions
from reprieve.planes.quota.deciding.refused_evictions import RefusedEvictions
from reprieve.planes.quota.job_reconciler.job_lookup import JobLookup
from reprieve.planes.quota.job_reconciler.jobs import JobReconciler
from reprieve.planes.quota.pod_reconcilers.finished_pods import FinishedPods
from reprieve.planes.quota.pod_reconcilers.pod_lookup import GROUP_PREFIX
from reprieve.planes.quota.pod_reconcilers.pod_templates import PodTemplates
from reprieve.planes.quota.pod_reconcilers.ungating import TopologyUngater
from reprieve.planes.quota.queue_status.consumption import ConsumptionSampler
from reprieve.planes.quota.queue_status.in_use import InUse
from reprieve.planes.quota.queue_status.meters import Meters
from reprieve.planes.quota.queue_status.statuses import Statuses
from reprieve.planes.quota.state import QuotaState, key_of
from reprieve.planes.quota.watches import Held, Watches
from reprieve.planes.quota.workload_status.admissions import Admissions
from reprieve.planes.quota.workload_status.explanations import Explanations
from reprieve.planes.quota.workload_status.waiting import Waiting
from reprieve.planes.quota.workload_status.workloads import WorkloadReconciler
from reprieve.planes.quota.workload_status.writing import WorkloadStatuses
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from reprieve.wording.events import EventText

__all__ = ["QuotaPlane"]

_PERIOD: Final = SECOND
#: Held by the process that runs Kueue's own controller.
_KUEUE_LEASE: Final = "c1f6bfd2.kueue.x-k8s.io"
_KUEUE_HOMES: Final = ("kueue-system",)  # where Kueue's own manifests install it
_KUEUE_PERIOD: Final = 2 * SECOND


class QuotaPlane:
    """Whose share it is. `namespace`: where its intents are."""

    name = "quota"

    def __init__(
        self, context: QuotaContext, namespace: str, nodes: ClusterView | None = None
    ) -> None:
        """`nodes`: of the scheduling plane in this process, where there is one."""
        self.context = context
        kinds = context.options.kinds
        self._tasks: asyncio.TaskGroup | None = None
        self._following = False
        self._looked = False
        self._jobs_due: DirtyKeys[str] = DirtyKeys(context.clock)
        self._workloads_due: DirtyKeys[str] = DirtyKeys(context.clock)
        self._places_due: DirtyKeys[str] = DirtyKeys(context.clock)
        self.watches = Watches(
            context.mirror,
            context.clock,
            kinds,
            report=lambda trouble: log.warning("%s", trouble),
            restarted=lambda kind, why: context.metrics.watch_restarts.labels(kind, why).inc(),
        )
        self.lookup = JobLookup(
            self.watches, kinds, without_queue_name=context.options.without_queue_name
        )
        self.state = QuotaState(context, self.watches, self._workload_changed, self._wake)
        self.state.follow()
        self.writer = WorkloadStatuses(context, self.state)
        self.held_pairs = HeldPairs(
            context,
            self.state.participant,
            self.state.waits,
            context.governor,
            self.state.lineages.of,
        )
        self._refusals = RefusedEvictions(
            context,
            self.state,
            self.held_pairs.not_evictable,
            lambda queue: self.decisions.retries.add(queue),
        )
        self.preemptions = Preemptions(
            context,
            self.state,
            self.writer,
            namespace,
            self._spawn,
            self._refusals,
            lambda key: self._nodes.rows_of(key),
            self.held_pairs.restore,
            self.held_pairs.ended,
        )
        self.workloads = WorkloadReconciler(
            context, self.state, self.writer, self.lookup, self._workloads_due.add_at
        )
        self.jobs = JobReconciler(
            context,
            self.state,
            self.watches,
            self.writer,
            self.lookup,
            self.workloads,
            namespace,
            self._jobs_due.add_at,
        )
        self._kueue = ForeignDecider(
            context.client, namespace, context.clock, _KUEUE_LEASE, _KUEUE_HOMES
        )
        self._strangers: set[str] = set()  # namespaces whose lease was reported and does not count
        self._meters = Meters(context, self.state)
        self._consumption = ConsumptionSampler(context, self.state, self.watches)
        self._in_use = InUse(context, self.state, self.watches)
        self.statuses = Statuses(context, self.state, self.watches)
        self._nodes = NodeView(context, self._templates(), nodes)
        self._nodes.seen = self._pod_seen
        self._grounds = GroundView(self.state, self._nodes, self._places_due.add, context.clock)
        finished = FinishedPods(self.state, self.writer)
        self._ungater = TopologyUngater(
            context, self.state, self._nodes, self._grounds.failed, finished
        )
        self.waiting = Waiting(context, self.state, self.watches, lambda: self.held_pairs.ledger)
        self._budgets_changed = asyncio.Event()
        if context.governor is not None:
            context.governor.harm.observers.append(self._budgets_changed.set)
        self.state.took = self.waiting.took
        self.explanations = Explanations(
            context, self.state, self.writer, self.waiting.record, self.held_pairs.loop_of
        )
        self._admissions = Admissions(context, self.state, self.writer)
        self.decisions = Decisions(
            context,
            self.state,
            self.preemptions,
            self._admissions,
            self._spawn,
            self._held_back,
            self.held_pairs,
            self.explanations,
            self._nodes,
            self.waiting,
            FailedNodes(context, self.state, self._grounds, self.writer, self._spawn),
        )
        self.side = QuotaJoint(
            context,
            self.state,
            self._nodes,
            self.decisions.loop.solver,
            self.decisions.idle_first,
            self.held_pairs.not_evictable,
            decides=lambda: not self.context.read_only,
            ready=lambda: self._tasks is not None and not self._held_back(),
        )

    def _templates(self) -> PodTemplates:
        return PodTemplates(self.state, self.lookup, self.watches.preempts_below)

    @property
    def ready(self) -> bool:
        """Whether all kinds were listed."""
        return self.watches.ready

    def troubles(self) -> list[str]:
        """Return one line for each kind that cannot be read."""
        return [*self.watches.troubles(), *self._nodes.troubles()]

    def notice(self) -> str:
        """Return why nothing is written, empty when it is."""
        return self.context.read_only

    async def synced(self) -> None:
        """Wait until all kinds were listed."""
        await self.watches.synced()

    @property
    def alone(self) -> bool:
        """Whether it was seen that no Kueue decides."""
        return self._looked and not self.context.read_only

    async def follow(self) -> None:
        """Keep the caches up to date until cancelled, in a process that does not lead as well."""
        async with asyncio.TaskGroup() as tasks:
            self._start(tasks)

    def settle(self) -> None:
        """Apply changed queues in a process that decides nothing; one that does is settled."""
        if self._tasks is None:
            self.state.settle()

    def observe(self) -> None:
        """Apply what the caches hold in a process that decides nothing: it can be queried then.

        `waiting` answers which workloads wait. Loops are known to the process that decides alone.
        """
        self.state.subscribe()

    def reconfigure(self, options: QuotaOptions) -> None:
        """Continue with other options; everything is looked at again under them."""
        self.held_pairs.use(self.context.options, options)
        self.context.options = options
        self.state.reconsider()
        if self._tasks is not None:
            for workload in self.state.workloads():
                self.state.look_at(key_of(workload))

    async def run(self) -> None:
        """Work until cancelled, or until the lease is lost (`Deposed` in a group)."""
        clock, histories = self.context.clock, self.context.joint.histories
        histories.begins(Plane.QUOTA, clock.monotonic())
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            if not self._following:
                self._start(tasks)
            # With the rest: who follows a kind later makes it be listed anew.
            self.state.idle.start(tasks)
            self._nodes.start(tasks)
            await self.watches.synced()
            await self._until_alone()
            await self.context.registered.wait()
            self._subscribe()
            if self.context.writes:
                await recovered(self.preemptions.recover, clock, log)
            histories.known(Plane.QUOTA)
            if self.context.writes:
                tasks.create_task(look_at_each(self._jobs_due, self._look_at_job, clock))
                tasks.create_task(look_at_each(self._workloads_due, self._look_at_workload, clock))
                tasks.create_task(look_at_each(self._places_due, self._place_pods, clock))
                tasks.create_task(self._admissions.run())
                tasks.create_task(self.decisions.loop.run())
                tasks.create_task(self.explanations.run())
                tasks.create_task(self.waiting.run())
                retries = self.decisions.retries
                tasks.create_task(look_at_each(retries, self.decisions.retry, clock))
                tasks.create_task(persistent(self._housekeeping, clock, log, "housekeeping"))
                tidying = self.preemptions.book.keep_few
                tasks.create_task(persistent(tidying, clock, log, "the removal of old records"))
                for look in (self.jobs.lone_pods.run, self.jobs.marked_pods.run):
                    tasks.create_task(
                        persistent(look, clock, log, "the look for pods without quota")
                    )
                tasks.create_task(
                    persistent(self._in_use.run, clock, log, "holding what is in use")
                )
            tasks.create_task(self.waiting.write_log())
            tasks.create_task(persistent(self.statuses.run, clock, log, "writing statuses"))
            self._wake()
            log.info(
                "quota plane runs: %d ClusterQueues, %d Workloads",
                len(self.watches.cluster_queues.cache),
                len(self.watches.workloads.cache),
            )
            self._warn_of_gates()

    def _warn_of_gates(self) -> None:
        for framework, gate in self.context.options.gated_off:
            log.warning(
                "integrations.frameworks lists %s, whose jobs run without quota until the feature "
                "gate %s is on",
                framework,
                gate,
            )

    def _start(self, tasks: asyncio.TaskGroup) -> None:
        self._following = True
        self.watches.start(tasks)
        clock = self.context.clock
        tasks.create_task(persistent(self._keep_looking_for_kueue, clock, log, "looking for Kueue"))

    async def _look_at_job(self, key: str) -> None:
        if self.context.writes:
            try:
                await self.jobs.reconcile(key)
            except ApiError as failure:
                for workload in self.lookup.workloads_of(key):
                    self._refusals.stop_refused(workload, failure)
                raise
            except Deposed:
                raise
            except Exception:
                self._report_fault(key, self._job_of(key))
                raise
        else:
            self._jobs_due.add_at(key, Nanos(self.context.clock.wall() + _KUEUE_PERIOD))

    async def _look_at_workload(self, key: str) -> None:
        if self.context.writes:
            try:
                await self.workloads.reconcile(key)
            except (Deposed, ApiError):
                raise
            except Exception:
                found = self.state.workload(key)
                self._report_fault(key, None if found is None else reference_of(found))
                raise
        else:
            self._workloads_due.add_at(key, Nanos(self.context.clock.wall() + _KUEUE_PERIOD))

    def _job_of(self, key: str) -> Reference | None:
        """Return the job that a key is of, None for a group of pods and for deleted ones."""
        if key.startswith(GROUP_PREFIX):
            return None
        kind, held = self.lookup.split(key)
        if held is None:
            return None
        return Reference(kind.api_version, kind.kind, held.namespace, held.name, Uid(held.uid))

    def _report_fault(self, key: str, about: Reference | None) -> None:
        """Notify the user whom a fault of ours concerns; it is logged where it is caught."""
        if about is not None:
            text = "A fault of the operator keeps it from being looked after: see its log"
            self.context.announce(about, EventText("Warning", "ReconcileFailed", text))

    def _subscribe(self) -> None:
        self.state.subscribe()
        for kind in self.context.options.kinds:
            self._subscribe_to(kind)
        self.watches.classes.cache.subscribe(self._class_changed)
        self.watches.priorities.cache.subscribe(self.state.protection_changed)
        self.state.listeners.append(self._workload_gone)
        self.state.listeners.append(self._meters.changed)
        self.state.listeners.append(self._refusals.changed)
        self.state.listeners.append(self.held_pairs.changed)
        self.state.listeners.append(self.held_pairs.admitted)
        self.state.listeners.append(self.held_pairs.seen)

    def _subscribe_to(self, kind: JobKind) -> None:
        def changed(old: Held[Json] | None, new: Held[Json] | None) -> None:
            if new is None and old is not None:
                self.lookup.note_gone(kind, old)
            for held in filter(None, (old, new)):
                for key in self.lookup.keys(kind, held):
                    self._jobs_due.add(key)

        self.watches.jobs[kind.key].cache.subscribe(changed)
        for name, *_ in kind.runtime.kinds if kind.runtime is not None else ():
            self.watches.runtimes[name].cache.subscribe(lambda old, new: self._again(kind))

    def _again(self, kind: JobKind) -> None:
        """Look at all jobs of a kind: what describes their pods has changed."""
        for held in self.watches.jobs[kind.key].cache:
            for key in self.lookup.keys(kind, held):
                self._jobs_due.add(key)

    async def _place_pods(self, workload: str) -> None:
        if self.context.writes:
            await self._ungater.reconcile(workload)

    def _pod_seen(self, workload: str) -> None:
        self.state.reported.pod_seen(workload)
        if self._grounds.places:
            self._places_due.add(workload)

    def _workload_changed(self, key: str) -> None:
        self._workloads_due.add(key)
        if self._grounds.places:
            self._places_due.add(key)
        workload = self.state.workload(key)
        for owner in () if workload is None else self.lookup.keys_of_owners(workload):
            self._jobs_due.add(owner)

    def _workload_gone(self, old: Held[Workload] | None, new: Held[Workload] | None) -> None:
        """Look at what a deleted Workload was of; who removes its finalizer deletes it at once."""
        if old is None or (new is not None and new.uid == old.uid):
            return
        owners = list(self.lookup.keys_of_owners(old.object))
        self.jobs.forget(f"{old.namespace}/{old.name}", owners)
        for owner in owners:
            self._jobs_due.add(owner)

    def _class_changed(self, old: Held[Any] | None, new: Held[Any] | None) -> None:
        """A class that jobs have waited for may be there now, or protect its workloads."""
        self.state.protection_changed(old, new)
        if old is None and new is not None:
            for kind in self.context.options.kinds:
                self._again(kind)

    def _wake(self) -> None:
        self.decisions.loop.ask()

    def _held_back(self) -> str:
        if self.context.lagging():
            return "the event loop lags"
        if self.context.read_only:
            return self.context.read_only
        if not self.context.fence.open:
            return "the lease is not held for long enough"
        if self.context.governor is not None and not self.context.governor.harm.known():
            return "harm budgets are not known yet"
        return next(iter(self.watches.troubles()), "") or self._nodes.held_back()

    async def _until_alone(self) -> None:
        """Wait while Kueue's own controller decides: two deciders would preempt twice."""
        await self._look_for_kueue()
        if self.context.read_only:
            self.preemptions.notices.inherited(Plane.QUOTA)  # this plane notifies no unit
            histories, clock = self.context.joint.histories, self.context.clock
            histories.known(Plane.QUOTA)  # nothing is decided by this plane
            while self.context.read_only:
                await clock.sleep(_PERIOD)
            histories.begins(Plane.QUOTA, clock.monotonic())

    async def _keep_looking_for_kueue(self) -> None:
        while True:
            await self._look_for_kueue()
            await self.context.clock.sleep(_KUEUE_PERIOD)

    async def _look_for_kueue(self) -> None:
        await self._kueue.observe()
        holder = self._kueue.holder
        where, stranger = self._kueue.elsewhere
        if not holder and stranger:
            holder = self._if_it_decides(where, stranger)
        self._looked = True
        why = ""
        if holder:
            why = (
                f"{holder} holds the lease {_KUEUE_LEASE}: Kueue decides, "
                "and the quota plane writes nothing"
            )
        self.context.metrics.kueue_leads.set(bool(why))
        if why != self.context.read_only:
            self.context.read_only = why
            # What was not written meanwhile is written when Kueue has ended.
            self.state.tallies.changed.update(self.state.configuration.cluster_queues)
            self.state.tallies.changed.update(self.state.configuration.local_queues)
            log.warning("%s", why or "Kueue's lease is free: the quota plane decides")

    def _if_it_decides(self, namespace: str, holder: str) -> str:
        """Return the holder of a lease that a tenant may have made, if it writes ClusterQueues."""
        if self.watches.cluster_queue_authors.other:
            return holder
        if namespace not in self._strangers:
            self._strangers = {namespace}
            log.warning(
                "%s holds a lease %s in the namespace %s and writes no ClusterQueue: it does "
                "not count as Kueue",
                holder,
                _KUEUE_LEASE,
                namespace,
            )
        return ""

    async def _housekeeping(self) -> None:
        while True:
            try:
                await self.preemptions.reconcile()
            except ApiError as failure:
                log.warning("intents: %s", failure)
            self.state.protections.report()
            self.state.idle.expire()
            self.state.reported.expire()
            self.waiting.show()
            await self.held_pairs.show(self.context.clock.wall())
            if self._budgets_changed.is_set():
                self._budgets_changed.clear()
                for queue in self.state.configuration.cluster_queues:
                    await self.decisions.retry(queue)
            for queue in self._nodes.to_try_again():
                await self.decisions.retry(queue)
            # Backoffs end without an event.
            self.decisions.loop.ask()
            await self.context.clock.sleep(_PERIOD)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._tasks is not None, "the plane runs"
        spawn(self._tasks, work, log)
