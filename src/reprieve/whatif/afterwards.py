"""Beside the verdict: what would start with nobody making way, and what queues borrow afterwards.

Of what starts because others make way, the pods that would start without are those placed by the
same planes when preemption is switched off (`whatif.sparing`); where none is, as many as the
engine lets start when it is asked with fewer. What a queue borrows is what the quota plane wrote
into its status at the end.

Source: specification of the quota plane, section 9.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from reprieve.engine.diagnosis.model import Change
from reprieve.jobs.paths import first
from reprieve.units.quantities import parse_milli, parse_quantity
from reprieve.whatif.answer import Answer, Borrowed, Outcome, Verdict
from reprieve.whatif.run import Run

__all__ = ["borrowed", "with_undisturbed"]

_QUEUES: Final = ("kueue.x-k8s.io", "clusterqueues")


def with_undisturbed(answer: Answer, spared: Answer) -> Answer:
    """Return the answer with the pods that start without victims; `spared`: with none allowed."""
    if spared.victims:
        return answer  # somebody went nevertheless: nothing can be said
    known = {(each.kind, each.namespace, each.name): each for each in spared.outcomes}
    return answer.judged_again(
        tuple(
            replace(each, pods_without_victims=_pods(each, other))
            if each.verdict is Verdict.STARTS_WITH_VICTIMS
            and (other := known.get((each.kind, each.namespace, each.name))) is not None
            else each
            for each in answer.outcomes
        )
    )


def borrowed(run: Run, answer: Answer) -> Iterator[Borrowed]:
    """Yield what the queues of what was submitted use over their nominal quota at the end."""
    resource = run.overlay.table(*_QUEUES)
    names = {each.cluster_queue for each in answer.outcomes if each.cluster_queue}
    if resource is None:
        return
    for name in sorted(names):
        amounts: dict[str, int] = {}
        queue = run.overlay.get(resource, "", name)
        for flavor in first(queue, "status.flavorsUsage") or ():
            for used in flavor.get("resources") or ():
                kind, over = used["name"], used.get("borrowed") or 0
                amount = parse_milli(over) if kind == "cpu" else parse_quantity(over)
                amounts[kind] = amounts.get(kind, 0) + amount
        amounts = {kind: amount for kind, amount in amounts.items() if amount > 0}
        if amounts:
            yield Borrowed(name, amounts)


def _pods(wanted: Outcome, spared: Outcome) -> int:
    if spared.verdict in (Verdict.STARTS, Verdict.STARTS_WITH_VICTIMS):
        return wanted.pods
    if spared.placed or spared.diagnosis is None:
        return spared.placed
    for fix in spared.diagnosis.fixes:
        if fix.change is Change.FEWER_PODS and not fix.victims:
            # Of several sets of pods one gets smaller.
            return max(0, wanted.pods - int(fix.before) + int(fix.after))
    return 0
