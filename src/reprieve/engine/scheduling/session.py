"""Several attempts in a row over one snapshot: what one unit gets, the next no longer finds.

A session holds one simulation per profile. A unit that is placed stays in all of them. A unit that
found victims leaves them standing, and the nodes that it was nominated to are kept from units of
lower or equal priority, as are those of nominations in the snapshot. Source: specification 5, 8.7
and 22; the design's "How data flows".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final

from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Nomination, Pending, Snapshot
from reprieve.engine.cluster.trees import MOST_LEVELS, Way
from reprieve.engine.disruptions.questions import Hold
from reprieve.engine.placement.filtering import Placed, PlacementScorer
from reprieve.engine.placement.profile import Policy, Profile, policy_text
from reprieve.engine.placement.reasons import Code
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.gangs.cycle import GangGroup, schedule_alone, schedule_gang
from reprieve.engine.scheduling.gangs.job import NO_JOBS, JobOptions, JobReason
from reprieve.engine.scheduling.group import endless_tree, missing_group, schedule_group
from reprieve.engine.scheduling.group_preemption import preempt_for_group
from reprieve.engine.scheduling.nodes.claims import deallocate_claims, deallocations
from reprieve.engine.scheduling.nodes.domains import GroupPlacing
from reprieve.engine.scheduling.nodes.leaving import (
    DEFERRED,
    NONE_DEFERRED,
    Delayed,
    are_named,
    leaving_slots,
    room_on_its_way,
    with_gone,
    without_room,
)
from reprieve.engine.scheduling.nodes.nominated import Nominated
from reprieve.engine.scheduling.nodes.placing import Choose, best_node, place_members
from reprieve.engine.scheduling.nodes.reservations import with_reservations
from reprieve.engine.scheduling.nodes.tree_placing import in_placement_order, place_unit
from reprieve.engine.scheduling.outcome import (
    Attempt,
    Explanation,
    Member,
    Preemption,
    Sentence,
    Unit,
)
from reprieve.engine.scheduling.plans import plan_of
from reprieve.engine.scheduling.plugins import PostFilter
from reprieve.engine.scheduling.pod import PodPostFilter, schedule_pod
from reprieve.engine.scheduling.pod_preemption import preempt_for_pod
from reprieve.engine.scheduling.victims.hierarchy import as_preemptor, trees_of
from reprieve.engine.scheduling.victims.left_alone import Allowed, LeftAlone
from reprieve.units.ids import Uid

__all__ = ["GROUP_POST_FILTERS", "Session"]

GROUP_POST_FILTERS: Final[Mapping[str, PostFilter]] = MappingProxyType(
    {"DynamicResources": deallocate_claims, "DefaultPreemption": preempt_for_group}
)


@dataclass(frozen=True, slots=True)
class _Turn:
    """A unit whose turn it is, as whom it is looked at.

    `group`: as a preemptor; `gang`: of an older API; `job`: a pod in no group that preempts
    as a job of an older gang does.
    """

    unit: Unit
    queued: list[Pending]
    group: GroupRow | None
    gang: GangGroup | None
    job: bool
    profile: Profile
    priority: int


class Session:
    """Attempts over one snapshot.

    `plugins`: PodGroupPostFilter plugins by name, our own and those of others. `choose`: which of
    the nodes that pass is used; by scores unless the caller states otherwise. `overdue`: victims
    that should have ended by now; no work waits for them, and no plan counts on them again.
    `gangs`: groups of older APIs by the key of their unit; `jobs`: how they preempt. `now`:
    Unix seconds, for a policy that is `timed`. `scorers`: placement scorers of others, by name.
    `preempt_pod`: preemption for a plain pod. `holds`: which work is held from which unit, and
    until when.
    `waits`: units for which no work is evicted yet.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        *,
        plugins: Mapping[str, PostFilter] = GROUP_POST_FILTERS,
        overdue: Collection[Uid] = (),
        choose: Choose = best_node,
        gangs: Mapping[str, GangGroup] = MappingProxyType({}),
        jobs: JobOptions = NO_JOBS,
        now: int = 0,
        scorers: Mapping[str, PlacementScorer] = MappingProxyType({}),
        preempt_pod: PodPostFilter = preempt_for_pod,
        holds: Mapping[Unit, Mapping[Uid, Hold]] = MappingProxyType({}),
        waits: Delayed = NONE_DEFERRED,
    ) -> None:
        self.snapshot = snapshot
        self._waits = waits
        self._planned_victims: set[Uid] = set()
        self._gangs = gangs
        self._jobs = jobs
        self._policy = policy
        self._plugins = plugins
        self._choose = choose
        self._now = now
        self._allowed = Allowed(snapshot, policy, overdue, now, jobs)
        self._scorers = scorers
        self._preempt_pod = preempt_pod
        self._holds = holds
        self._simulations: dict[str, Simulation] = {}
        self._placed: list[Placed] = []
        self._nominated = Nominated(snapshot, policy)

    @property
    def nominations(self) -> tuple[Nomination, ...]:
        """Return the nominations that are respected now: the snapshot's and those made since."""
        return self._nominated.all()

    def attempt(self, unit: Unit) -> Attempt | None:
        """Run one scheduling cycle of a unit.

        None: the unit needs victims, and pods that this session has placed could be among them;
        the caller makes a new snapshot, which has them, and calls again.
        """
        if self._waits.saving and (fits := self.placed(unit)) is not None:
            return fits
        turn = self._turn(unit)
        if isinstance(turn, Attempt):
            return turn
        queued = turn.queued
        simulation = self._simulation(turn.profile.scheduler_name)
        own = frozenset(pending.row.uid for pending in queued)
        self._nominated.respect(simulation, own, unit.group, turn.priority)
        before = simulation.evictable
        left_alone = self._leave_alone(simulation, turn)
        self._only_among(simulation, unit)
        attempt = self._scheduled(simulation, turn)
        simulation.evictable = before
        if self._placed and _found_among_placed(attempt):
            return None
        attempt = self._planned(attempt, turn)
        if attempt.plan is None and _looked_for_victims(attempt):
            attempt = left_alone.counted(attempt, self.snapshot, self._policy, turn.priority)
        attempt = with_reservations(simulation, attempt)
        if unit in self._waits.patient:
            attempt = without_room(attempt)
        if attempt.code is Code.UNSCHEDULABLE and not _has_room(attempt):
            attempt = replace(attempt, delayed=self._waits.delayed.get(unit))
        plugins = turn.profile.pod_group_post_filters if unit.group else turn.profile.post_filters
        if attempt.code is Code.UNSCHEDULABLE and "DynamicResources" in plugins:
            attempt = replace(attempt, deallocations=deallocations(simulation, queued))
        self._remember(attempt, queued, turn.group, simulation)
        return attempt

    def placed(self, unit: Unit) -> Attempt | None:
        """Run a unit's cycle if it fits as it is; None: it does not, and nothing has changed.

        A gang of an older API is not tried: what it is given may have to wait.
        """
        turn = self._turn(unit)
        if isinstance(turn, Attempt) or turn.gang is not None or turn.job:
            return None
        simulation = self._simulation(turn.profile.scheduler_name)
        start = simulation.search_start
        own = frozenset(pending.row.uid for pending in turn.queued)
        self._nominated.respect_beside(
            simulation, own, unit.group, turn.priority, self._waits.saving
        )
        if turn.group is None:
            attempt = schedule_pod(
                simulation, unit, turn.queued[0], self._policy, self._choose, _nobody
            )
        else:
            attempt = schedule_group(
                simulation, unit, turn.group, turn.queued, self._policy, self._choose, ()
            )
        if attempt.code is not Code.SUCCESS or not any(each.bind for each in attempt.members):
            simulation.search_start = start
            return None
        attempt = with_reservations(simulation, attempt)
        self._remember(attempt, turn.queued, turn.group, simulation)
        return attempt

    def places_all(
        self, units: Iterable[Unit], gone: Collection[Uid] = (), ahead: Collection[Unit] = ()
    ) -> bool:
        """Return whether all of these units have nodes without `gone`, and what ends.

        `ahead`: those whose turn comes first, which use nodes where they fit. The session is of no
        further use: its simulations are changed.
        """
        emptied: set[str] = set()
        first = len(ahead)
        for number, unit in enumerate((*ahead, *units)):
            turn = self._turn(unit)
            if isinstance(turn, Attempt):
                if number < first:
                    continue
                return False
            name = turn.profile.scheduler_name
            simulation = self._simulation(name)
            own = frozenset(pending.row.uid for pending in turn.queued)
            self._nominated.respect(simulation, own, unit.group, turn.priority)
            if name not in emptied:
                emptied.add(name)
                simulation.remove(leaving_slots(simulation, gone, self._waits.slots))
            before = simulation.checkpoint() if number < first else None
            if turn.group is None:
                found, _ = place_members(simulation, turn.queued, 0, len(turn.queued), self._choose)
                failed = found.failure is not None or found.error
            else:
                placing = place_unit(
                    simulation, turn.group, turn.queued, self._policy, self._choose
                )
                failed = placing.failure is not None or placing.error
            if failed and before is not None:
                simulation.rollback(before)
            elif failed:
                return False
        return True

    def _turn(self, unit: Unit) -> _Turn | Attempt:
        """Return as whom a unit is looked at, or what became of it without a look at any node."""
        queued = [self.snapshot.pending[uid] for uid in unit.pods if uid in self.snapshot.pending]
        queued = [pending for pending in queued if not pending.row.deleting]
        if not queued:
            return Attempt(unit, Code.SUCCESS, ())
        key = unit.group
        group = self._group(key)
        if key and group is None and key not in self._gangs:
            return missing_group(unit)
        if group is not None:
            if self._endless(group):
                return endless_tree(unit, MOST_LEVELS)
            if group.composite:
                queued = in_placement_order(self.snapshot, group, queued)
                if not queued:
                    return Attempt(unit, Code.SUCCESS, ())
            group = as_preemptor(self.snapshot, self._policy, group, queued)
        name = self._scheduler_name(queued[0])
        profile = self._policy.profile(name)
        if profile is None:
            members = tuple(Member(pending.row.uid) for pending in queued)
            status = (Explanation(Sentence.NO_PROFILE, (name,)),)
            return Attempt(unit, Code.ERROR, members, status, scheduler_error=True)
        if group is not None:
            priority = group.priority
        else:
            # Members of an older gang may differ: none may use what is kept for a unit above it.
            priority = min(pending.row.priority for pending in queued)
        gang = self._gangs.get(key)
        job = gang is None and not key and self._is_job(queued[0], name)
        return _Turn(unit, queued, group, gang, job, profile, priority)

    def _leave_alone(self, simulation: Simulation, turn: _Turn) -> LeftAlone:
        """Show the simulation which pods may be a victim of this unit; return which may not."""
        gangs: Sequence[Sequence[Uid]] = ()
        if turn.gang is not None:
            gangs = turn.gang.others
        elif turn.job:
            gangs = [uids for _, uids in self._jobs.gangs]
        return self._allowed.leave_alone(simulation, self._holds.get(turn.unit, {}), gangs)

    def _scheduled(self, simulation: Simulation, turn: _Turn) -> Attempt:
        """Look for nodes, and for victims, as a unit of its kind does."""
        unit, queued, choose = turn.unit, turn.queued, self._choose
        deferred = self._waits.holds(unit)
        jobs = replace(self._jobs, enabled=False) if deferred else self._jobs
        if turn.gang is not None:
            return schedule_gang(simulation, unit, turn.gang, queued, jobs, choose)
        if turn.job:
            return schedule_alone(simulation, unit, queued[0], jobs, choose)
        gone = self._waits.without.get(unit, frozenset())
        waits = deferred or bool(gone) or unit in self._waits.patient
        if turn.group is None:
            preempt = self._preempt_pod
            if waits:
                preempt = partial(self._preempt_later, deferred, gone)
            return schedule_pod(simulation, unit, queued[0], self._policy, choose, preempt)
        plugins = [
            (name, self._plugins[name])
            for name in turn.profile.pod_group_post_filters
            if name in self._plugins
        ]
        if gone:
            known = self._waits.slots
            plugins = [(name, partial(with_gone, gone, known, each)) for name, each in plugins]
        if waits:
            later = partial(self._preempt_group_later, gone)
            plugins = [("Joint", later), *(() if deferred else plugins)]
        return schedule_group(simulation, unit, turn.group, queued, self._policy, choose, plugins)

    def _only_among(self, simulation: Simulation, unit: Unit) -> None:
        """Allow only the pods that are named for a unit as its victims, where some are."""
        among = self._waits.among.get(unit)
        if among is not None:
            simulation.evictable = simulation.evictable & are_named(
                self.snapshot, among, self._waits.slots
            )

    def _preempt_later(
        self,
        deferred: bool,
        gone: frozenset[Uid],
        simulation: Simulation,
        pending: Pending,
        policy: Policy,
    ) -> Preemption:
        """Wait for pods that end; else evict nothing yet, or preempt without `gone`."""
        planned, choose = self._planned_victims | gone, self._choose
        known = self._waits.slots
        waits = room_on_its_way(simulation, None, [pending], policy, choose, planned, known)
        if waits is not None:
            return waits
        if deferred:
            return DEFERRED
        return with_gone(gone, known, self._preempt_pod, simulation, pending, policy)

    def _preempt_group_later(
        self,
        gone: frozenset[Uid],
        simulation: Simulation,
        group: GroupRow,
        queued: Sequence[Pending],
        policy: Policy,
        choose: Choose,
        failed: GroupPlacing,
    ) -> Preemption:
        """Wait for pods that end; else leave it to the plugins after this one, if any."""
        del failed
        planned, known = self._planned_victims | gone, self._waits.slots
        waits = room_on_its_way(simulation, group, queued, policy, choose, planned, known)
        return waits or DEFERRED

    def _planned(self, attempt: Attempt, turn: _Turn) -> Attempt:
        """Return the attempt with the plan of the victims that it found, if it has none yet."""
        found = attempt.preemption
        if (
            found is None
            or attempt.plan is not None
            or not (found.code is Code.SUCCESS and found.evaluated)
        ):
            return attempt
        preemptor: GroupRow | Pending = turn.queued[0] if turn.group is None else turn.group
        text = policy_text(self._policy)
        # Where only some pods may be victims the least costly ones are not looked for in earnest.
        best = self._policy.best and turn.unit not in self._waits.among
        plan = plan_of(self.snapshot, preemptor, turn.queued, found, text, best=best)
        return replace(attempt, plan=plan)

    def _is_job(self, pending: Pending, scheduler_name: str) -> bool:
        """Return whether a pod in no group preempts as a job of an older gang does."""
        jobs = self._jobs
        return bool(pending.row.gang or (jobs.enabled and scheduler_name in jobs.names))

    def _group(self, key: str) -> GroupRow | None:
        index = self.snapshot.group_index.get(key, -1)
        return self.snapshot.group_rows[index] if index >= 0 else None

    def _endless(self, group: GroupRow) -> bool:
        trees = trees_of(self.snapshot, self._policy)
        index = self.snapshot.group_index[group.key]
        return trees is not None and trees.way(index) is Way.ENDLESS

    def _scheduler_name(self, pending: Pending) -> str:
        entry = self.snapshot.classes[pending.pod_class]
        assert entry is not None, "a pod's class is never free"
        return entry.scheduler_name

    def _simulation(self, name: str) -> Simulation:
        known = self._simulations.get(name)
        if known is None:
            profile = self._policy.profile(name)
            assert profile is not None
            known = self._simulations[name] = Simulation(self.snapshot, self._policy, profile)
            known.now = self._now
            known.scorers = self._scorers
            known.evictable = self._allowed.anybody()
            for pod in self._placed:
                assert pod.pending is not None
                known.place(pod.pending, pod.node)
        return known

    def _remember(
        self,
        attempt: Attempt,
        queued: Sequence[Pending],
        group: GroupRow | None,
        simulation: Simulation,
    ) -> None:
        if attempt.plan is not None:
            self._planned_victims.update(victim.root.uid for victim in attempt.plan.victims)
        index = self.snapshot.node_index
        by_uid = {pending.row.uid: pending for pending in queued}
        for member in attempt.members:
            pending = by_uid[member.uid]
            if member.bind:
                self._nominated.end(member.uid)
                pod = Placed(pending.pod_class, pending.labels, index[member.bind], pending=pending)
                self._placed.append(pod)
                for other in self._simulations.values():
                    if other is not simulation:
                        other.place(pending, pod.node)
            elif isinstance(member.nominate, str):
                row = pending.row
                of_pod = group is not None and group.composite
                key = f"{row.namespace}/{row.group}" if of_pod else attempt.unit.group
                self._nominated.add(
                    Nomination(
                        member.uid,
                        row.namespace,
                        row.name,
                        index.get(member.nominate, -1),
                        row.priority if group is None else group.priority,
                        self.snapshot.group_index.get(key, -1),
                        pending.pod_class,
                        pending.labels,
                    )
                )


def _has_room(attempt: Attempt) -> bool:
    """Return whether the unit was nominated by preemption, or waits for what ends already."""
    found = attempt.preemption
    return attempt.plan is not None or (found is not None and found.code is Code.SUCCESS)


def _nobody(simulation: Simulation, pending: Pending, policy: Policy) -> Preemption:
    """Look for no victims."""
    del simulation, pending, policy
    return DEFERRED


def _found_among_placed(attempt: Attempt) -> bool:
    """Return whether victims were looked for, among whom pods that were just placed could be."""
    found = attempt.preemption
    if found is not None and found.evaluated:
        return True
    job = attempt.gang.job if attempt.gang is not None else None
    return job is not None and job.reason is JobReason.NOT_HELPFUL


def _looked_for_victims(attempt: Attempt) -> bool:
    if attempt.gang is not None:
        job = attempt.gang.job
        return job is not None and job.reason is JobReason.NOT_HELPFUL
    found = attempt.preemption
    return found is not None and found.evaluated and found.code is not Code.SUCCESS
