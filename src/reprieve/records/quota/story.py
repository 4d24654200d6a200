"""The story of one preemption by quota, for people.

Written from the record alone where its input is not there, and from the cycle run again where it
is. Pure: a record is the input, lines are the output. Source: promise "Explained" of the design.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from reprieve.api.reprieve import Preemption, PreemptionSpec
from reprieve.engine.quota.holdings.amounts import text
from reprieve.engine.quota.holdings.shares import share
from reprieve.records.idle.story import counted_victims, level_text, outcome_lines, status_lines
from reprieve.records.quota.replay import QuotaAnswer, QuotaReplay, Standing, quota_answers
from reprieve.records.sums import MOST_NAMED
from reprieve.records.victim_states import victim_states
from reprieve.units.counts import of_resource
from reprieve.wording.demands import demand_lines
from reprieve.wording.plans import choice_lines

__all__ = ["quota_answer_text", "quota_story", "workloads_named"]

_STAYS: Final = {
    Standing.GOING: "is on its way out already, and its quota counts as free",
    Standing.UNRELATED: "stays: it holds nothing of what the preemptor lacks",
    Standing.WITHIN_QUOTA: "stays: its queue, or a cohort above it, uses no more than its own",
    Standing.PROTECTED: "stays: it is within its minimum runtime, or is one of a held pair",
    Standing.REPRIEVED: "stays: the preemptor fits with it in place",
}


def quota_story(
    preemption: Preemption, replay: QuotaReplay | None, *, everything: bool = False
) -> list[str]:
    """Return the lines; `replay` None shows what stands in the record itself.

    `everything`: more than fifty victims are named, too, rather than counted.
    """
    answers = list(quota_answers(replay)) if replay is not None else []
    lines = [*_preemptor(preemption.spec, replay, answers), ""]
    lines += [*_amounts(preemption.spec), ""]
    lines += [*_victims(preemption, answers, everything), ""]
    if replay is not None:
        lines += [*_others(answers), ""]
    return [*lines, *status_lines(preemption)]


def workloads_named(replay: QuotaReplay, namespace: str, name: str) -> list[QuotaAnswer]:
    """Return the answer for the Workload of this name."""
    return [each for each in quota_answers(replay) if each.key == f"{namespace}/{name}"]


def quota_answer_text(answer: QuotaAnswer) -> str:
    """Return what became of one workload, in one line."""
    amounts = amounts_text(answer.amounts)
    about = f"{answer.cluster_queue}, priority {answer.priority}"
    who = f"{answer.key} ({', '.join(filter(None, (about, amounts)))})"
    match answer.standing:
        case Standing.PREEMPTOR | Standing.HEAD:
            return f"{who} waits: {answer.detail}" if answer.detail else f"{who} waits"
        case Standing.VICTIM:
            return f"{who} is preempted: {answer.detail}"
        case Standing.ANOTHERS:
            return f"{who} is preempted for {answer.detail}, which came first in the cycle"
        case Standing.POLICY:
            return f"{who} stays: {answer.detail}"
        case Standing.PROTECTED if answer.detail:
            return f"{who} stays: {answer.detail}"
    return f"{who} {_STAYS[answer.standing]}"


def amounts_text(amounts: Mapping[str, int]) -> str:
    """Return amounts of quota, such as `2 amd.com/gpu, 500m cpu`."""
    return ", ".join(
        of_resource(text(name, amount), name) for name, amount in sorted(amounts.items())
    )


def _preemptor(
    spec: PreemptionSpec, replay: QuotaReplay | None, answers: Sequence[QuotaAnswer]
) -> Iterator[str]:
    ref = spec.preemptor
    name = "nobody" if ref is None else f"{ref.kind} {ref.namespace}/{ref.name}"
    if replay is None:
        yield f"Preemptor: {name}"
        return
    first = answers[0]
    yield f"Preemptor: {name} of ClusterQueue {first.cluster_queue}, priority {first.priority}"
    yield f"  {first.detail}"
    if replay.decided_on.settings.fair_sharing is not None:
        snapshot = replay.snapshot
        tree = snapshot.tree
        shares = (
            f"{name} {share(tree, snapshot.usage, node).published}"
            for name, node in tree.queues.items()
        )
        yield f"  Shares before: {', '.join(shares)}"


def _amounts(spec: PreemptionSpec) -> Iterator[str]:
    proof = spec.proof
    rows = [("RESOURCE", "NEED", "AVAILABLE", "FREED")]
    for name in sorted({*proof.need, *proof.in_flight, *proof.freed}):
        parts = (proof.need, proof.in_flight, proof.freed)
        rows.append((name, *(text(name, part.get(name, 0)) for part in parts)))  # type: ignore[arg-type]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
    yield f"Proof {proof.level}: {level_text(proof.level)}"
    yield from choice_lines(proof.profile, proof.gap)
    yield from demand_lines(spec)


def _victims(
    preemption: Preemption, answers: Sequence[QuotaAnswer], everything: bool
) -> Iterator[str]:
    if len(preemption.spec.victims) > MOST_NAMED and not everything:
        yield from counted_victims(preemption)
        return
    yield "Victims, in the order in which they were chosen:"
    known = {each.uid: each for each in answers if each.standing is Standing.VICTIM}
    states = victim_states(preemption)
    for victim in preemption.spec.victims:
        answer = known.get(victim.subject.uid)
        if answer is not None:
            yield f"  {quota_answer_text(answer)}"
        else:
            name = f"{victim.subject.namespace}/{victim.subject.name}"
            yield f"  {name} ({amounts_text(victim.amounts)}): {victim.rule}"
        yield from outcome_lines(victim, states.get(victim.root.uid))


def _others(answers: Sequence[QuotaAnswer]) -> Iterator[str]:
    reported = (Standing.PREEMPTOR, Standing.VICTIM, Standing.HEAD)
    others = [each for each in answers if each.standing not in reported]
    yield "Others that held quota in its cohorts:" if others else "No other work held quota there"
    for each in others[:MOST_NAMED]:
        yield f"  {quota_answer_text(each)}"
    if len(others) > MOST_NAMED:
        more = len(others) - MOST_NAMED
        yield f"  and {more} more: --workload NAMESPACE/NAME answers for one of them"
    heads = [each for each in answers if each.standing is Standing.HEAD]
    if heads:
        yield "Others that waited in the same cycle:"
        for each in heads:
            yield f"  {quota_answer_text(each)}"
