"""The story of one preemption by a pod or a pod group, for people.

Written from the record alone where its input is not there, and from the decision made again where
it is. Pure: a record is the input, lines are the output. Source: promise "Explained" of the design.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.reprieve import Preemption, PreemptionSpec
from reprieve.engine.cluster.rows import COMPOSITE
from reprieve.records.idle.story import (
    amounts_lines,
    counted_victims,
    counts_text,
    outcome_lines,
    outcome_word,
    status_lines,
)
from reprieve.records.scheduling.replay import Part, PodAnswer, SchedulingReplay, pod_answers
from reprieve.records.sums import MOST_NAMED, pool_of, sum_lines
from reprieve.records.victim_states import victim_states
from reprieve.units.counts import counted
from reprieve.wording.plans import choice_lines

__all__ = ["pod_answer_text", "pod_story", "pods_named"]


def pod_story(
    preemption: Preemption, replay: SchedulingReplay | None, *, everything: bool = False
) -> list[str]:
    """Return the lines; `replay` None shows what stands in the record itself.

    `everything`: more than fifty members or victims are named, too, rather than counted.
    """
    answers = list(pod_answers(replay)) if replay is not None else []
    names = {each.uid: each.key for each in answers}
    lines = [*_preemptor(preemption.spec, replay, answers, everything), ""]
    lines += [*amounts_lines(preemption.spec, names, everything=everything), ""]
    lines += [*_victims(preemption, replay, answers, everything), ""]
    lines += [*_kept(preemption.spec, replay, answers), ""]
    return [*lines, *status_lines(preemption)]


def pods_named(replay: SchedulingReplay, namespace: str, name: str) -> list[PodAnswer]:
    """Return the answer for the pod of this name, else those for the pods of the group."""
    key = f"{namespace}/{name}"
    answers = list(pod_answers(replay))
    return [each for each in answers if each.key == key] or [
        each for each in answers if each.group == key
    ]


def pod_answer_text(answer: PodAnswer, replay: SchedulingReplay) -> str:
    """Return what became of one pod, in one line."""
    where = f"on {answer.node}, " if answer.node else ""
    who = f"{answer.key} ({where}priority {answer.priority}{_group_text(answer)})"
    match answer.part:
        case Part.MEMBER:
            gets = f"is to run on {answer.node}" if answer.node else "gets no node yet"
            return f"{answer.key} (priority {answer.priority}{_group_text(answer)}) {gets}"
        case Part.VICTIM:
            return f"{who} is preempted: {_why(answer)}"
        case Part.REPRIEVED:
            return f"{who} stays: the preemptor fits with it in place"
        case Part.OVERDUE:
            return f"{who} was to be preempted earlier and has not ended: no plan uses its capacity"
        case Part.PROTECTED:
            until = format_instant(Nanos(answer.until * SECOND))
            return f"{who} stays: it is within its minimum runtime until {until}"
        case Part.HELD:
            until = format_instant(Nanos(answer.until * SECOND))
            return f"{who} stays: held from the preemptor until {until} ({answer.rule})"
        case Part.ELSEWHERE:
            return f"{who} stays: the pod is to run on another node"
        case Part.NOT_LOWER:
            return f"{who} stays: its priority is not below the preemptor's {replay.priority}"


def _preemptor(
    spec: PreemptionSpec,
    replay: SchedulingReplay | None,
    answers: Sequence[PodAnswer],
    everything: bool,
) -> Iterator[str]:
    ref = spec.preemptor
    if ref is None:
        yield "Preemptor: none"
        return
    line = f"Preemptor: {ref.kind} {ref.namespace}/{ref.name}"
    if replay is None:
        yield line
        return
    members = [each for each in answers if each.part is Part.MEMBER]
    yield f"{line}, priority {replay.priority}, {counted(len(members), 'waiting pod')}"
    if len(members) > MOST_NAMED and not everything:
        pools = _pools(replay)
        rows = ((pools.get(m.node, ""), m.key.partition("/")[0], m.group) for m in members)
        yield from sum_lines(("NODE POOL", "NAMESPACE", "GROUP"), rows)
        return
    for each in members:
        yield f"  {pod_answer_text(each, replay)}"


def _victims(
    preemption: Preemption,
    replay: SchedulingReplay | None,
    answers: Sequence[PodAnswer],
    everything: bool,
) -> Iterator[str]:
    known = {each.uid: each for each in answers if each.part is Part.VICTIM}
    if len(preemption.spec.victims) > MOST_NAMED and not everything:
        yield from _counted(preemption, replay, known)
        return
    proof = preemption.spec.proof
    yield from choice_lines(proof.profile, proof.gap)
    yield "Victims, the most important first:"
    states = victim_states(preemption)
    for victim in preemption.spec.victims:
        answer = known.get(victim.root.uid)
        if answer is not None and replay is not None:
            yield f"  {pod_answer_text(answer, replay)}"
        else:
            yield f"  {victim.root.namespace}/{victim.root.name}: {victim.rule}"
        yield from outcome_lines(victim, states.get(victim.root.uid))


def _counted(
    preemption: Preemption, replay: SchedulingReplay | None, known: Mapping[str, PodAnswer]
) -> Iterator[str]:
    """Yield how many victims there are, by pool of their node, namespace, group and outcome."""
    if replay is None:
        yield from counted_victims(preemption)
        return
    victims, states, pools = preemption.spec.victims, victim_states(preemption), _pools(replay)
    nodes = len({each.node for each in known.values()})
    yield f"{counted(len(victims), 'victim')} on {counted(nodes, 'node')}; --all names them:"
    rows = []
    for victim in victims:
        uid, answer = victim.root.uid, known.get(victim.root.uid)
        pool, group = ("", "") if answer is None else (pools.get(answer.node, ""), answer.group)
        outcome = outcome_word(states.get(uid))
        rows.append((pool, victim.root.namespace, group, victim.rule, outcome))
    yield from sum_lines(("NODE POOL", "NAMESPACE", "GROUP", "RULE", "OUTCOME"), rows)


def _pools(replay: SchedulingReplay) -> dict[str, str]:
    """Return the pool of each node, by its name."""
    return {node.name: pool_of(node.labels) for node in replay.snapshot.nodes}


def _kept(
    spec: PreemptionSpec, replay: SchedulingReplay | None, answers: Sequence[PodAnswer]
) -> Iterator[str]:
    if spec.reprieved:
        yield counts_text(spec)
    if replay is None:
        return
    staying = (Part.REPRIEVED, Part.OVERDUE, Part.PROTECTED, Part.HELD)
    reprieved = [each for each in answers if each.part in staying]
    yield (
        f"{counted(len(reprieved), 'candidate that stays', 'candidates that stay')}:"
        if reprieved
        else "No candidate stays"
    )
    for each in reprieved[:MOST_NAMED]:
        yield f"  {pod_answer_text(each, replay)}"
    if len(reprieved) > MOST_NAMED:
        more = len(reprieved) - MOST_NAMED
        yield f"  and {more} more: --workload NAMESPACE/NAME answers for one of them"
    counts = Counter(each.part for each in answers)
    if counts[Part.ELSEWHERE]:
        yield f"{counts[Part.ELSEWHERE]} of lower priority on other nodes than the one chosen"
    yield f"{counts[Part.NOT_LOWER]} could not be victims: their priority is not lower"


def _why(answer: PodAnswer) -> str:
    unit = answer.unit
    assert unit is not None
    what = "group"
    if unit.group.startswith(COMPOSITE):
        what = f"tree {unit.group.removeprefix(COMPOSITE)}"
    whole = (
        f"its {what} is evicted as a whole ({counted(len(unit.pods), 'pod')}), and "
        if unit.whole_group
        else ""
    )
    refused = answer.refused
    reason = f"{refused} refuses its reprieve" if refused else "the preemptor does not fit with it"
    budget = ", a disruption budget notwithstanding" if unit.violating else ""
    return f"{whole}{reason}{budget}"


def _group_text(answer: PodAnswer) -> str:
    return f", group {answer.group}" if answer.group else ""
