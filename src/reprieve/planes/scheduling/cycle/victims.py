"""What a victim of the scheduling plane is: a pod that is deleted, until its watch shows it.

1. Pods of a unit are marked before any victim is deleted; others are marked as they are deleted.
2. All victims but the last are evicted; the last is evicted when the calls for all others have
   succeeded.
3. A victim that does not end in time, its own grace period and some slack, is planned around:
   event, metric, and the preemptor is ready. So is one that may not be deleted, though others of
   its unit have been: that is tried again for ten minutes.
4. The preemptor is served when each of its pods has a node, or is not nominated any more.

Source: specification 9; the design's "Intent log and executor".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kubeworld.units.durations import MINUTE, SECOND, format_duration
from reprieve.api.reprieve import Preemption, Victim, VictimStatus
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.cluster.trees import Way
from reprieve.engine.lost_work import devices_of
from reprieve.engine.notice.granting import Grant
from reprieve.engine.plan import Plan, Plane
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.victims.harm import lost_by
from reprieve.execution.letting_save import Depth
from reprieve.execution.not_evictable import NotEvictable
from reprieve.execution.notices import Asking, Member, Notices
from reprieve.execution.pod_victims import DEFAULT_GRACE, PodVictims
from reprieve.execution.takeover import LET_GO
from reprieve.execution.victims import Manner, Marked, Reading, VictimResult
from reprieve.intake.lineage import pod_participant
from reprieve.kube.bodies import Json
from reprieve.planes.scheduling.context import SchedulingContext, log
from reprieve.planes.scheduling.cycle.notice_terms import allowed_by, asked_by
from reprieve.planes.scheduling.cycle.open_plans import OpenPlans
from reprieve.planes.scheduling.cycle.preemptor import Preemptor
from reprieve.planes.scheduling.cycle.remaining_proof import FITS, fits_by_now, why_not_finished
from reprieve.planes.scheduling.references import pod_reference, reference_of
from reprieve.planes.scheduling.state import ClusterState
from reprieve.records.plans.at_stake import AtStake, Stake, lineage_of
from reprieve.telemetry.metrics import Remembered
from reprieve.units.ids import Uid
from reprieve.wording import kube_scheduler as wording

__all__ = ["HELD", "SchedulingVictims"]

#: For how long a preemptor is held while what is left of a unit is tried again.
HELD: Final = 7 * SECOND
_MANNER: Final = Manner(
    last_alone=True, whole=True, rest_is_marked=True, given_up_after=10 * MINUTE
)


class SchedulingVictims:
    """The victims of one plane."""

    manner = _MANNER

    def __init__(
        self, context: SchedulingContext, state: ClusterState, not_evictable: NotEvictable
    ) -> None:
        self._context = context
        self._not_evictable = not_evictable
        self._state = state
        self.open_plans = OpenPlans(state)
        self._pods = PodVictims(
            context.full_client,
            context.fence,
            context.clock,
            evicted=self._evicted,
            seen=self._seen_metadata,
            changed=self._changed,
            refused=self._refused,
            too_long=self._too_long,
            unanswered=not_evictable.unanswered,
        )
        context.metrics.remembers(Remembered.EVICTED_PODS, lambda: self._pods.remembers)
        # For whom the plans of this process are, by record.
        self._preemptors: dict[str, Preemptor] = {}
        self._graces: dict[Uid, int] = {}
        self._deadlines: dict[tuple[str, str], int] = {}  # by record and victim, monotonic
        # What plans of this process were decided on, by victim.
        self._decided_on: dict[str, tuple[object, ...]] = {}
        # After how many helpful changes it was last checked whether a preemptor fits, by record.
        self._fitted_on: dict[str, int] = {}

    def begin(self, intent: Preemption, preemptor: Preemptor) -> None:
        """A plan of this process is about to be carried out."""
        self._preemptors[intent.metadata.name] = preemptor
        message = preemptor.message or wording.disruption_message(
            preemptor.scheduler_name, preemptor.kind
        )
        self._pods.announce(intent, message)
        for victim in intent.spec.victims:
            row = self._state.pod(Uid(victim.root.uid))
            if row is not None:
                self._decided_on[row.uid] = _decisive(row)

    def forget(self, intent: Preemption) -> None:
        """A plan is over."""
        name = intent.metadata.name
        self._preemptors.pop(name, None)
        self._fitted_on.pop(name, None)
        self._pods.forget(intent)
        for victim in intent.spec.victims:
            self._graces.pop(Uid(victim.root.uid), None)
            self._deadlines.pop((name, victim.root.uid), None)
            self._decided_on.pop(victim.root.uid, None)

    def at_stake(self, plan: Plan) -> AtStake:
        """Return what a plan costs whom; who is not known any more is a lineage of its own."""
        pods = [uid for uid, _ in plan.placement]
        if plan.preemptor is not None:
            pods.append(plan.preemptor.uid)
        needy = next((row for uid in pods if (row := self._state.pod(uid)) is not None), None)
        return AtStake(
            "" if needy is None else lineage_of(pod_participant(needy)),
            [self._stake(victim.root.uid) for victim in plan.victims],
        )

    def lost_with(self, plan: Plan) -> list[int]:
        """Return the device-seconds that are lost with each victim of a plan."""
        return [self._stake(Uid(victim.root.uid)).lost_device_seconds for victim in plan.victims]

    def lost_with_pod(self, row: PodRow) -> int:
        """Return the device seconds that are lost with a pod."""
        group = self._state.group(f"{row.namespace}/{row.group}") if row.group else None
        claimed = self._state.objects.devices_of(row)
        return lost_by(row, group, self._context.clock.wall() // SECOND, claimed)

    def deadline(self, preemptor: str) -> int | None:
        """Return by when all victims of a preemptor, by its key, are to have ended: monotonic.

        None where none is on its way, or a former process began it.
        """
        records = {name for name, each in self._preemptors.items() if each.key == preemptor}
        ends = (end for (record, _), end in self._deadlines.items() if record in records)
        return max(ends, default=None)

    # What the executor queries.

    def gets_notice(self, victim: Victim) -> bool:
        return bool(victim.unit)

    async def stale(self, intent: Preemption, victims: Sequence[Victim]) -> str:
        if len(victims) == len(intent.spec.victims):
            return ""  # It was compared with what has happened just before it was recorded.
        if not self.needed(intent):
            return LET_GO
        return self._why_not_finished(intent, victims)

    def _why_not_finished(self, intent: Preemption, victims: Sequence[Victim]) -> str:
        context, rows = self._context, self.waiting(intent)
        now = context.clock.wall() // SECOND if context.policy.timed else 0
        snapshot, overdue = self._state.cluster.snapshot(), self._state.overdue
        beside = self.open_plans.leaving_beside(intent)
        return why_not_finished(
            intent, victims, rows, snapshot, context.policy, now, overdue, beside
        )

    async def mark(self, intent: Preemption, victim: Victim) -> Marked[Json] | VictimResult:
        return await self._pods.mark(intent, victim)

    async def spare(self, intent: Preemption, victim: Victim, mark: Json | None, why: str) -> None:
        await self._pods.spare(mark)

    async def evict(
        self, intent: Preemption, victim: Victim, mark: Json | None, *, again: bool
    ) -> VictimResult | None:
        return await self._pods.evict(intent, victim, mark, again=again)

    async def read(self, intent: Preemption, victim: Victim, *, elsewhere: bool) -> Reading[Json]:
        return await self._pods.read(intent, victim, elsewhere=elsewhere)

    def needed(self, intent: Preemption) -> bool:
        """Whether a pod of the preemptor still waits for a node, with all groups above it there."""
        waiting = self.waiting(intent)
        groups = {f"{row.namespace}/{row.group}" for row in waiting if row.group}
        if not self._context.policy.gates.generic_workload:
            groups.clear()
        return bool(waiting) and all(self._state.root(key)[0] is not Way.MISSING for key in groups)

    def waiting(self, intent: Preemption) -> list[PodRow]:
        """Return the pods that a plan evicts for, as far as they still wait for a node."""
        return self.open_plans.waiting(intent)

    def observe(
        self, intent: Preemption, victim: Victim, state: VictimStatus | None
    ) -> VictimResult | None:
        assert state is not None, "a pod is on its way because of what its eviction came to"
        row, now = self._state.pod(Uid(victim.root.uid)), self._context.clock.monotonic()
        name = intent.metadata.name, victim.root.uid
        if row is not None and not row.finished:
            deadline = self._deadlines.get(name)
            if deadline is None:
                grace = self._graces.pop(row.uid, DEFAULT_GRACE) * SECOND
                longest = self._context.settings.max_grace
                grace = min(grace, longest) if longest else grace
                deadline = now + grace + self._context.settings.victim_deadline
                self._deadlines[name] = deadline
            # Nobody sees it end on a node that does not report, and nothing starts there either.
            if now < deadline and row.node not in self._state.unreachable:
                return None
            self._overdue(intent, row.uid)
        return VictimResult(state.state, state.message)

    def served(self, intent: Preemption) -> bool:
        for place in intent.spec.placement:
            row = self._state.pod(Uid(place.uid))
            if row is not None and not row.node and row.nominated:
                return False
        return True

    def held_up(self, intent: Preemption, left: Sequence[tuple[Victim, str]], since: int) -> None:
        if since >= HELD or intent.metadata.name not in self._preemptors:
            self._state.overdue.update(Uid(victim.root.uid) for victim, _ in left)

    # Notice.

    def notices(self, plan: Plan, preemptor: Preemptor, notices: Notices) -> Sequence[Grant]:
        """Return the notice of each victim of a plan before its eviction, empty for none."""
        urgent = self._context.governor.policy.emergency_priority
        hurried = urgent is not None and preemptor.about.priority >= urgent
        asking = []
        for victim in plan.victims:
            uid = victim.root.uid
            row = self._state.pod(Uid(uid))
            unit = victim.unit or str(uid)
            asking.append(Asking(unit, (), (uid,)) if row is None else self._asking(unit, row))
        settings, waiting = self._context.settings, None
        if settings.policy.harm_order:
            rows = (self._state.pod(uid) for uid, _ in plan.placement)
            waiting = sum(self._devices_of(row) for row in rows if row is not None)
        return notices.grants(settings.notice, asking, hurried=hurried, devices=waiting)

    def _asking(self, unit: str, row: PodRow) -> Asking:
        devices, (asked, save) = self._devices_of(row), asked_by(self._state, row)
        return Asking(
            unit,
            (asked * SECOND,),
            (row.uid,),
            allowed_by(self._state, row),
            undone=self.lost_with_pod(row) * SECOND // devices if devices else 0,
            devices=devices,
            save=save * SECOND,
            lineage=lineage_of(pod_participant(row)),
        )

    def _devices_of(self, row: PodRow) -> int:
        return devices_of(row.pod_class.requests) + self._state.objects.devices_of(row)

    def members(self, victim: Victim) -> Sequence[Member]:
        uid = victim.root.uid
        row = self._state.pod(Uid(uid))
        if row is None:
            return (Member(uid, ended=True),)
        return (Member(uid, row.speaks, row.finished, row.name),)

    @property
    def keeps(self) -> bool:
        return False

    def keep(self, victims: Sequence[Victim]) -> str:
        return ""

    def why_pardoned(self, intent: Preemption, depth: Depth) -> str:
        if not self.needed(intent):
            return LET_GO
        if depth is Depth.WANTED:
            return ""
        self.open_plans.claim(intent, self._context.clock.monotonic())
        context, rows, name = self._context, self.waiting(intent), intent.metadata.name
        helped = self._state.cluster.progress.helped
        if depth is Depth.HOLDS or self._fitted_on.get(name) != helped:
            self._fitted_on[name] = helped
            now = context.clock.wall() // SECOND if context.policy.timed else 0
            snapshot, overdue = self._state.cluster.snapshot(), self._state.overdue
            unit = self._unit(rows, snapshot)
            if fits_by_now(unit, snapshot, context.policy, now, overdue):
                return FITS
        holds = depth is Depth.HOLDS
        return self._why_not_finished(intent, intent.spec.victims) if holds else ""

    def _unit(self, rows: Sequence[PodRow], snapshot: Snapshot) -> Unit:
        """Return the pods of a preemptor with the root of their groups."""
        group = f"{rows[0].namespace}/{rows[0].group}" if rows[0].group else ""
        root = self._state.root(group)[1] if group else ""
        return Unit(tuple(row.uid for row in rows), root if root in snapshot.group_index else "")

    # What is reported.

    def _overdue(self, intent: Preemption, uid: Uid) -> None:
        row = self._state.pod(uid)
        if row is None:
            return
        log.warning(
            "victim %s/%s does not terminate: other victims are chosen", row.namespace, row.name
        )
        self._context.scheduler_metrics.overdue_victims.inc()
        self._state.overdue.add(uid)
        preemptor = self._preemptors.get(intent.metadata.name)
        if preemptor is not None:
            text = wording.victim_overdue(row.namespace, row.name)
            self._context.announce(pod_reference(row), text, preemptor.scheduler_name)
            self._state.queue.activate((preemptor.key,), self._context.clock.monotonic())

    def _changed(self, victim: Victim, pod: Json) -> str:
        """Return why a pod is no victim any more, as it is now; empty where it still is one."""
        before, row = self._decided_on.get(victim.root.uid), self._state.pod(Uid(victim.root.uid))
        if before is None or row is None:
            return ""
        # What the watch shows is read already; the rest of it cannot change.
        spec = pod["spec"]
        fresh = spec.get("priority", row.priority), spec.get("nodeName", row.node)
        if before == _decisive(row) and fresh == (row.priority, row.node):
            return ""
        return f"{victim.root.namespace}/{victim.root.name} is not what the plan was decided on"

    def _too_long(self, victim: Victim, grace: int) -> str:
        """Return why a victim is passed over that would need so many seconds to leave.

        One that is chosen again after it was passed by is the only one there is.
        """
        longest = self._context.settings.max_grace
        if not longest or grace * SECOND <= longest or victim.root.uid in self._not_evictable:
            return ""
        return f"its grace period of {grace} s is longer than {format_duration(longest)} (maxGrace)"

    def _refused(self, intent: Preemption, victim: Victim, why: str) -> None:
        root, context = victim.root, self._context
        until = self._not_evictable.refused(root.uid, context.clock.wall())
        text = wording.eviction_refused(root.namespace, root.name, why, until, root.namespace)
        log.warning("plan %s: %s", intent.spec.plan_id, text.message)
        preemptor = self._preemptors.get(intent.metadata.name)
        if preemptor is None:
            return
        about = reference_of(preemptor.about, context.group_version)
        said = wording.eviction_refused(root.namespace, root.name, why, until, about.namespace)
        context.announce(about, said, preemptor.scheduler_name)
        row = self._state.pod(Uid(root.uid))
        if row is not None:
            context.announce(pod_reference(row), text, preemptor.scheduler_name)

    def _evicted(self, intent: Preemption, victim: Victim, grace: int) -> None:
        self._not_evictable.forget(victim.root.uid)
        self._graces[Uid(victim.root.uid)] = grace
        plan: Any = intent.spec.plan_id
        self._context.metrics.count_preemption(plan, Plane.SCHEDULING, victim.rule, "evicted")
        row = self._state.pod(Uid(victim.root.uid))
        if row is not None:
            self._context.metrics.lost_device_seconds.labels(
                Plane.SCHEDULING.value, victim.rule
            ).inc(self.lost_with_pod(row))
        preemptor = self._preemptors.get(intent.metadata.name)
        if preemptor is None:
            return
        root = victim.root
        about = pod_reference(row) if row is not None else root.reference
        text = wording.preempted(preemptor.kind, preemptor.uid, preemptor.target)
        if preemptor.preempted is not None:
            text = preemptor.preempted(row.node if row is not None else "")
        related = reference_of(preemptor.about, self._context.group_version)
        self._context.announce(about, text, preemptor.scheduler_name, related)

    def _stake(self, uid: Uid) -> Stake:
        row = self._state.pod(uid)
        if row is None:
            return Stake(f"object/{uid}")
        return Stake(lineage_of(pod_participant(row)), self.lost_with_pod(row))

    def _seen_metadata(self, victim: Victim) -> dict[str, Any] | None:
        """Return what marks of a victim refer to, None where it leaves or is not known."""
        row = self._state.pod(Uid(victim.root.uid))
        if row is None or row.deleting or row.finished:
            return None
        return {
            "namespace": row.namespace,
            "name": row.name,
            "uid": row.uid,
            "resourceVersion": str(row.version),
            "generation": row.generation,
        }


def _decisive(row: PodRow) -> tuple[object, ...]:
    """Return what the choice of a pod as a victim depends on, whatever else of it is patched."""
    return (
        row.uid,
        row.priority,
        row.node,
        row.group,
        row.gang,
        row.disruption,
        row.protection,
        row.min_runtime,
        row.finished,
    )
