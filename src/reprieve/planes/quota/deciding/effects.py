"""What follows from a run of cycles: a list of effects, made by a pure function.

| an entry, or a cycle | then |
| --- | --- |
| preempts | each victim is marked, with its texts and events, under a plan that is recorded first |
| was refused for want of nodes | its ClusterQueue is tried again when something comes free |
| got quota | its reservation is written |
| lost a node | it gets another one, or is evicted |
| has all checks ready | its pods get the places that were delayed until then |
| got none | the reason is reported to it, once for the whole run, as it stood last |
| failed, by a fault of ours | that is logged, and reported to it |
| has candidates that are spared for a time | its ClusterQueue is tried again then |

Nothing is done here: `carry_out` does it, in the order of the list. One whose effects cannot be
worked out is undone (`Undo`), and costs the others nothing. Source: specification of the quota
plane, sections 8 and 9; the design's "How data flows".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from kubeworld.units.instants import Nanos
from reprieve.engine.plan import Plan
from reprieve.engine.quota import model
from reprieve.engine.quota.entries import (
    OF_HOLDERS,
    CycleResult,
    Entry,
    Outcome,
    Recomputation,
)
from reprieve.engine.quota.holdings.tree import Tree
from reprieve.engine.quota.plans import plan_of
from reprieve.records.quota.record import policy_text
from reprieve.wording import kueue
from reprieve.wording.events import EventText

__all__ = [
    "Admit",
    "DecideAgain",
    "Effect",
    "EvictForNode",
    "Explain",
    "ExplainAlike",
    "Facts",
    "LeaveOut",
    "Marking",
    "Measure",
    "NodesRefused",
    "PlaceDelayed",
    "Preempt",
    "ReplaceNode",
    "RetryAt",
    "Sample",
    "TellFault",
    "TellUnplaced",
    "Undo",
    "effects_of",
    "marking_of",
]

#: A cycle with the inputs of its preemptions, by the key of the preemptor.
Recorded: TypeAlias = tuple[CycleResult, Mapping[str, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Marking:
    """One victim: the engine's row, why, the message for it, and the events that follow."""

    victim: model.Workload
    reason: model.Reason
    message: str
    events: tuple[EventText, ...]
    reported: EventText  # about the preemptor


@dataclass(frozen=True, slots=True)
class RetryAt:
    """Try again then what is set aside in a ClusterQueue."""

    cluster_queue: str
    at: Nanos


@dataclass(frozen=True, slots=True)
class NodesRefused:
    """Try a ClusterQueue again when something comes free on a node."""

    cluster_queue: str


@dataclass(frozen=True, slots=True)
class Preempt:
    """Record the plan with its input, then mark the victims."""

    entry: Entry
    plan: Plan
    markings: tuple[Marking, ...]
    decision_input: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Sample:
    """Write the input of a decision that preempts nothing to the decision log."""

    entry: Entry
    decision_input: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Undo:
    """Undo an entry whose preemptions cannot be issued."""

    entry: Entry
    fault: Exception


@dataclass(frozen=True, slots=True)
class Admit:
    """Write the reservation of quota."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class ReplaceNode:
    """Write other places for pods of a node that failed."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class PlaceDelayed:
    """Write the places that were delayed until the checks were ready."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class TellUnplaced:
    """Emit an event: a workload with quota has no places yet, or none beside a failed node."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class EvictForNode:
    """Evict a workload that lost a node, and for whose pods there is no other."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class DecideAgain:
    """Run cycles again at once: the run ended before there was nothing left to do."""


@dataclass(frozen=True, slots=True)
class LeaveOut:
    """Log that the head of a ClusterQueue could not be read."""

    cluster_queue: str
    fault: Exception


@dataclass(frozen=True, slots=True)
class TellFault:
    """Log and report that deciding about a workload failed."""

    entry: Entry
    event: EventText


@dataclass(frozen=True, slots=True)
class Explain:
    """Return why an entry got no quota."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class ExplainAlike:
    """Report to those that were set aside unseen what one of the same shape was sent."""

    considered: Mapping[str, Entry]


@dataclass(frozen=True, slots=True)
class Measure:
    """Count one cycle in the metrics. `skipped`: preemptions, by ClusterQueue."""

    seconds: float
    admitted: bool
    skipped: Mapping[str, int]
    recomputations: Mapping[tuple[str, Recomputation], int]


Effect: TypeAlias = (
    RetryAt
    | NodesRefused
    | Preempt
    | Sample
    | Undo
    | Admit
    | ReplaceNode
    | PlaceDelayed
    | TellUnplaced
    | EvictForNode
    | DecideAgain
    | LeaveOut
    | TellFault
    | Explain
    | ExplainAlike
    | Measure
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a run was decided on. `seconds`: its duration; `most`: admissions that end a run."""

    tree: Tree
    configuration: model.Configuration
    revision: int
    seconds: float
    most: int


def effects_of(recorded: Sequence[Recorded], facts: Facts) -> Iterator[Effect]:
    """Yield what follows from a run of cycles."""
    last: dict[str, Entry] = {}
    for result, inputs in recorded:
        for queue, until in result.retries.items():
            yield RetryAt(queue, until)
        for entry in result.entries:
            last[entry.workload.key] = entry
            if entry.outcome is Outcome.UNPROVEN:
                yield NodesRefused(entry.cluster_queue)
            decision_input = inputs.get(entry.workload.key)
            if entry.issued:
                yield from _preemption(entry, decision_input, facts)
            elif decision_input is not None:
                yield Sample(entry, decision_input)
    admitted = [entry for entry in last.values() if entry.outcome is Outcome.ADMITTED]
    yield from map(Admit, admitted)
    if len(admitted) >= facts.most:
        yield DecideAgain()
    results = [result for result, _ in recorded]
    yield from _faults(results)
    for entry in last.values():
        if entry.outcome is Outcome.NODE_REPLACED:
            yield ReplaceNode(entry)
        elif entry.outcome is Outcome.NODE_FAILED:
            yield EvictForNode(entry)
        elif entry.outcome is Outcome.PLACED:
            yield PlaceDelayed(entry)
        elif entry.outcome is Outcome.UNPLACED:
            yield TellUnplaced(entry)
        elif entry.outcome not in (Outcome.ADMITTED, Outcome.NODE_PREEMPTING):
            yield Explain(entry)
    yield ExplainAlike({key: each for key, each in last.items() if each.outcome not in OF_HOLDERS})
    reported = [result for result in results if result.entries]
    for result in reported:
        yield Measure(
            facts.seconds / len(reported),
            bool(result.of(Outcome.ADMITTED)),
            result.skipped_preemptions,
            result.recomputations,
        )


def _faults(results: Sequence[CycleResult]) -> Iterator[Effect]:
    for result in results:
        for queue, fault in result.queue_faults.items():
            yield LeaveOut(queue, fault)
        for entry in result.of(Outcome.FAULT):
            yield TellFault(entry, kueue.decision_failed(entry.message))


def _preemption(
    entry: Entry, decision_input: dict[str, Any] | None, facts: Facts
) -> Iterator[Effect]:
    try:
        policy = policy_text(facts.configuration, entry.cluster_queue)
        plan = plan_of(entry, facts.tree, facts.revision, policy)
        if plan is not None:
            yield Preempt(entry, plan, tuple(_markings(entry, facts)), decision_input)
    except Exception as fault:
        yield Undo(entry, fault)


def _markings(entry: Entry, facts: Facts) -> Iterator[Marking]:
    tree, settings = facts.tree, facts.configuration.settings
    for target in entry.issued:
        victim, queue = target.holder.workload, target.holder.queue
        yield marking_of(entry.workload, entry.queue, victim, queue, target.reason, tree, settings)


def marking_of(
    preemptor: model.Workload,
    preemptor_queue: int,
    victim: model.Workload,
    victim_queue: int,
    reason: model.Reason,
    tree: Tree,
    settings: model.Settings,
) -> Marking:
    """Return how a victim is marked, with its texts; queues are those of the tree."""
    boosted = settings.gates.priority_boost
    paths = tree.cohort_path(preemptor_queue), tree.cohort_path(victim_queue)
    message = kueue.preemption_message(preemptor, reason, *paths)
    events = kueue.eviction_events(preemptor, victim, message, boosted)
    name = tree.names[victim_queue]
    reported = kueue.preempted_workload_event(preemptor, victim, name, boosted)
    return Marking(victim, reason, message, events, reported)
