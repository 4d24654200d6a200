"""The idle plane and the governor of disruptions: what a snapshot needs of it, and its reports.

A lineage is what one root has made, and what is submitted again (`lineages`). Before an evaluation,
the snapshot gets as a fact which lineages are held from a demand, or from being evicted for no
work. Reported are plans, demands that came to work (nothing was preempted for them in vain), pods
of theirs that failed, and the end of a root's last pod. Source: specification of disruptions,
section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.instants import Nanos
from reprieve.api.reprieve import ObjectRef, Preemption
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.ledger import Actor
from reprieve.engine.disruptions.lineage import Participant
from reprieve.engine.disruptions.questions import NOBODY, Enforcement, Hold, Question
from reprieve.engine.idle.model import Phase, PreemptionPolicy, Workload
from reprieve.engine.plan import Plan
from reprieve.execution.accounts.returns import Returns
from reprieve.execution.not_evictable import NotEvictable
from reprieve.planes.common.disruptions.displacements import Issued, PlaneDisplacements, Side
from reprieve.planes.common.disruptions.loop_notices import LoopNotices
from reprieve.planes.idle.evaluating.harm import IdleHarm
from reprieve.planes.idle.evaluating.lineages import RootLineages
from reprieve.planes.idle.kept import Kept
from reprieve.planes.idle.records import PodRecord
from reprieve.planes.idle.workloads import TrackedWorkload, TrackedWorkloads, key_of
from reprieve.units.ids import GpuWorkloadKey, Uid
from reprieve.units.references import Reference

__all__ = ["IdleDisplacements"]

_PENDING: Final = Phase.PENDING_GPU
_AT_WORK: Final = (Phase.ACTIVE, Phase.IDLE)


class IdleDisplacements:
    """Requests a snapshot, and reports plans.

    `lost_with`: what work is lost with a root. `loops`: names loops; `returns`: reports when
    displaced work runs again.
    """

    def __init__(
        self,
        governor: Governor,
        workloads: TrackedWorkloads,
        clock: Clock,
        lost_with: Callable[[Reference], int],
        lineages: RootLineages,
        loops: LoopNotices | None = None,
        returns: Returns | None = None,
    ) -> None:
        self._returns = returns
        self.lineages = lineages
        self.reported = PlaneDisplacements(governor, Actor.IDLE, self._waits, loops)
        self.not_evictable = NotEvictable()
        self.kept = Kept()
        self._governor = governor
        self._workloads = workloads
        self._clock = clock
        self._lost_with = lost_with
        self.harm = IdleHarm(governor, lineages, clock, lost_with)
        self._waiting: dict[GpuWorkloadKey, Participant] = {}

    def holds(self, rows: Sequence[Workload]) -> dict[str, Mapping[Uid, Hold]]:
        """Return what is held from each demand, by root, and from none under the empty key."""
        pending = [w for w in rows if w.status.phase is _PENDING]
        demands = {w.key: self.lineages.of(w.root) for w in pending}
        priorities = {w.key: self.lineages.priority(w.root) for w in pending}
        self._note_served(demands)
        idle = [w for w in rows if w.status.phase is Phase.IDLE]
        found: dict[str, Mapping[Uid, Hold]] = {}
        for key, participant in demands.items():
            if self._governor.may_hold(participant):
                found[key] = self._held_from(participant, idle, priorities[key])
        if self._governor.policy.enforcement is not Enforcement.TOLD:
            always = [w for w in idle if w.settings.policy is PreemptionPolicy.ALWAYS]
            found[""] = self._held_from(NOBODY, always)
        if self.harm:
            self._ask_budgets(idle, demands, priorities, found)
        for row in rows:
            if row.status.phase is Phase.ACTIVE:
                self.kept.at_work(row.root.uid)
        now = self._clock.wall()
        refused = {**self.kept.held(now), **self.not_evictable.held(now)}
        if refused:
            found = {key: {**found.get(key, {}), **refused} for key in ("", *demands)}
        return {key: held for key, held in found.items() if held}

    def _ask_budgets(
        self,
        idle: Sequence[Workload],
        demands: Mapping[GpuWorkloadKey, Participant],
        priorities: Mapping[GpuWorkloadKey, int | None],
        found: dict[str, Mapping[Uid, Hold]],
    ) -> None:
        """Add what harm budgets spare from each demand, and from none."""
        self.harm.forget(map(str, demands))
        candidates = self.harm.candidates(idle if demands else ())
        for key, participant in demands.items():
            asks = self.harm.asking(participant, priorities[key])
            found[key] = {**self.harm.held(key, asks, candidates), **found.get(key, {})}
        always = [w for w in idle if w.settings.policy is PreemptionPolicy.ALWAYS]
        spared = self.harm.held("", None, self.harm.candidates(always))
        found[""] = {**spared, **found.get("", {})}

    def refuses(self, plan: Plan) -> bool:
        """Return whether harm budgets do not allow a plan, which is then not recorded."""
        if not self.harm:
            return False
        demand, participant = self._demand(plan), self.demand_of(plan)
        priority = None if demand is None else self.lineages.priority(demand.root)
        key = "" if demand is None else demand.key
        return self.harm.refuses(key, plan, self.harm.asking(participant, priority))

    def issue(self, plan: Plan) -> Issued:
        """Record a plan."""
        demand = self._demand(plan)
        priority = None if demand is None else self.lineages.priority(demand.root)
        return self.reported.issue(
            plan,
            self._clock.wall(),
            self.demand_of(plan),
            [
                Side(
                    self.lineages.of(each.root),
                    self._lost_with(each.root),
                    self._above(priority, each.root),
                    self.harm.side(each.root),
                )
                for each in plan.victims
            ],
            priority=priority or 0,
            asks=self.harm.asking(self.demand_of(plan), priority),
        )

    def priority_of(self, plan: Plan) -> int | None:
        """Return the priority of the demand that a plan is for, None where it is for none."""
        demand = self._demand(plan)
        return None if demand is None else self.lineages.priority(demand.root)

    def demand_of(self, plan: Plan) -> Participant | None:
        """Return the lineage that a plan is for."""
        demand = self._demand(plan)
        return self.lineages.of(demand.root) if demand else None

    def _demand(self, plan: Plan) -> TrackedWorkload | None:
        asks = plan.preemptor
        return None if asks is None else self._workloads.get(key_of(asks.namespace, asks.name))

    def _above(self, priority: int | None, victim: Reference) -> int:
        """Return by how much a priority is higher than a victim's; 0 where one has no pods."""
        other = self.lineages.priority(victim)
        return 0 if priority is None or other is None else priority - other

    def running(self, root: Reference, pods: Iterable[PodRecord]) -> None:
        """These pods are those of this root now."""
        if self._returns is None:
            return
        participant = self.lineages.of(root)
        for pod in pods:
            if pod.row.started is not None and not pod.row.terminating:
                self._returns.runs(participant, pod.uid, Nanos(pod.row.started), root.uid)

    def pod_ended(self, root: Reference) -> None:
        """A pod of this root was deleted."""
        self.lineages.pod_ended(root, self._clock.wall())
        if not any(self._workloads.of_root(root.uid)):
            self.lineages.forget(root.uid)

    def failed(self, root: Reference) -> None:
        """A pod of this root has failed."""
        self._governor.failed(self.lineages.of(root), self._clock.wall())

    def restore(self, intents: Iterable[Preemption], interrupted: Collection[str]) -> None:
        """Adopt what former processes did."""
        self.reported.restore(intents, interrupted)

    def _held_from(
        self, participant: Participant, idle: Iterable[Workload], priority: int | None = None
    ) -> dict[Uid, Hold]:
        now, found = self._clock.wall(), dict[Uid, Hold]()
        known = self._governor.known_by(participant, now)
        if known is not None and not known:
            return found
        for workload in idle:
            victim = self.lineages.of(workload.root)
            if known is not None and known.isdisjoint(victim.names):
                continue
            starts = [pod.started for pod in workload.pods if pod.started is not None]
            since = max(starts, default=None)
            above = self._above(priority, workload.root)
            asked = Question(
                participant, victim, now, priority or 0, above=above, running_since=since
            )
            hold = self._governor.hold(asked)
            if hold is not None:
                found[workload.root.uid] = hold
        return found

    def _note_served(self, demands: Mapping[GpuWorkloadKey, Participant]) -> None:
        """Record which work waited at the last look and works now."""
        now = self._clock.wall()
        for key, participant in self._waiting.items():
            held = self._workloads.get(key)
            if key not in demands and held is not None and held.status.phase in _AT_WORK:
                self._governor.admitted(participant, Nanos(now))
        self._waiting = dict(demands)

    def _waits(self, ref: ObjectRef) -> bool:
        held = self._workloads.get(key_of(ref.namespace, ref.name))
        return held is not None and held.status.phase is _PENDING
