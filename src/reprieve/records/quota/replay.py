"""A recorded preemption by quota, decided again: the same plan, and why each was evicted or stayed.

A workload is an answer's subject: the preemptor, another head of the same cycle, or one that held
quota in the cohort tree. Source: promises "Deterministic" and "Explained" of the design;
specification of the quota plane, sections 6 to 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from kubeworld.units.instants import format_instant
from reprieve.engine.plan import Plan
from reprieve.engine.quota.assigning.assignment import Assignment
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.entries import CycleResult, Entry
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.tree import exceeds
from reprieve.engine.quota.made_places import ByRules
from reprieve.engine.quota.model import Policy, Reason, ResourceFlavor
from reprieve.engine.quota.plans import plan_of
from reprieve.engine.quota.targets.candidates import Preemptor, preemptor, satisfies
from reprieve.engine.quota.targets.protection import protected
from reprieve.engine.topology.places import NodeUse
from reprieve.records.idle.replay import SpoiltInput, unpacked
from reprieve.records.quota.record import QuotaInput, policy_text, restored

__all__ = [
    "QuotaAnswer",
    "QuotaReplay",
    "Standing",
    "decide_quota_again",
    "decide_quota_input",
    "quota_answers",
]


class Standing(StrEnum):
    """What a workload was to a decision."""

    PREEMPTOR = "Preemptor"
    HEAD = "Head"  # of another ClusterQueue in the same cycle
    VICTIM = "Victim"
    GOING = "Going"  # it was preempted already, and its quota counts as free
    ANOTHERS = "Anothers"  # an earlier head of this cycle preempts it
    UNRELATED = "Unrelated"  # it holds none of what the preemptor lacks
    POLICY = "Policy"  # the preemptor's ClusterQueue may not preempt it
    WITHIN_QUOTA = "WithinQuota"  # its queue, or a cohort on the way, uses no more than its own
    PROTECTED = "Protected"  # by a minimum runtime, or held as one of a pair
    REPRIEVED = "Reprieved"


@dataclass(frozen=True, slots=True)
class QuotaAnswer:
    """What became of one workload.

    `detail`: the reason of a victim, the setting that spares one, or the message of a head.
    """

    key: str  # namespace/name
    uid: str
    standing: Standing
    cluster_queue: str
    priority: int
    amounts: Mapping[str, int]
    detail: str = ""


@dataclass(frozen=True, slots=True)
class QuotaReplay:
    """A cycle run again from its input; `snapshot` is the state before it."""

    decided_on: QuotaInput
    snapshot: Snapshot
    result: CycleResult
    entry: Entry
    holders: tuple[Holder, ...]
    who: Preemptor

    def plan(self, revision: int) -> Plan | None:
        """Return the plan, None without victims; `revision` is that of the record."""
        policy = policy_text(self.snapshot.configuration, self.entry.cluster_queue)
        return plan_of(self.entry, self.snapshot.tree, revision, policy)


@dataclass(frozen=True, slots=True)
class _Reported:
    """The nodes' answers of then: why they would not have accepted a head, by its key."""

    refused: Mapping[str, str]
    proven: frozenset[str]
    moved: Mapping[str, str]
    as_found: frozenset[str]
    made: Mapping[str, tuple[NodeUse, ...]]

    def refusal(
        self, entry: Entry, holders: Iterable[Holder], flavors: Mapping[str, ResourceFlavor]
    ) -> str:
        if entry.found and entry.workload.key in self.as_found:
            return "with the least costly victims"
        entry.proven = entry.workload.key in self.proven
        return self.refused[entry.workload.key]

    def delays(self, entry: Entry) -> str:
        """Heads that were delayed then are refused for the same reason."""
        return ""

    def flavor_for(
        self,
        entry: Entry,
        others: Iterable[tuple[str, Assignment]],
        holders: Iterable[Holder],
        flavors: Mapping[str, ResourceFlavor],
    ) -> tuple[str, Assignment] | None:
        moved = self.moved.get(entry.workload.key)
        return next((each for each in others if each[0] == moved), None) if moved else None

    def room_made(
        self,
        entry: Entry,
        snapshot: Snapshot,
        holders: Iterable[Holder],
        flavors: Mapping[str, ResourceFlavor],
        by_rules: ByRules | None,
    ) -> tuple[NodeUse, ...]:
        return self.made.get(entry.workload.key, ())

    def claim(self, entry: Entry, flavors: Mapping[str, ResourceFlavor]) -> None:
        """Nodes are not looked at again."""


def decide_quota_again(recorded: Mapping[str, Any]) -> QuotaReplay:
    """Return the decision that the stored input gives.

    Raises:
        InputOmitted: it was left out when it was recorded.
        SpoiltInput: it cannot be read.
    """
    return decide_quota_input(unpacked(recorded, QuotaInput))


def decide_quota_input(decided_on: QuotaInput) -> QuotaReplay:
    """Return the decision that an input gives.

    Raises:
        SpoiltInput: it contradicts itself.
    """
    try:
        holdings, queues, ledger = restored(decided_on)
        snapshot, holders = holdings.snapshot(), tuple(holdings.holders.values())
        protects = holdings.protects
        reported = _Reported(
            {head.workload.key: head.refused for head in decided_on.heads},
            frozenset(head.workload.key for head in decided_on.heads if head.proven),
            {head.workload.key: head.moved for head in decided_on.heads},
            frozenset(head.workload.key for head in decided_on.heads if head.as_found),
            {head.workload.key: head.made or () for head in decided_on.heads},
        )
        result = cycle(holdings, queues, decided_on.now, 1, ledger, reported)
        (entry,) = [e for e in result.entries if e.workload.key == decided_on.preemptor]
        if entry.assignment is None:
            raise ValueError(f"{decided_on.preemptor} was not considered: {entry.message}")
    except (AssertionError, LookupError, TypeError, ValueError) as failure:
        # Well-formed JSON that no operator wrote: names that lead nowhere.
        raise SpoiltInput(f"spec.input.data contradicts itself: {failure}") from None
    who = preemptor(entry.workload, entry.queue, decided_on.settings)
    spared = protected(who, decided_on.now, protects, ledger)
    if spared is not None:
        who = Preemptor(who.workload, who.queue, who.priority, who.timestamp, spared)
    return QuotaReplay(decided_on, snapshot, result, entry, holders, who)


def quota_answers(replay: QuotaReplay) -> Iterator[QuotaAnswer]:
    """Yield what became of each workload: the preemptor, victims as chosen, others by name."""
    entry = replay.entry
    yield _head_answer(replay, entry, Standing.PREEMPTOR)
    reasons = {target.holder.key: target.reason for target in entry.targets}
    rows = {holder.key: holder for holder in replay.holders}
    for key, reason in reasons.items():
        going = rows[key].evicted
        yield _answer(replay, rows[key], Standing.GOING if going else Standing.VICTIM, reason)
    others = {
        target.holder.key: each.workload.key
        for each in replay.result.entries
        for target in each.issued
        if each is not entry
    }
    for key in sorted(rows.keys() - reasons.keys()):
        if key in others:
            yield _answer(replay, rows[key], Standing.ANOTHERS, others[key])
        else:
            yield _answer(replay, rows[key], *_why_spared(replay, rows[key]))
    for each in sorted(replay.result.entries, key=lambda e: e.workload.key):
        if each is not entry and each.queue >= 0:
            yield _head_answer(replay, each, Standing.HEAD)


def _why_spared(replay: QuotaReplay, holder: Holder) -> tuple[Standing, str]:
    """Return why a workload was no victim; the first that holds."""
    who, entry, snapshot = replay.who, replay.entry, replay.snapshot
    assert entry.assignment is not None
    need = entry.assignment.need
    rules = snapshot.configuration.cluster_queues[entry.cluster_queue].preemption
    own = holder.queue == entry.queue
    field = "withinClusterQueue" if own else "reclaimWithinCohort"
    policy = rules.within_cluster_queue if own else rules.reclaim_within_cohort
    if holder.evicted:
        return Standing.GOING, ""
    if need.isdisjoint(holder.columns):
        return Standing.UNRELATED, ""
    if policy in (Policy.NEVER, Policy.UNSET):
        return Standing.POLICY, f"{field} of {entry.cluster_queue} is Never"
    if not satisfies(policy, who, holder.priority, holder.timestamp):
        return Standing.POLICY, f"{field} of {entry.cluster_queue} is {policy}"
    if not own and not _uses_more(replay, holder, need):
        return Standing.WITHIN_QUOTA, ""
    if any(asked is not None and asked(holder) for asked in (who.spares, who.holds)):
        return Standing.PROTECTED, _spared_by(replay, holder)
    return Standing.REPRIEVED, ""


def _spared_by(replay: QuotaReplay, holder: Holder) -> str:
    """Return which harm budget spared a workload and until when, empty where none did."""
    decided_on, pair = replay.decided_on, (replay.who.workload.uid, holder.workload.uid)
    spared = decided_on.spared
    for *named, budget in () if isinstance(spared, msgspec.UnsetType) else spared:
        if tuple(named) == pair:
            ends = (end for *other, end in decided_on.refused if tuple(other) == pair)
            return f"harm budget {budget} is used up until {format_instant(max(ends))}"
    return ""


def _uses_more(replay: QuotaReplay, holder: Holder, need: frozenset[int]) -> bool:
    """Return whether its queue, and all cohorts below the common one, use more than their own."""
    snapshot = replay.snapshot
    tree, above = snapshot.tree, set(snapshot.tree.path[replay.entry.queue])
    nodes = [node for node in tree.path[holder.queue] if node not in above]
    if snapshot.settings.fair_sharing is not None:
        nodes = nodes[:1]
    return all(exceeds(tree, snapshot.usage, node, need) for node in nodes)


def _answer(
    replay: QuotaReplay, holder: Holder, standing: Standing, detail: str | Reason = ""
) -> QuotaAnswer:
    tree = replay.snapshot.tree
    return QuotaAnswer(
        holder.key,
        holder.workload.uid,
        standing,
        tree.names[holder.queue],
        holder.priority,
        _by_resource(replay, dict(holder.held)),
        str(detail),
    )


def _head_answer(replay: QuotaReplay, entry: Entry, standing: Standing) -> QuotaAnswer:
    workload = entry.workload
    reported = entry.message if entry.reason else "it got quota"
    priority = preemptor(workload, entry.queue, replay.decided_on.settings).priority
    amounts = _by_resource(replay, entry.counted)
    return QuotaAnswer(
        workload.key, workload.uid, standing, entry.cluster_queue, priority, amounts, reported
    )


def _by_resource(replay: QuotaReplay, amounts: Mapping[int, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for column, amount in amounts.items():
        resource = replay.snapshot.tree.flavor_resources[column].resource
        if amount:
            found[resource] = found.get(resource, 0) + amount
    return found
