"""Preemption for a whole job: all of its members get a node, or nothing is evicted.

1. one attempt per gang cycle; a member has to be pending; the trigger's policy has to allow it;
2. no victim of an earlier attempt may still be ending on a nominated node;
3. candidates are the nodes whose refusal of the trigger could be mended; with `placement: search`
   the nodes where that is so for any member, and those that a member fits on as they are;
4. possible victims leave the candidates; all members are placed, each beside its siblings;
5. around that placement victims are reprieved, the most important first: higher priority, then job
   key, then name. A unit that cannot return is a victim;
6. with `placement: search` the same is done around what members find in their own order, and the
   smaller set of victims is used: fewer victims of exhausted budgets, then fewer pods, then lower
   priorities, compared from the highest down; among equals that of the search. Where victims are
   chosen by profile `best`, the cheapest of these and of a further search is used (`cheapest`).

The priority compared is the trigger's, for all members. The simulation is left as it was. Source:
specification of gang jobs, sections 6, 7, 9 and 12.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reprieve.engine.cluster.arrays import I64, U8, Mask
from reprieve.engine.cluster.snapshot import Flag, Pending
from reprieve.engine.placement.reasons import RESOLVABLE, Code
from reprieve.engine.placement.simulation import Checkpoint, Simulation
from reprieve.engine.scheduling.gangs.cheapest import Choice, cheapest, placed_exactly
from reprieve.engine.scheduling.gangs.first_fit import Statuses, by_cost, first_fit
from reprieve.engine.scheduling.gangs.job import (
    Budgets,
    Counts,
    Job,
    JobPolicy,
    JobPreemption,
    JobReason,
    NodeVerdict,
    Placement,
    Said,
    VictimGangs,
)
from reprieve.engine.scheduling.gangs.possible import Possible, possible_victims, protected_labels
from reprieve.engine.scheduling.gangs.search import search
from reprieve.engine.scheduling.gangs.victims import victim_units, whole_gangs
from reprieve.engine.scheduling.nodes.nominations import kept_for_others
from reprieve.engine.scheduling.victims.budget_matches import BudgetMatches, budget_matches
from reprieve.engine.scheduling.victims.reprieve import reprieve
from reprieve.engine.scheduling.victims.units import Units

__all__ = ["preempt_for_job", "respect_others"]

_ROUNDS = 8  # placements that are tried while budgets refuse victims

_HELPED = np.zeros(256, np.bool_)
_HELPED[[int(rejection) for rejection in RESOLVABLE]] = True


def preempt_for_job(
    simulation: Simulation,
    job: Job,
    policy: JobPolicy,
    *,
    statuses: U8 | None = None,
    explain: bool = False,
) -> JobPreemption:
    """Return what the job's preemption ends in.

    The simulation respects the nominations of other jobs already (`respect_others`).
    `statuses`: (nodes,) `Rejection` of each node for the trigger, where that is known already.
    `explain`: also report what filters stated of nodes when the preemption succeeds.
    """
    snapshot = simulation.snapshot
    refused = _refused(simulation, job)
    if refused is not None:
        return refused
    before = simulation.checkpoint()
    try:
        codes = simulation.codes(job.trigger).copy() if statuses is None else statuses
        terminating = _terminating(simulation, job, policy, codes)
        if terminating:
            return JobPreemption(
                Code.UNSCHEDULABLE, JobReason.TERMINATING, terminating=tuple(terminating)
            )
        if not len(snapshot.nodes):
            return JobPreemption(Code.ERROR, JobReason.NO_NODES)
        return _DryRun(simulation, job, policy, codes, explain).run()
    finally:
        simulation.rollback(before)


def respect_others(simulation: Simulation, job: Job) -> None:
    """Respect the nominations of other jobs' pods, if their priority is not lower."""
    snapshot = simulation.snapshot
    own = {pending.row.uid for pending in job.pending} | {uid for uid, _ in job.waiting}
    least = min((pending.row.priority for pending in job.pending), default=0)
    simulation.respect(kept_for_others(snapshot, snapshot.nominations, own, "", least))


def _refused(simulation: Simulation, job: Job) -> JobPreemption | None:
    if job.attempted:
        return JobPreemption(Code.UNSCHEDULABLE, JobReason.ALREADY_ATTEMPTED)
    if not job.pending:
        return JobPreemption(Code.UNSCHEDULABLE, JobReason.NO_PENDING_PODS)
    entry = simulation.snapshot.classes[job.trigger.pod_class]
    if entry is not None and not entry.preempts:
        return JobPreemption(Code.UNSCHEDULABLE, JobReason.POLICY_NEVER)
    return None


def _terminating(
    simulation: Simulation, job: Job, policy: JobPolicy, codes: U8
) -> list[tuple[str, str]]:
    snapshot = simulation.snapshot
    nominated = [(p, snapshot.node_index.get(p.row.nominated, -1)) for p in job.pending]
    if all(node < 0 for _, node in nominated):
        return []
    ending = (snapshot.pod_flags & Flag.PREEMPTED > 0) & (snapshot.pod_node >= 0)
    ending &= simulation.evictable & simulation.present
    slots = np.flatnonzero(ending)
    slots = slots[~protected_labels(snapshot, policy)[snapshot.pod_labels[slots]]]
    found: dict[str, str] = {}
    for pending, node in nominated:
        if node < 0:
            continue
        code = int(codes[node])
        if pending.row.uid == job.trigger.row.uid and code and not _HELPED[code]:
            continue
        here = slots[snapshot.pod_node[slots] == node]
        for slot in here[snapshot.pod_priority[here] < pending.row.priority].tolist():
            found[snapshot.pod_keys[slot]] = snapshot.nodes[node].name
    return sorted(found.items())


@dataclass(slots=True)
class _DryRun:
    """One attempt that has passed all conditions."""

    simulation: Simulation
    job: Job
    policy: JobPolicy
    codes: U8
    explain: bool

    def run(self) -> JobPreemption:
        nodes = len(self.simulation.snapshot.nodes)
        members = sorted(self.job.pending, key=lambda p: (p.row.namespace, p.row.name))
        helped = _HELPED[self.codes]
        candidates = helped.copy()
        if self.policy.placement is Placement.SEARCH:
            for pending in _distinct(members):
                codes = self.simulation.codes(pending)
                candidates |= _HELPED[codes] | (codes == 0)
        if not candidates.any():
            verdict: Counts = ((NodeVerdict.NOT_HELPFUL, nodes),)
            everywhere = dict.fromkeys(self._names(range(nodes)), (NodeVerdict.NOT_HELPFUL,))
            return self._failure(everywhere, verdict, members)
        matches = self._budgets()
        present = self._choosable(matches)
        allowed = 0
        for _ in range(_ROUNDS):
            possible, units = self._possible(present, candidates)
            allowed = max(allowed, len(possible.slots))
            result, broken = self._attempt(members, candidates, present, possible, units, matches)
            if not broken:
                break
            present = present.copy()
            present[broken] = False
        else:
            result = self._failure({}, ((NodeVerdict.NO_VICTIMS, nodes),), members)
        if result.reason is not JobReason.NOT_HELPFUL:
            return result
        protected = self._protected(members, candidates, possible)
        return replace(result, allowed=allowed, protected=protected)

    def _protected(self, members: Sequence[Pending], candidates: Mask, possible: Possible) -> int:
        """Return how many pods of lower priority are protected, if all members fit without them."""
        simulation, snapshot = self.simulation, self.simulation.snapshot
        lower = simulation.present & (snapshot.pod_node >= 0)
        lower &= snapshot.pod_priority < self.job.trigger.row.priority
        lower[lower] &= candidates[snapshot.pod_node[lower]]
        slots = np.flatnonzero(lower)
        kept = np.setdiff1d(slots, possible.slots)
        if not len(kept):
            return 0
        before = simulation.checkpoint()
        simulation.remove(slots)
        try:
            nodes = self._place(members, candidates, possible, {})
        finally:
            simulation.rollback(before)
        return len(kept) if nodes is not None and len(nodes) == len(members) else 0

    def _attempt(
        self,
        members: Sequence[Pending],
        candidates: Mask,
        present: Mask,
        possible: Possible,
        units: Units,
        matches: BudgetMatches,
    ) -> tuple[JobPreemption, list[int]]:
        """Return the outcome; it does not count when there are victims that a budget forbids."""
        simulation = self.simulation
        said: Statuses = {}
        if self.explain or not len(possible.slots):
            empty = np.flatnonzero(candidates & ~possible.here).tolist()
            said.update(dict.fromkeys(empty, (NodeVerdict.NO_VICTIMS,)))
        if not len(possible.slots):
            return self._failure(self._named(said), _counted(said), members), []
        before = simulation.checkpoint()
        simulation.remove(possible.slots)
        try:
            nodes = self._place(members, candidates, possible, said)
            found_all = nodes is not None and len(nodes) == len(members)
            others = self._in_member_order(members, candidates, possible, present)
            placements = [each for each in (nodes if found_all else None, *others) if each]
            if not placements:
                placed = len(nodes or ())
                if not self._reported_while_placing:
                    self._explain(members, candidates, possible, said)
                found = self._failure(self._named(said), _counted(said), members[placed:], possible)
                return found, []
            choice = self._chosen(members, placements, units, matches, candidates, before)
        finally:
            simulation.rollback(before)
        if self._breaks(choice):
            reprieved = choice.reprieved
            broken = [
                slot
                for unit, count in zip(reprieved.victims.tolist(), reprieved.violating, strict=True)
                if count
                for slot in units.pods(unit).tolist()
            ]
            return self._failure({}, (), members), broken
        return self._success(choice, possible, said), []

    def _in_member_order(
        self, members: Sequence[Pending], candidates: Mask, possible: Possible, present: Mask
    ) -> list[list[int]]:
        """Return what members find in their own order, as the reference places them and beside.

        The reference's costs are of the nodes that it looks at alone. Empty for `placement:
        first-fit`, which is that already.
        """
        if self.policy.placement is Placement.FIRST_FIT:
            return []
        simulation, cost = self.simulation, possible.cost
        free_first = by_cost(np.where(possible.here, cost + 1, 0))
        helped = candidates & _HELPED[self.codes]
        own_cost = self._possible(present, helped)[0].cost
        found = [
            first_fit(simulation, members, by_cost(own_cost), helped, narrowing=True),
            first_fit(simulation, members, free_first, candidates, narrowing=False),
        ]
        return [nodes for nodes in found if len(nodes) == len(members)]

    def _chosen(
        self,
        members: Sequence[Pending],
        placements: Sequence[Sequence[int]],
        units: Units,
        matches: BudgetMatches,
        candidates: Mask,
        full: Checkpoint,
    ) -> Choice:
        """Return the victims of one of these placements, or by profile `best` cheaper ones."""
        found = self._around(members, placements, units, matches)
        choice = min(found, key=lambda each: each[0])[1]
        if not self._best or self._breaks(choice):
            return choice
        choices = [each for _, each in found if not self._breaks(each)]
        return cheapest(self.simulation, full, candidates, matches, self.policy, choices)

    @property
    def _best(self) -> bool:
        """Whether the least costly victims are searched for; the reference's placement has none."""
        return self.simulation.policy.best and self.policy.placement is Placement.SEARCH

    def _breaks(self, choice: Choice) -> bool:
        """Return whether these victims break a budget that has to be kept."""
        return self.policy.budgets is Budgets.REQUIRE and bool(sum(choice.reprieved.violating))

    def _around(
        self,
        members: Sequence[Pending],
        placements: Sequence[Sequence[int]],
        units: Units,
        matches: BudgetMatches,
    ) -> list[tuple[tuple[int, int, list[int]], Choice]]:
        """Return the victims of each placement, with the key by which they are compared."""
        simulation, priority = self.simulation, self.simulation.snapshot.pod_priority
        found: list[tuple[tuple[int, int, list[int]], Choice]] = []
        for nodes in dict.fromkeys(map(tuple, placements)):
            placement = list(zip(members, nodes, strict=True))
            before = simulation.checkpoint()
            try:
                reprieved = reprieve(
                    simulation,
                    units,
                    placement,
                    matches,
                    second_pass=simulation.policy.second_reprieve_pass,
                )
            finally:
                simulation.rollback(before)
            slots = [s for u in reprieved.victims.tolist() for s in units.pods(u).tolist()]
            highest_first = sorted((int(priority[slot]) for slot in slots), reverse=True)
            key = (sum(reprieved.violating), len(slots), highest_first)
            found.append((key, Choice(placement, units, reprieved)))
        return found

    def _place(
        self,
        members: Sequence[Pending],
        candidates: Mask,
        possible: Possible,
        said: Statuses,
    ) -> list[int] | None:
        order = self._order(possible)
        if self.policy.placement is Placement.SEARCH:
            found = search(self.simulation, members, order, candidates)
            if found is None and self._best:
                found = placed_exactly(self.simulation, members, candidates)
            return found
        reported = said if self._reported_while_placing else None
        return first_fit(self.simulation, members, order, candidates, narrowing=True, said=reported)

    @property
    def _reported_while_placing(self) -> bool:
        """Whether what is stated of nodes is what was found when members were placed."""
        return self.explain and self.policy.placement is Placement.FIRST_FIT

    def _order(self, possible: Possible) -> I64:
        if self.policy.placement is Placement.FIRST_FIT:
            return by_cost(possible.cost)
        # A node where no pod has to be evicted comes before all others.
        return by_cost(np.where(possible.here, possible.cost + 1, 0))

    def _explain(
        self,
        members: Sequence[Pending],
        candidates: Mask,
        possible: Possible,
        said: Statuses,
    ) -> None:
        """Fill in what is stated of nodes when members are placed one after the other, in vain."""
        empty = np.flatnonzero(candidates & ~possible.here).tolist()
        said.update(dict.fromkeys(empty, (NodeVerdict.NO_VICTIMS,)))
        narrowing = self.policy.placement is Placement.FIRST_FIT
        order = self._order(possible)
        first_fit(self.simulation, members, order, candidates, narrowing=narrowing, said=said)

    # Victims.

    def _budgets(self) -> BudgetMatches:
        if self.policy.budgets is not Budgets.IGNORE:
            return budget_matches(self.simulation)
        none = np.zeros(len(self.simulation.snapshot.labels), np.int64)
        return BudgetMatches((), (), none, none)

    def _choosable(self, matches: BudgetMatches) -> Mask:
        """Return the pods that may be chosen at all: (slots,)."""
        simulation, snapshot = self.simulation, self.simulation.snapshot
        present = simulation.present & simulation.evictable
        waiting = {uid for uid, _ in self.job.waiting}
        if waiting:
            present = present.copy()
            present[[s for s, uid in enumerate(snapshot.pod_uids) if uid in waiting]] = False
        if self.policy.budgets is Budgets.REQUIRE:
            exhausted = np.zeros(len(snapshot.labels), np.bool_)
            for budget, selected in zip(matches.budgets, matches.selected, strict=True):
                if budget.allowed <= 0:
                    exhausted[selected] = True
            present = present & ~exhausted[snapshot.pod_labels]
        return present

    def _possible(self, present: Mask, candidates: Mask) -> tuple[Possible, Units]:
        simulation, snapshot = self.simulation, self.simulation.snapshot
        below = self.job.trigger.row.priority
        possible = possible_victims(snapshot, present, below, candidates, self.policy)
        whole: list[I64] = []
        if self.policy.victim_gangs is VictimGangs.ALL:
            possible, whole = whole_gangs(simulation.snapshot, self.job, possible)
        return possible, victim_units(simulation.snapshot, possible, whole)

    # Outcomes.

    def _names(self, nodes: Iterable[int]) -> list[str]:
        rows = self.simulation.snapshot.nodes
        return [rows[node].name for node in nodes]

    def _named(self, said: Statuses) -> dict[str, tuple[Said, ...]]:
        rows = self.simulation.snapshot.nodes
        return {rows[node].name: reasons for node, reasons in said.items()}

    def _failure(
        self,
        statuses: Mapping[str, tuple[Said, ...]],
        counts: Counts,
        unplaced: Sequence[Pending],
        possible: Possible | None = None,
    ) -> JobPreemption:
        found = JobPreemption(
            Code.UNSCHEDULABLE,
            JobReason.NOT_HELPFUL,
            nodes=len(self.simulation.snapshot.nodes),
            statuses=statuses,
            counts=counts,
            unplaced=tuple(pending.row.uid for pending in unplaced),
        )
        return found if possible is None else self._with_possible(found, possible)

    def _with_possible(self, found: JobPreemption, possible: Possible) -> JobPreemption:
        if not self.explain:
            return found
        snapshot = self.simulation.snapshot
        on: dict[str, list[int]] = {}
        for slot in possible.slots.tolist():
            on.setdefault(snapshot.nodes[int(snapshot.pod_node[slot])].name, []).append(slot)
        index = snapshot.node_index
        return replace(
            found,
            possible={name: tuple(slots) for name, slots in on.items()},
            cost={name: int(possible.cost[index[name]]) for name in on},
        )

    def _success(
        self,
        choice: Choice,
        possible: Possible,
        said: Statuses,
    ) -> JobPreemption:
        snapshot = self.simulation.snapshot
        placement, units, reprieved = choice.placement, choice.units, choice.reprieved
        on: dict[int, list[int]] = {}
        gangs: list[tuple[int, ...]] = []
        for unit in reprieved.victims.tolist():
            slots = units.pods(unit).tolist()
            if unit >= units.singles:
                gangs.append(tuple(slots))
            for slot in slots:
                on.setdefault(int(snapshot.pod_node[slot]), []).append(slot)
        own = {pending.row.uid for pending, _ in placement}
        below = self.job.trigger.row.priority
        lower = tuple(
            each.uid
            for each in snapshot.nominations
            if each.node in on and each.priority < below and each.uid not in own
        )
        found = JobPreemption(
            Code.SUCCESS,
            JobReason.SUCCESS,
            nodes=len(snapshot.nodes),
            nominated=tuple((p.row.uid, snapshot.nodes[node].name) for p, node in placement),
            victims=tuple((snapshot.nodes[node].name, tuple(on[node])) for node in sorted(on)),
            statuses=self._named(said) if self.explain else {},
            lower=lower,
            gangs=tuple(gangs),
            violating=sum(reprieved.violating),
            best=self._best,
            gap=choice.gap,
            reprieved=tuple(reprieved.kept.items()),
        )
        return self._with_possible(found, possible)


def _distinct(members: Sequence[Pending]) -> list[Pending]:
    return list({(p.pod_class, p.labels): p for p in members}.values())


def _counted(said: Statuses) -> Counts:
    counts: Counter[Said] = Counter()
    for reasons in said.values():
        counts.update(reasons)
    return tuple(counts.items())
