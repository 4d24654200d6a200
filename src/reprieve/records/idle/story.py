"""The story of one preemption, for people: the victims, the preemptor, and why all others stayed.

Written from the record alone where its input is not there, and from the decision made again where
it is. Pure: a record is the input, lines are the output. Source: promise "Explained" of the design.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kubeworld.units.instants import Nanos, format_instant
from kubeworld.units.quantities import quantity_text
from reprieve.api.reprieve import (
    ObjectRef,
    Preemption,
    PreemptionSpec,
    Victim,
    VictimState,
    VictimStatus,
)
from reprieve.engine.idle.model import Phase, Workload
from reprieve.engine.idle.outcome import Reason
from reprieve.engine.plan import ProofLevel
from reprieve.records.idle.replay import Answer, Replay, Role, answers
from reprieve.records.sums import MOST_NAMED, sum_lines, table
from reprieve.records.victim_states import victim_states
from reprieve.units.counts import counted
from reprieve.wording.demands import demand_lines
from reprieve.wording.displacements import withheld_text
from reprieve.wording.kaiwo import amounts_text, declined_text, idle_text
from reprieve.wording.plans import choice_lines

__all__ = [
    "amounts_lines",
    "answer_text",
    "answers_named",
    "counted_victims",
    "counts_text",
    "level_text",
    "outcome_lines",
    "outcome_word",
    "status_lines",
    "story",
]

_LEVELS: Final = {
    ProofLevel.SUM.value: (
        "the compatible option, which knows no nodes: what is freed and in flight reaches the need"
    ),
    ProofLevel.PLACEMENT.value: "every pending pod has a node",
    ProofLevel.QUOTA.value: "the need fits the quota",
    ProofLevel.EXEMPT.value: "none is needed; no work waits, or another process began it",
}


def story(preemption: Preemption, replay: Replay | None, *, everything: bool = False) -> list[str]:
    """Return the lines; `replay` None shows what stands in the record itself.

    `everything`: more than fifty victims are named, too, rather than counted.
    """
    spec = preemption.spec
    lines = [*_whom(spec, replay), ""]
    if spec.proof.need or spec.proof.freed:
        lines += [*amounts_lines(spec, _pod_names(replay), everything=everything), ""]
    lines += [*_victims(preemption, replay, everything), ""]
    if replay is not None:
        subjects = (victim.subject for victim in spec.victims)
        reported = {ref.uid for ref in (spec.preemptor, *subjects) if ref is not None}
        others = [each for each in answers(replay) if each.workload.ref.uid not in reported]
        spared = [each for each in others if spec.reprieved and _was_reprieved(each)]
        others = [each for each in others if each not in spared]
        now = replay.decided_on.now
        lines += [*_reprieved(spec, spared, now), "", *_others(others, now), ""]
    elif spec.reprieved:
        lines += [counts_text(spec), ""]
    return [*lines, *status_lines(preemption)]


def answers_named(replay: Replay, namespace: str, name: str) -> list[Answer]:
    """Return the answers for a GpuWorkload of this name, else for the root owners of this name."""
    here = [each for each in answers(replay) if each.workload.ref.namespace == namespace]
    named = [each for each in here if each.workload.ref.name == name]
    return named or [each for each in here if each.workload.root.name == name]


def answer_text(answer: Answer, now: Nanos) -> str:
    """Return what became of one workload, in one line."""
    workload = answer.workload
    who = f"{workload.key} ({workload.root})"
    match answer.role:
        case Role.VICTIM:
            assert answer.plan is not None
            assert answer.victim is not None
            preemptor = answer.plan.preemptor
            whom = f" for {preemptor.namespace}/{preemptor.name}" if preemptor else ""
            return (
                f"{who} is preempted{whom}: {answer.victim.rule}, {_idle_text(workload, now)} "
                f"(plan {answer.plan.id})"
            )
        case Role.PREEMPTOR:
            assert answer.plan is not None
            return (
                f"{who} gets {amounts_text(answer.plan.proof.need)}: "
                f"{len(answer.plan.victims)} were preempted for it (plan {answer.plan.id})"
            )
        case Role.IN_FLIGHT:
            whom = f", for {answer.whom}" if answer.whom else ""
            return f"{who} is on its way out already{whom}: {amounts_text(workload.gpus)}"
        case Role.DECLINED:
            assert answer.declined is not None
            waits = workload.status.phase is Phase.PENDING_GPU
            does = "gets no victim" if waits else f"stays, {_idle_text(workload, now)}"
            return f"{who} {does}: {declined_text(answer.declined)}"


def _whom(spec: PreemptionSpec, replay: Replay | None) -> Iterator[str]:
    if spec.preemptor is None:
        yield "Preemptor: none"
        return
    line = f"Preemptor: {_name(spec.preemptor)}"
    if replay is not None:
        for workload in replay.decided_on.snapshot.workloads:
            if workload.ref.uid == spec.preemptor.uid:
                waits = format_instant(workload.created)
                line += f" ({workload.root}), tracked since {waits}"
    yield line


def amounts_lines(
    spec: PreemptionSpec, names: Mapping[str, str] | None = None, *, everything: bool = False
) -> Iterator[str]:
    """Yield what was needed and freed, and how far that is proven.

    `names`: namespace and name of pods by uid, as far as they are known.
    """
    proof = spec.proof
    parts = {"NEED": proof.need, "IN FLIGHT": proof.in_flight, "FREED": proof.freed}
    if proof.free:
        parts["FREE BEFORE"] = proof.free
    rows = [("RESOURCE", *parts)]
    rows += [
        (name, *(quantity_text(name, part.get(name, 0)) for part in parts.values()))
        for name in sorted({name for part in parts.values() for name in part})
    ]
    yield from table(rows)
    yield f"Proof {proof.level}: {level_text(proof.level)}"
    yield from choice_lines(proof.profile, proof.gap)
    yield from demand_lines(spec)
    if proof.compatible and proof.need:
        yield "Chosen in the compatible order, which may be more than necessary"
    if len(spec.placement) > MOST_NAMED and not everything:
        nodes = len({place.node for place in spec.placement})
        yield f"  {counted(len(spec.placement), 'pod')} fit on {counted(nodes, 'node')}"
        return
    for place in spec.placement:
        pod = (names or {}).get(place.uid, f"with uid {place.uid}")
        yield f"  pod {pod} fits on node {place.node}"


def _pod_names(replay: Replay | None) -> dict[str, str]:
    known = replay.decided_on.snapshot.workloads if replay is not None else ()
    return {str(pod.uid): f"{w.ref.namespace}/{pod.name}" for w in known for pod in w.pods}


def level_text(level: str) -> str:
    """Return what a level of proof means."""
    return _LEVELS.get(level, "a level this version does not know")


def _victims(preemption: Preemption, replay: Replay | None, everything: bool) -> Iterator[str]:
    if len(preemption.spec.victims) > MOST_NAMED and not everything:
        yield from counted_victims(preemption)
        return
    yield "Victims, in the order in which they were chosen:"
    known = replay.decided_on.snapshot.workloads if replay is not None else ()
    rows = {str(workload.ref.uid): workload for workload in known}
    states = victim_states(preemption)
    for victim in preemption.spec.victims:
        root = f"{victim.root.kind}/{victim.root.name}"
        facts = [victim.rule, amounts_text(victim.amounts)]
        row = rows.get(victim.subject.uid)
        if row is not None and replay is not None:
            facts.append(_idle_text(row, replay.decided_on.now))
        yield f"  {_name(victim.subject)} ({root}): {', '.join(filter(None, facts))}"
        if victim.reason:
            yield f"    {victim.reason}"
        yield from outcome_lines(victim, states.get(victim.root.uid))


def counted_victims(preemption: Preemption) -> Iterator[str]:
    """Yield how many victims there are, by namespace, kind, rule and what became of them."""
    spec, states = preemption.spec, victim_states(preemption)
    yield f"{counted(len(spec.victims), 'victim')}; --all names them:"
    rows = (
        (v.root.namespace, v.root.kind, v.unit, v.rule, outcome_word(states.get(v.root.uid)))
        for v in spec.victims
    )
    yield from sum_lines(("NAMESPACE", "KIND", "UNIT", "RULE", "OUTCOME"), rows)


def outcome_word(state: VictimStatus | None) -> str:
    """Return what became of a victim, in a word."""
    return "not done yet" if state is None else str(state.state)


def outcome_lines(victim: Victim, state: VictimStatus | None) -> Iterator[str]:
    """Yield what was done with a victim, what became of it, and why it had no notice."""
    yield f"    {victim.action}: {_outcome(state)}"
    if victim.notice_withheld:
        yield f"    It requested notice and got none: {withheld_text(victim.notice_withheld)}"


def _outcome(state: VictimStatus | None) -> str:
    if state is None or state.state is VictimState.PENDING:
        return "not done yet" if state is None or not state.message else state.message
    at = f" at {state.at}" if state.at else ""
    message = f"; {state.message}" if state.message else ""
    return f"{state.state}{at}{message}"


def _reprieved(spec: PreemptionSpec, spared: Sequence[Answer], now: Nanos) -> Iterator[str]:
    whole_run = "" if sum(spec.reprieved.values()) == len(spared) else "; in the whole run:"
    yield f"{counts_text(spec)}{whole_run}"
    for each in spared:
        row = each.workload
        yield f"  {row.key} ({row.root}): {amounts_text(row.gpus)}, {_idle_text(row, now)}"


def _was_reprieved(answer: Answer) -> bool:
    return answer.declined is not None and answer.declined.reason is Reason.REPRIEVED


def counts_text(spec: PreemptionSpec) -> str:
    """Return how many were reprieved, by rule."""
    counts = ", ".join(f"{count} {rule}" for rule, count in sorted(spec.reprieved.items()))
    return f"Reprieved: {counts or 'nobody'}"


def _others(others: Sequence[Answer], now: Nanos) -> Iterator[str]:
    yield "All others that were looked at:" if others else "No other work was considered"
    for each in others:
        yield f"  {answer_text(each, now)}"


def status_lines(preemption: Preemption) -> Iterator[str]:
    """Yield what became of the preemption, and when."""
    status = preemption.status
    reason = f": {status.reason}" if status.reason else ""
    dry_run = " (dry run: nothing is marked or evicted)" if preemption.spec.dry_run else ""
    yield f"Status: {status.phase}{reason}{dry_run}"
    times = (
        ("decided", preemption.spec.decided_at),
        ("recorded", preemption.metadata.creation_timestamp),
        ("started", status.started_at),
        ("finished", status.finished_at),
    )
    for what, at in times:
        if at:
            yield f"  {what:<9} {at}"
    if status.owner:
        yield f"  by {status.owner}, epoch {status.epoch}"


def _name(ref: ObjectRef) -> str:
    return f"{ref.namespace}/{ref.name}"


def _idle_text(workload: Workload, now: Nanos) -> str:
    if workload.status.idle_since is None:
        return "idle"
    return f"idle for {idle_text(workload, now)}"
