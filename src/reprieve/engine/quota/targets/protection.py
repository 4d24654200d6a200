"""Who is spared though the reference would preempt it. Nothing here applies unless it is requested.

1. a workload that has not held its quota for its minimum runtime yet: one for preemption within its
   ClusterQueue, one for reclamation by others
2. with a memory of displacements, a workload that the governor of disruptions holds, so that two
   workloads do not displace each other for ever

3. with the same memory, one whose eviction was refused
4. whom a harm budget spares that is used up

What is evicted already is not spared by 1 and 2: it leaves anyway. All end by time alone, so that a
workload that was refused because of them has to be tried again then (`Spared.until`).

Source: the quota plane's own options; specification of disruptions, section 4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.engine.disruptions.questions import Hold, Rule
from reprieve.engine.quota.displacements import Displacements, participant_of
from reprieve.engine.quota.holdings.holders import Holder, effective_priority
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.model import Workload
from reprieve.engine.quota.targets.candidates import Preemptor
from reprieve.engine.quota.targets.harm_budgets import Answers, QuotaHarm

__all__ = ["Causes", "Spared", "protected", "sparing"]


_WHY: Final[Mapping[Rule, str]] = MappingProxyType(
    {
        Rule.CYCLE: "that it displaced in turn",
        Rule.WITHOUT_GAIN: "that it displaced in turn",
        Rule.REPEATED: "that were displaced again and again",
        Rule.CRASH_LOOP: "from which it is held, since it fails again and again after others were "
        "preempted for it",
        Rule.REFUSED: "whose eviction was refused",
        Rule.HARM_BUDGET: "whose harm budget is used up",
        Rule.KEPT: "whose users keep them",
    }
)


class Causes:
    """What allows workloads to preempt each other in one snapshot: priorities, weights, quotas.

    Of a workload it is its effective priority, and the name, weight and quotas of its ClusterQueue
    and of every cohort above that. A workload that comes back as another object has the same cause,
    so that what its lineage has in common identifies it.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = self._snapshot = snapshot
        self._digests = snapshot.reckoning.digests

    def priority(self, workload: Workload) -> int:
        """Return the effective priority."""
        return effective_priority(workload, self._snapshot.settings)

    def between(self, one: Workload, queue: int, other: Workload, other_queue: int) -> str:
        """Return a text that is another one when the cause of turns between the two is another."""
        parts = (
            f"{_known_by(workload)} {self.priority(workload)} {self._digest(node)}"
            for workload, node in ((one, queue), (other, other_queue))
        )
        return hashlib.sha256("|".join(sorted(parts)).encode()).hexdigest()[:16]

    def reclaims(self, workload: Workload, queue: int) -> bool:
        """Return whether a workload stays within the nominal quota of its ClusterQueue."""
        tree, usage = self._snapshot.tree, self._snapshot.usage
        left: dict[str, int] = {}
        for column, (_, resource) in enumerate(tree.flavor_resources):
            room = max(0, tree.subtree[column][queue] - usage[column][queue])
            left[resource] = left.get(resource, 0) + room
        asked: dict[str, int] = {}
        for pod_set in workload.pod_sets:
            for resource, amount in pod_set.requests.items():
                asked[resource] = asked.get(resource, 0) + amount * pod_set.count
        return all(amount <= left.get(resource, 0) for resource, amount in asked.items())

    def _digest(self, queue: int) -> str:
        found = self._digests.get(queue)
        if found is None:
            configuration, tree = self._snapshot.configuration, self._snapshot.tree
            queues, cohorts = configuration.cluster_queues, configuration.cohorts
            said = []
            for node in tree.path[queue]:
                name = tree.names[node]
                row = queues[name] if node < len(queues) else cohorts.get(name)
                said.append((name, None if row is None else (row.weight, row.groups)))
            found = hashlib.sha256(repr(said).encode()).hexdigest()
            self._digests[queue] = found
        return found


@dataclass(slots=True)
class Spared:
    """Whom one preemptor leaves alone, found while its candidates are looked at.

    `young` are keys of workloads within their minimum runtime, `paired` of those that the governor
    holds, by the rules in `rules`; `until` is when the first of them may be preempted, None without
    any. `known_by`: the identities of those for which the governor is queried, None for all;
    `runtimes`: whether anything has a minimum runtime. `harm`: harm budgets, where there are any;
    `budgets`: the names of those that spare a candidate. `early`: whether anything but budgets may
    spare one, which is checked for all candidates.
    """

    who: Preemptor
    now: Nanos
    ledger: Displacements | None
    causes: Causes | None = None
    until: Nanos | None = None
    known_by: frozenset[str] | None = None
    runtimes: bool = True
    young: set[str] = field(default_factory=set)
    paired: set[str] = field(default_factory=set)
    rules: set[Rule] = field(default_factory=set)
    harm: QuotaHarm | None = None
    budgets: set[str] = field(default_factory=set)
    early: bool = True
    _below: frozenset[str] | None = None  # likewise, of those of no higher priority

    def __call__(self, holder: Holder) -> bool:
        """Return whether a candidate is left alone."""
        workload = holder.workload
        if holder.evicted:
            return self._stays(holder)
        if self.runtimes:
            own = holder.queue == self.who.queue
            seconds = workload.preempt_min_runtime_s if own else workload.reclaim_min_runtime_s
            if seconds and workload.reserved_at is not None:
                end = Nanos(workload.reserved_at + seconds * SECOND)
                if self.now < end:
                    return self._spare(self.young, holder, end)
        known, participant = self.known_by, workload.participant
        # Nearly all candidates of a large cluster are strangers to the preemptor.
        if known is not None and participant is not None and known.isdisjoint(participant.names):
            return False
        if self.ledger is not None:
            if (
                known is not None
                and participant is not None
                and self._is_below(self.ledger, workload)
            ):
                known = self._below
                if known is not None and known.isdisjoint(participant.names):
                    return False
            held = self._hold(self.ledger, holder)
            if held is not None:
                self.rules.add(held.rule)
                return self._spare(self.paired, holder, held.until)
        return False

    def by_budget(self, holder: Holder) -> bool:
        """Return whether a harm budget spares a candidate."""
        harm, ledger = self.harm, self.ledger
        if harm is None or ledger is None:
            return False
        spared = harm.held(holder)
        if spared is None:
            return False
        uids = self.who.workload.uid, holder.workload.uid
        ledger.refusals[uids] = spared.until
        ledger.spared[uids] = spared.budget
        self.rules.add(spared.rule)
        self.budgets.add(spared.budget)
        return self._spare(self.paired, holder, spared.until)

    def _stays(self, holder: Holder) -> bool:
        """Return whether the eviction of a workload is refused, so that it stays."""
        if self.ledger is None:
            return False
        refused = self.ledger.stays(self.who.workload, holder.workload, self.now)
        if refused is None:
            return False
        self.rules.add(refused.rule)
        return self._spare(self.paired, holder, refused.until)

    @property
    def message(self) -> str:
        """Return what is spared, and until when; empty if nothing is."""
        if self.until is None:
            return ""
        parts = []
        if self.young:
            parts.append(f"{len(self.young)} workload(s) within their minimum runtime")
        if self.paired:
            why = " or ".join(dict.fromkeys(_WHY[rule] for rule in Rule if rule in self.rules))
            if self.budgets:
                why += f" ({', '.join(sorted(self.budgets))})"
            parts.append(f"{len(self.paired)} workload(s) {why}")
        return f"Not preempted: {' and '.join(parts)}, the first until {format_instant(self.until)}"

    def _is_below(self, ledger: Displacements, workload: Workload) -> bool:
        """Return whether it has no higher priority than the preemptor, and which of those is known.

        Who displaces what has a higher priority is held a time earlier, and so from more.
        """
        if self.causes is None or self.causes.priority(workload) > self.who.priority:
            return False
        if self._below is None:
            self._below = ledger.known_by(self.who.workload, self.now, below=False)
        return True

    def _hold(self, ledger: Displacements, holder: Holder) -> Hold | None:
        who, workload = self.who, holder.workload
        if self.causes is None:
            return ledger.hold(who.workload, workload, self.now)
        cause = self.causes.between(who.workload, who.queue, workload, holder.queue)
        above = who.priority - self.causes.priority(workload)

        def held(reclaims: bool) -> Hold | None:
            return ledger.hold(
                who.workload,
                workload,
                self.now,
                cause,
                priority=who.priority,
                above=above,
                reclaims=reclaims,
            )

        found = held(False)
        if found is None or holder.queue == who.queue:
            return found
        return held(True) if self.causes.reclaims(who.workload, who.queue) else found

    def _spare(self, why: set[str], holder: Holder, end: Nanos) -> bool:
        why.add(holder.key)
        self.until = end if self.until is None else min(self.until, end)
        return True


def protected(
    who: Preemptor,
    now: Nanos,
    runtimes: bool,
    ledger: Displacements | None,
    causes: Causes | None = None,
) -> Spared | None:
    """Return what the preemptor spares, None if there cannot be any.

    Args:
        who: the preemptor.
        now: the instant of the decision.
        runtimes: whether anything has a minimum runtime.
        ledger: of who displaced whom, None where no work is held for it.
        causes: what allows workloads to preempt each other now; None where the ledger states holds.
    """
    paired = ledger
    known_by = None if ledger is None else ledger.known_by(who.workload, now)
    budgets = ledger is not None and bool(ledger.governor.harm)
    if known_by is not None and not known_by and not budgets:
        paired = None
    if not runtimes and paired is None:
        return None
    early = runtimes or (ledger is not None and (known_by is None or bool(known_by)))
    found = Spared(who, now, paired, causes, known_by=known_by, runtimes=runtimes, early=early)
    if budgets and ledger is not None and causes is not None:
        reclaims = partial(causes.reclaims, who.workload, who.queue)
        found.harm = QuotaHarm(ledger, causes.snapshot, who, now, reclaims)
    return found


def sparing(who: Preemptor, spared: Spared) -> Preemptor:
    """Return a preemptor that leaves these alone.

    Budgets are checked for those alone that would be chosen next: there may be thousands of both.
    """
    holds = None
    if spared.harm is not None:
        holds = Answers(spared.harm, spared.by_budget).__getitem__
    return replace(who, spares=spared if spared.early else None, holds=holds)


def _known_by(workload: Workload) -> str:
    participant = participant_of(workload)
    return participant.weak or participant.merged or participant.lineage
