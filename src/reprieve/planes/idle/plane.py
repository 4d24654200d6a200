"""The idle plane as a whole: its parts, and the loops that look at what is due.

What a change makes due is in `changes`. Three level-triggered loops share one event loop. `resolve`
finds the root of every GPU pod; `follow` keeps one GpuWorkload for each root that opted in;
`reconcile` moves a GpuWorkload through its phases; the evaluator decides which work is preempted.
Nothing is done before every required kind has synced, and a failure over one object delays that
object only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import aiohttp

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.reprieve import Preemption
from reprieve.engine.idle.discovery import (
    ChainTooDeep,
    NodeRoot,
    OwnerNotFound,
    ResolutionError,
    Root,
)
from reprieve.engine.idle.lifecycle_facts import Present
from reprieve.engine.idle.model import Fit, IdleSnapshot
from reprieve.engine.idle.resources import add
from reprieve.engine.plan import Plane
from reprieve.execution.records.book import Book, Retention
from reprieve.kube.discovery import NotServed
from reprieve.kube.errors import ApiError
from reprieve.planes.common.disruptions.loop_notices import LoopNotices
from reprieve.planes.common.foreign_decider import ForeignDecider
from reprieve.planes.common.persistent import persistent, recovered
from reprieve.planes.common.workers import look_at_each
from reprieve.planes.idle.announcements import (
    report_denied,
    report_unresolved,
)
from reprieve.planes.idle.changes import Changes
from reprieve.planes.idle.coexistence import HOMES, MANAGER_LEASE
from reprieve.planes.idle.context import IdleContext, log
from reprieve.planes.idle.due import Due
from reprieve.planes.idle.evaluating.causes import EvaluationCauses
from reprieve.planes.idle.evaluating.displacements import IdleDisplacements
from reprieve.planes.idle.evaluating.evaluator import Evaluator
from reprieve.planes.idle.evaluating.lineages import RootLineages
from reprieve.planes.idle.evaluating.root_answers import RootAnswers
from reprieve.planes.idle.evaluating.snapshots import Snapshots
from reprieve.planes.idle.housekeeping import Housekeeping
from reprieve.planes.idle.idle_time import IdleTime
from reprieve.planes.idle.joint.foreign_queues import ForeignQueues
from reprieve.planes.idle.joint.joint_side import JointSide, holds_quota
from reprieve.planes.idle.measures.metric_sources import (
    MetricReader,
    StandInReader,
    metric_source,
    open_session,
)
from reprieve.planes.idle.measures.poll_report import PollReport
from reprieve.planes.idle.measures.scraper import Poll, Scraper, TargetReader
from reprieve.planes.idle.ownership import Ownership, pod_found
from reprieve.planes.idle.queued import Queued
from reprieve.planes.idle.reconcile import Reconciler
from reprieve.planes.idle.roots import Roots
from reprieve.planes.idle.sharing import sharing_of, strategy_of
from reprieve.planes.idle.tracking import Tracking
from reprieve.planes.idle.waiting import Waiting
from reprieve.planes.idle.watches import KUEUE_GROUP, ServiceIndex, Watches
from reprieve.planes.idle.workloads import (
    KnownPoll,
    TrackedWorkloads,
)
from reprieve.telemetry.metrics import Remembered
from reprieve.units.ids import GpuWorkloadKey, Uid
from reprieve.units.references import Reference
from reprieve.wording.shared_devices import SharingReason

__all__ = ["IdlePlane"]

_RETENTION: Final = Retention()
_ATTRIBUTED_AT_ONCE: Final = 16


class IdlePlane:
    """One idle plane over one cluster."""

    name = "idle"

    def __init__(self, context: IdleContext, operator_namespace: str) -> None:
        self.context = context
        start, client, clock = context.start, context.client, context.clock
        sources = [metric_source(url) for url in start.endpoints]
        self._sources = sources
        self.watches = Watches(
            context.mirror,
            clock,
            start.vendors,
            nodes=start.policy.fit is Fit.NODE,
            services=any(source.service for source in sources),
            limits=start.delay is not None or start.notice.most > 0,
            report=lambda trouble: log.warning("%s", trouble),
            restarted=lambda kind, why: context.metrics.watch_restarts.labels(kind, why).inc(),
        )
        self._namespace = operator_namespace
        idle_time = IdleTime(clock, start.policy.polling_interval)
        self.workloads = TrackedWorkloads(start.policy, idle_time, self._opted_in)
        self._due = Due(self.workloads, clock)
        self._roots = Roots(client, context.mapper, start.policy.literal, self._due.root)
        self._ownership = Ownership(self.watches.pods.cache, self._roots.knows)
        self._queued = Queued(self.watches, self._roots, tuple(start.vendors))
        # Roots by uid: of GPU pods, of GpuWorkloads, and podless ones that Kueue holds back.
        self._known_roots: dict[str, Root] = {}
        self._tracking = Tracking(
            context,
            self.workloads,
            self._namespace_annotations,
            changed=self._due.workloads.add,
            overtaken=self._due.root_soon,
            later=self._due.roots.add_at,
        )
        self._book = Book(
            Plane.IDLE,
            context.full_client,
            operator_namespace,
            context.fence,
            clock,
            context.metrics,
            retention=lambda: _RETENTION,
            demands=context.joint.demands,
        )
        self.waiting = Waiting(
            context,
            self.workloads,
            self._ownership,
            lambda: self._snapshot(self.evaluator.open_intents.claims()),
        )
        self._loops = context.loops or LoopNotices(context.governor, context.metrics)
        answers = RootAnswers(
            self.workloads, self._ownership, self._roots, self.watches.limits, clock
        )
        self._displacements = IdleDisplacements(
            context.governor,
            self.workloads,
            clock,
            answers.lost_with,
            RootLineages(context.governor, self._ownership.pods_of),
            self._loops,
            None if context.disruptions is None else context.disruptions.returns,
        )
        reported = self._displacements.reported
        context.metrics.remembers(Remembered.NAMED_VICTIMS, lambda: reported.remembers)
        self.evaluator = Evaluator(
            context,
            self.workloads,
            self._book,
            snapshot=self._snapshot,
            intents=self._intents,
            roots=answers,
            changed=self._due.workloads.add,
            held_back=self._held_back,
            noted=self.waiting.record,
            displacements=self._displacements,
            side=lambda: self.side,
            holds_quota=lambda root: any(map(holds_quota, self._queued.workloads(root))),
        )
        context.governor.harm.observers.append(self.evaluator.ask)
        self._causes = EvaluationCauses(
            self.watches,
            self.workloads,
            clock,
            self.evaluator.ask,
            took=lambda: self.evaluator.took,
        )
        self._tasks: asyncio.TaskGroup | None = None
        self.side = JointSide(
            context.joint,
            self.workloads,
            self._ownership,
            pod_of=self.watches.pods.cache.get,
            tracks=self._tracks,
            claims=lambda: self.evaluator.open_intents.claims(),
            unused=lambda: self.evaluator.open_intents.unused(),
            mixed=lambda: self.evaluator.open_intents.mixed(),
            ready=lambda: self.ready and not self._missing(),
            stays_out=lambda: bool(self.context.read_only),
            queued=self._queued,
            now=context.clock.wall,
            foreign=None
            if start.sums_queued_demands
            else ForeignQueues(
                self.watches,
                context.clock,
                tasks=lambda: self._tasks,
                changed=self.evaluator.ask,
                solver=lambda: self.evaluator.solver,
            ),
        )
        self._snapshots = Snapshots(
            context,
            self.workloads,
            self._ownership,
            self.watches,
            self._queued.workloads,
            self._displacements.holds,
            self.side,
            self._records,
        )
        self._reconciler = Reconciler(
            context,
            self.workloads,
            self._tracking,
            self._queued.workloads,
            self._due.workloads.add_at,
            self.evaluator.ask,
            loop_of=lambda root: self._loops.reported_of(
                self._displacements.lineages.of(root).lineage
            ),
            shares_of=lambda pods: sharing_of(pods, self.workloads.poll, self._shared_on),
        )
        self._loops.changed.append(self._due.lineage)
        self._poll_report = PollReport(context.metrics)
        self._changes = Changes(
            context,
            self.watches,
            self.workloads,
            self._ownership,
            self._queued,
            self._known_roots,
            self._due,
            self.evaluator,
            operator_namespace,
            self._displacements,
        )
        self._housekeeping = Housekeeping(
            context,
            ForeignDecider(client, operator_namespace, clock, MANAGER_LEASE, HOMES),
            self.workloads,
            self._known_roots,
            self._due,
            self.evaluator,
            self._loops,
        )
        self._histories = context.joint.histories
        self.ready = False

    def troubles(self) -> list[str]:
        """Return one line for each kind that cannot be read."""
        return self.watches.troubles()

    def notice(self) -> str:
        """Return why nothing is written, empty when we do."""
        return self.context.read_only

    async def synced(self) -> None:
        """Wait for the first list of every required kind."""
        await self.watches.synced()

    async def run(self) -> None:
        """Run until cancelled.

        Raises:
            Deposed: the process lease is lost.
        """
        try:
            async with open_session() as session, asyncio.TaskGroup() as group:
                self._tasks = group
                if not self.context.dry_run:
                    self._histories.begins(Plane.IDLE, self.context.clock.monotonic())
                self.watches.start(group)
                await self._find_kueue()
                self.watches.start_kueue(group)
                await self.watches.synced()
                await self.watches.devices.settled(self.context.clock)
                if self.watches.limits is not None:
                    await self.watches.limits.settled(self.context.clock)
                self._changes.subscribe()
                self._causes.follow(group)
                await self._adopt()
                await self._housekeeping.look_for_kaiwo()
                await self._roots.expect(
                    pod_found(pod) for pod in self.watches.pods.cache if pod.row.gpus
                )
                await self._attribute_pods()
                interval = self.context.start.policy.polling_interval
                self.context.metrics.polling_interval.set(interval / SECOND)
                scraper = Scraper(
                    self._sources,
                    ServiceIndex(self.watches),
                    self._reader(session),
                    self.context.clock,
                    interval,
                    self._polled,
                    self.context.start.policy.own_freshness,
                )
                clock = self.context.clock
                group.create_task(persistent(scraper.run, clock, log, "polling metrics"))
                group.create_task(look_at_each(self._due.pods, self._resolve, clock))
                group.create_task(look_at_each(self._due.queued, self._resolve_queued, clock))
                group.create_task(look_at_each(self._due.roots, self._follow, clock))
                group.create_task(look_at_each(self._due.workloads, self._reconcile, clock))
                group.create_task(self.evaluator.run())
                group.create_task(persistent(self._poll_roots, clock, log, "reading owners"))
                group.create_task(persistent(self._housekeeping.run, clock, log, "housekeeping"))
                if not self.context.dry_run:
                    tidying = self._keep_few_records
                    group.create_task(persistent(tidying, clock, log, "the removal of old records"))
                self.ready = True
                log.info(
                    "idle plane runs: %d pods, %d GpuWorkloads",
                    len(self.watches.pods.cache),
                    len(self.workloads),
                )
        finally:
            self.ready = False

    async def _adopt(self) -> None:
        if not self.context.dry_run:
            await recovered(self._recover, self.context.clock, log)
        self._histories.known(Plane.IDLE)

    async def _recover(self) -> None:
        """Write this process's epoch into the open intents; the evaluator adopts them."""
        left = await self._book.recover()
        if self.context.disruptions is not None:
            await self.context.disruptions.recover(self._book.log, left.records)
        interrupted = {each.metadata.name for each in left.claimed}
        records = await self._book.log.all_whole(left.records)
        self._displacements.restore(records, interrupted)
        self.evaluator.open_intents.notices.histories.restore(records)

    async def _keep_few_records(self) -> None:
        await self._book.keep_few(unless=lambda: bool(self.context.read_only))

    async def _find_kueue(self) -> None:
        """Read Kueue's Workloads as they are stored, where that version is served."""
        try:
            await self.context.mapper.resource_for(f"{KUEUE_GROUP}/v1beta2", "Workload")
        except (ApiError, NotServed):
            return
        self.watches.read_kueue_as("v1beta2")

    def _reader(self, session: aiohttp.ClientSession) -> TargetReader:
        """Return what reads the targets: exporters, unless something stands for them."""
        if self.context.measured is not None:
            return StandInReader(self.context.measured)
        return MetricReader(session, self.context.start.vendors, self.context.clock)

    def _polled(self, poll: Poll) -> None:
        self._poll_report.report(poll)
        for key in self.workloads.apply(KnownPoll.of(poll)):
            self._due.workloads.add(key)

    # Who looks at it

    async def _resolve(self, uid: str) -> None:
        pod = self.watches.pods.cache.get(uid)
        if pod is None or not pod.row.gpus or self._ownership.root_of(uid) is not None:
            return
        try:
            way = await self._roots.resolve(pod_found(pod))
        except (OwnerNotFound, NodeRoot):
            return  # typical for pods that are ending; static pods belong to no workload
        except ResolutionError as error:
            report_unresolved(self.context, pod, error)
            if not isinstance(error, ChainTooDeep):
                interval = self.context.start.policy.polling_interval
                self._due.pods.add_at(uid, Nanos(self.context.clock.wall() + interval))
            return
        if way.root.denied_by is not None:
            report_denied(self.context, pod, way.root)
        self._ownership.learn(pod, way)
        self._known_roots[way.root.ref.uid] = way.root
        self._due.root(way.root.ref)

    async def _attribute_pods(self) -> None:
        """Find the roots of the pods that are there before any workload is looked at.

        A workload whose pods are not known yet seems to have none, and would lose its idle time.
        What cannot be read now is tried again as any pod is.
        """
        waiting = iter([pod.uid for pod in self.watches.pods.cache if pod.row.gpus])

        async def work() -> None:
            for uid in waiting:
                with contextlib.suppress(ApiError):
                    await self._resolve(uid)

        await asyncio.gather(*(work() for _ in range(_ATTRIBUTED_AT_ONCE)))

    async def _resolve_queued(self, uid: str) -> None:
        """Find the root behind a Kueue Workload: a suspended job without pods may be a demand."""
        known = self._queued.root_of(uid)
        root = await self._queued.resolve(uid)
        if root is None or known == root:
            return
        if root.ref.uid not in self._known_roots and self._queued.gpus(root.ref.uid):
            self._known_roots[root.ref.uid] = root
            self._due.roots.add(root.ref.uid)
        self._due.workloads_of(root.ref.uid)

    async def _follow(self, uid: str) -> None:
        root = self._known_roots.get(uid)
        if root is None:
            return
        facts = self._roots.facts(uid) or await self._roots.read(root.ref)
        gpus = add(*(pod.row.gpus for pod in self._ownership.pods_of(root.ref)))
        await self._tracking.follow(root, facts, gpus or self._queued.gpus(uid))

    async def _reconcile(self, key: GpuWorkloadKey) -> None:
        held = self.workloads.get(key)
        if held is None:
            return
        facts = self._roots.facts(held.root.uid) or await self._roots.read(held.root)
        root = self._known_roots.get(held.root.uid)
        pods = self._ownership.pods_of(held.root)
        self._displacements.running(held.root, pods)
        await self._reconciler.reconcile(held, facts, pods, root.chain if root else "")

    async def _poll_roots(self) -> None:
        """Read every root again at each polling interval, but at least once a minute."""
        while True:
            await self.context.clock.sleep(min(self.context.start.policy.polling_interval, MINUTE))
            alive: dict[str, Root] = {root.ref.uid: root for root in self._queued.roots()}
            alive.update((root.ref.uid, root) for root in self._ownership.roots())
            for held in self.workloads:
                if held.root.uid not in alive:
                    chain = held.object.status.owner_chain
                    alive[held.root.uid] = Root(held.root, chain)
            self._known_roots.clear()
            self._known_roots.update(alive)
            living = {held.root.uid for held in self.workloads if not held.over}
            living |= {root.ref.uid for root in self._ownership.roots()}
            living |= {root.ref.uid for root in self._queued.roots()}
            wanted = (root.ref for uid, root in alive.items() if uid in living)
            await self._roots.read_all(wanted, alive)
            self._roots.forget_between(self._ownership.between())

    # Facts for others

    def _tracks(self, root: Reference) -> bool | None:
        """Return whether a root has opted in, None while it is not known."""
        facts = self._roots.facts(root.uid)
        return None if facts is None else self._tracking.wanted(root, facts)

    def _opted_in(self, root: Reference) -> bool:
        """Return whether a root is there, by its last read, and has opted in."""
        facts = self._roots.facts(root.uid)
        if facts is None or self.context.read_only or not isinstance(facts.state, Present):
            return False
        return facts.state.uid == root.uid and self._tracking.wanted(root, facts)

    def _shared_on(self, node: str, resources: Iterable[str]) -> SharingReason | None:
        """Return how a node shares GPUs; nodes are read only where placements are proven."""
        nodes = self.watches.nodes
        record = None if nodes is None else nodes.cache.named("", node)
        if record is None:
            return None
        return strategy_of(record.node.metadata.labels or {}, resources)

    def _snapshot(self, claims: Mapping[Uid, GpuWorkloadKey | None]) -> IdleSnapshot:
        return self._snapshots.snapshot(claims, self.evaluator.open_intents.placements())

    def _missing(self) -> str:
        return self._histories.missing(self.context.clock.monotonic())

    def _held_back(self) -> str:
        """Return why nothing may be decided now; empty when all facts are at hand."""
        context = self.context
        if context.read_only:
            return context.read_only
        if not context.dry_run and not context.fence.open:
            return "the lease is not held for long enough"
        if context.lagging():
            return "the event loop lags"
        if not context.governor.harm.known():
            return "harm budgets are not known yet"
        return self._missing() or context.since_step() or next(iter(self.watches.troubles()), "")

    def _records(self) -> list[Preemption]:
        known = self.watches.intents.cache
        return [each.intent for each in known if each.namespace == self._namespace]

    def _intents(self) -> Sequence[Preemption]:
        return [each for each in self._records() if each.spec.plane == Plane.IDLE]

    def _namespace_annotations(self, name: str) -> Mapping[str, str]:
        record = self.watches.namespaces.cache.named("", name)
        return {} if record is None else record.annotations
