"""What the idle plane answers to other planes of its process, and queries of them.

A demand is *answered* once an evaluation has seen it pending and has evicted no work for it; it is
*served* while an open intent evicts for it, and *helped* once that is done for a part of the
capacity. Until any of these is so it is undecided, and the scheduling plane delays its own
preemption. The root of a pod is known a moment after the pod, and the root's GpuWorkload a moment
later. Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from kubeworld.units.instants import Nanos
from reprieve.api.core import KueueWorkload
from reprieve.api.reprieve import PreemptionSpec
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.lineage import Lineage, Participant, owner_lineage
from reprieve.engine.idle.asking import idle_work, waits_for_quota
from reprieve.engine.idle.model import IdleSnapshot, Phase, Workload
from reprieve.engine.idle.outcome import Evaluation
from reprieve.engine.idle.placement import pending_pods
from reprieve.engine.plan import Plan, Plane
from reprieve.intake.cluster.pod_classes import DEFAULT_SCHEDULER
from reprieve.planes.common.joint import Joint, Verdict
from reprieve.planes.idle.joint.foreign_queues import ForeignQueues
from reprieve.planes.idle.joint.mixtures import Mixtures, is_mixed
from reprieve.planes.idle.joint.releases import Releases
from reprieve.planes.idle.ownership import Ownership
from reprieve.planes.idle.queued import Queued
from reprieve.planes.idle.records import PodRecord
from reprieve.planes.idle.workloads import TrackedWorkload, TrackedWorkloads, key_of
from reprieve.units.ids import GpuWorkloadKey, Uid
from reprieve.units.references import Reference

__all__ = ["JointSide", "awaits_quota", "displaced_lately", "holds_quota", "lineages_of"]


def awaits_quota(workloads: Iterable[KueueWorkload]) -> bool:
    """Whether one of these Kueue Workloads has no reserved quota, and has not finished."""
    for workload in workloads:
        said = {each.type: each.status for each in workload.status.conditions or ()}
        if said.get("QuotaReserved") != "True" and said.get("Finished") != "True":
            return True
    return False


def holds_quota(workload: KueueWorkload) -> bool:
    """Whether a Kueue Workload has reserved quota, and has not finished."""
    said = {each.type: each.status for each in workload.status.conditions or ()}
    return said.get("QuotaReserved") == "True" and said.get("Finished") != "True"


def lineages_of(root: Reference, pods: Iterable[PodRecord]) -> list[Lineage]:
    """Return by which lineages work of this root is known."""
    owners = {root.uid, *(owner.uid for pod in pods for owner in pod.owners)}
    return [owner_lineage(uid) for uid in sorted(owners)]


def displaced_lately(governor: Governor, lineages: Iterable[Lineage], now: Nanos) -> bool:
    """Whether work of these lineages was displaced for others within the governor's window."""
    return any(governor.displaced(Participant(each), now) for each in lineages)


class JointSide:
    """The idle plane, as other planes of the process see it.

    `tracks`: whether a root has opted in, None while that is not known. `ready`: whether the plane
    has read what it needs, `stays_out`: whether another operator decides in its place. `foreign`:
    the queues of another Kueue; None where idle work is evicted by the sum of all GPUs for its
    demands. `unused`: the demands that have not started long after their idle work has ended.
    """

    def __init__(
        self,
        joint: Joint,
        workloads: TrackedWorkloads,
        ownership: Ownership,
        *,
        pod_of: Callable[[Uid], PodRecord | None],
        tracks: Callable[[Reference], bool | None],
        claims: Callable[[], Mapping[Uid, GpuWorkloadKey | None]],
        unused: Callable[[], frozenset[GpuWorkloadKey]],
        mixed: Callable[[], Mapping[GpuWorkloadKey, frozenset[Uid]]],
        ready: Callable[[], bool],
        stays_out: Callable[[], bool],
        queued: Queued,
        now: Callable[[], Nanos],
        foreign: ForeignQueues | None = None,
    ) -> None:
        self._now = now
        self._queued = queued
        self._foreign = foreign
        self._releases = Releases(joint, ownership, queued.workloads, foreign)
        self._joint = joint
        self._workloads = workloads
        self._ownership = ownership
        self._pod_of = pod_of
        self._tracks = tracks
        self._claims = claims
        self._unused = unused
        self._mixed = mixed
        self._mixtures = Mixtures(joint, self.is_placed_by_us)
        self._ready = ready
        self._stays_out = stays_out
        # Each with whether it waited for quota: what is stated of that states nothing of nodes.
        self._answered: frozenset[tuple[GpuWorkloadKey, bool]] = frozenset()

    def verdicts(self, demands: Sequence[Sequence[Uid]]) -> list[Verdict]:
        """Return for each of these demands, given by its pods, whether idle work is evicted."""
        if self._stays_out():
            return [Verdict.NOT_ASKED] * len(demands)
        if not self._ready():
            return [Verdict.STARTING] * len(demands)
        served = frozenset(filter(None, self._claims().values()))
        if not served and not self._anybody_idle():
            return [Verdict.NOT_ASKED] * len(demands)
        return [self._verdict(pods, served, for_quota=False) for pods in demands]

    def queued_verdicts(self, workloads: Sequence[Uid]) -> list[Verdict]:
        """Return for each pending Kueue Workload, by uid, whether idle work is evicted for it."""
        if self._stays_out():
            return [Verdict.NOT_ASKED] * len(workloads)
        if not self._ready():
            return [Verdict.STARTING] * len(workloads)
        served = frozenset(filter(None, self._claims().values())) - self._unused()
        if not served and not self._anybody_idle():
            return [Verdict.NOT_ASKED] * len(workloads)
        return [self._queued_verdict(uid, served) for uid in workloads]

    def _queued_verdict(self, uid: Uid, served: frozenset[GpuWorkloadKey]) -> Verdict:
        pods, asks = self._queued.pods(uid), self._queued.asks(uid)
        if pods:
            found = self._verdict(pods, served, for_quota=True)
        elif asks is None:
            return Verdict.UNDECIDED
        else:
            root, gpus = asks
            found = Verdict.NOT_ASKED
            if gpus:
                found = self._verdict_of_root(root, served, for_quota=True)
        # Who makes the rest of the capacity does so once the Workload has its quota.
        return Verdict.SERVED if found is Verdict.HELPED else found

    def has_opted_in(self, workload: Uid) -> bool:
        """Whether idle work may be evicted for a Kueue Workload, as far as is known."""
        found = [self._ownership.root_of(uid) for uid in self._queued.pods(workload)]
        asks = self._queued.asks(workload)
        roots = [root.ref for root in found if root is not None]
        roots += [] if asks is None else [asks[0]]
        return not any(self._tracks(root) is False for root in roots)

    def reclaimable(self) -> frozenset[Uid]:
        """Return the pods of all work that is idle now."""
        return frozenset(
            Uid(pod.uid)
            for held in self._workloads
            if held.status.phase is Phase.IDLE
            for pod in self._ownership.pods_of(held.root)
        )

    def _anybody_idle(self) -> bool:
        return any(each.status.phase is Phase.IDLE for each in self._workloads)

    def _verdict(
        self, pods: Sequence[Uid], served: frozenset[GpuWorkloadKey], *, for_quota: bool
    ) -> Verdict:
        found = {self._verdict_of(uid, served, for_quota) for uid in pods}
        for verdict in (
            Verdict.NOT_ASKED,
            Verdict.HELPED,
            Verdict.SERVED,
            Verdict.DECLINED,
        ):
            if verdict in found:
                return verdict
        return Verdict.UNDECIDED

    def _verdict_of(self, uid: Uid, served: frozenset[GpuWorkloadKey], for_quota: bool) -> Verdict:
        pod = self._pod_of(uid)
        if pod is None:
            return Verdict.UNDECIDED
        if not pod.row.gpus:
            return Verdict.NOT_ASKED
        root = self._ownership.root_of(uid)
        if root is None:
            return Verdict.UNDECIDED
        return self._verdict_of_root(root.ref, served, for_quota=for_quota)

    def _verdict_of_root(
        self, root: Reference, served: frozenset[GpuWorkloadKey], *, for_quota: bool
    ) -> Verdict:
        keys = {each.key for each in self._workloads.of_root(root.uid) if not each.over}
        if not keys:
            return Verdict.NOT_ASKED if self._tracks(root) is False else Verdict.UNDECIDED
        if keys & served:
            mixed = self._mixed()
            going = [uid for key in keys for uid in mixed.get(key, ())]
            return Verdict.HELPED if going and all(map(self._goes, going)) else Verdict.SERVED
        declined = any((key, for_quota) in self._answered for key in keys)
        return Verdict.DECLINED if declined else Verdict.UNDECIDED

    def going_for(self, demand: Sequence[Uid]) -> frozenset[Uid]:
        """Return the pods of idle work that is evicted for a demand, given by its pods."""
        roots = [root for uid in demand if (root := self._ownership.root_of(uid)) is not None]
        keys = {each.key for root in roots for each in self._workloads.of_root(root.ref.uid)}
        claims = self._claims()
        going = [uid for uid, whom in claims.items() if whom in keys]
        held = [each for uid in going for each in self._workloads.of_root(uid)]
        return frozenset(
            Uid(pod.uid) for each in held for pod in self._ownership.pods_of(each.root)
        )

    def _goes(self, root: Uid) -> bool:
        """Whether a root is evicted for certain: no pod of it stays."""
        held = self._workloads.of_root(root)
        return all(
            each.status.phase in (Phase.PREEMPTED, Phase.DELETED)
            or all(pod.row.terminating for pod in self._ownership.pods_of(each.root))
            for each in held
        )

    def owner(
        self,
        held: TrackedWorkload,
        pods: Sequence[PodRecord],
        kueue: Iterable[KueueWorkload],
    ) -> Plane:
        """Return the plane that evicts for a pending GpuWorkload; `kueue`: its Workloads."""
        return self._joint.owner(
            awaits_quota=awaits_quota(kueue), scheduler_names=_scheduler_names(pods)
        )

    def lacks_foreign_quota(self, kueue: Iterable[KueueWorkload]) -> bool:
        """Whether another Kueue decides about a demand with these Workloads, and refuses it."""
        foreign = self._foreign
        return (
            foreign is not None
            and foreign.served
            and not self._joint.quota_decides
            and awaits_quota(kueue)
        )

    def waiting_with(self, pods: Sequence[Uid]) -> frozenset[Uid]:
        """Return the pods that wait in the same groups, as far as the scheduling plane knows."""
        scheduling = self._joint.scheduling
        return frozenset() if scheduling is None else scheduling.waiting_with(pods)

    @property
    def quota_decides(self) -> bool:
        """Whether the quota plane of this process decides about Workloads."""
        return self._joint.quota_decides

    def goes_whole(self, group: str) -> bool:
        """Whether the pods of a group are evicted together, as the scheduling plane knows it."""
        return self._joint.scheduling is not None and self._joint.scheduling.goes_whole(group)

    def evaluated(self, snapshot: IdleSnapshot, evaluation: Evaluation) -> None:
        """Record an evaluation; the scheduling plane continues with demands without victims."""
        waiting = {w.key: w for w in snapshot.workloads if w.status.phase is Phase.PENDING_GPU}
        served = {
            key_of(plan.preemptor.namespace, plan.preemptor.name)
            for plan in evaluation.plans
            if plan.preemptor is not None
        }
        unanswered = served | self._releases.unanswered
        answered = {
            (key, waits_for_quota(snapshot, key))
            for key in waiting.keys() - unanswered
            if self._is_whole(waiting[key])
        }
        before, self._answered = self._answered, frozenset(answered)
        self._wake(waiting[key] for key, _ in self._answered - before)

    def refused(self, plan: Plan, snapshot: IdleSnapshot) -> None:
        """Record a plan that the scheduling plane does not confirm."""
        demand = _demand_of(plan, snapshot)
        if demand is not None and self._is_whole(demand):
            self._answered |= {(demand.key, waits_for_quota(snapshot, demand.key))}
            self._wake((demand,))

    def begun(self, plan: Plan, snapshot: IdleSnapshot) -> None:
        """Have the scheduling plane keep the capacity that a plan frees."""
        demand = _demand_of(plan, snapshot)
        self._claim({Uid(uid): node for uid, node in plan.placement})
        if demand is not None:
            self._wake((demand,))

    def keep(self, spec: PreemptionSpec) -> None:
        """Have it keep that capacity for another minute."""
        self._claim({Uid(place.uid): place.node for place in spec.placement})

    def _claim(self, nodes: Mapping[Uid, str]) -> None:
        # Other demands must not use the nodes before all victims are seen to leave.
        if self._joint.scheduling is not None:
            self._joint.scheduling.claim(nodes)

    def evicted(self, spec: PreemptionSpec) -> None:
        """Have the scheduling plane continue with a demand whose idle victims are on their way."""
        self.keep(spec)
        if self._joint.scheduling is not None:
            self._joint.scheduling.wake([Uid(place.uid) for place in spec.placement])

    async def refusal(self, plan: Plan, rows: Mapping[GpuWorkloadKey, Workload]) -> str:
        """Return why the scheduling plane would not place the demand of a plan; empty if it would.

        A demand that it does not schedule is proven by the plan alone.
        """
        scheduling, preemptor = self._joint.scheduling, plan.preemptor
        if scheduling is None or preemptor is None:
            return ""
        demand = rows.get(key_of(preemptor.namespace, preemptor.name))
        if demand is not None and is_mixed(plan) and plan.placement:
            going = {victim.root.uid for victim in plan.victims}
            victims = [row for row in rows.values() if row.root.uid in going]
            return await self._mixtures.refusal(demand, victims)
        pods = [Uid(uid) for uid, _ in plan.placement]
        pending = [found for uid in pods if (found := self._pod_of(uid)) is not None]
        names = _scheduler_names(pending)
        if demand is None or not names or not all(map(scheduling.schedules, names)):
            return ""
        gone = [Uid(pod.uid) for each in plan.victims for pod in self._ownership.pods_of(each.root)]
        return await scheduling.refused_without(pods, gone, self._eligible_pods(rows))

    def _eligible_pods(self, rows: Mapping[GpuWorkloadKey, Workload]) -> frozenset[Uid]:
        """Return the pods of all work that has been idle for its grace period."""
        now = self._now()
        return frozenset(
            pod.uid
            for row in rows.values()
            if row.status.phase is Phase.IDLE
            and row.status.idle_since is not None
            and now - row.status.idle_since >= row.settings.grace_period
            for pod in row.pods
        )

    def returning(self, plan: Plan, governor: Governor) -> Participant | None:
        """Return as whom the demand of a plan was displaced, None where it was not.

        Pods of a Deployment are known by its ReplicaSet, the demand by the Deployment.
        """
        demand = plan.preemptor
        held = demand and self._workloads.get(key_of(demand.namespace, demand.name))
        if not held:
            return None
        lineages = lineages_of(held.root, self._ownership.pods_of(held.root))
        now = self._now()
        return next(
            (Participant(e) for e in lineages if governor.displaced(Participant(e), now)), None
        )

    def places(self, plan: Plan) -> bool:
        """Whether our scheduling plane is the one that places the demand of a plan."""
        scheduling = self._joint.scheduling
        pods = (self._pod_of(Uid(uid)) for uid, _ in plan.placement)
        names = _scheduler_names(pod for pod in pods if pod is not None)
        return scheduling is not None and bool(names) and all(map(scheduling.schedules, names))

    def _is_whole(self, demand: Workload) -> bool:
        """Whether all pods that wait with those of a demand are seen as its own."""
        scheduling = self._joint.scheduling
        pods = [pod.uid for pod in demand.pods if pod.node is None]
        return scheduling is None or scheduling.waiting_with(pods) <= set(pods)

    def is_placed_by_us(self, demand: Workload) -> bool:
        """Whether all pods of a demand are seen, and wait for our scheduling plane."""
        waiting = pending_pods(demand)
        pods = [self._pod_of(pod.uid) for pod in waiting]
        names = _scheduler_names(pod for pod in pods if pod is not None)
        scheduling = self._joint.scheduling
        return (
            scheduling is not None
            and bool(names)
            and all(map(scheduling.schedules, names))
            and not any(pod.gated for pod in waiting)
            and self._is_whole(demand)
        )

    async def with_named(
        self, snapshot: IdleSnapshot, evaluation: Evaluation, now: Nanos
    ) -> IdleSnapshot | None:
        """Return the snapshot with what other planes named; None where they named nothing."""
        released = await self._releases.named(snapshot, evaluation, now)
        work = idle_work(snapshot, evaluation)
        units = self._releases.units(work)
        taken = [uid for each in released.values() for uid in each.roots]
        mixed = await self._mixtures.named(snapshot, evaluation, work, units, taken, now)
        if not released and not mixed:
            return None
        return replace(snapshot, released=released, mixed=mixed)

    def _wake(self, demands: Iterable[Workload]) -> None:
        demands = tuple(demands)
        scheduling, quota = self._joint.scheduling, self._joint.quota
        if quota is not None:
            quota.wake([key for demand in demands for key in self._releases.keys_of(demand)])
        pods = [pod.uid for demand in demands for pod in demand.pods if pod.node is None]
        if scheduling is not None and pods:
            scheduling.wake(pods)


def _demand_of(plan: Plan, snapshot: IdleSnapshot) -> Workload | None:
    if plan.preemptor is None:
        return None
    key = key_of(plan.preemptor.namespace, plan.preemptor.name)
    return next((each for each in snapshot.workloads if each.key == key), None)


def _scheduler_names(pods: Iterable[PodRecord]) -> set[str]:
    """Return the names of the schedulers of those of the pods that wait for a node."""
    return {
        pod.pending.spec.scheduler_name or DEFAULT_SCHEDULER
        for pod in pods
        if pod.pending is not None
    }
