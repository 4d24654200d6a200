"""Beside the verdict: what would start without preemption, and what queues borrow afterwards.

Of what starts because others are preempted, the pods that would start without are those placed by
the same planes when preemption is switched off (`whatif.copy.sparing`); where none is, as many as
the engine starts when fewer are requested are stated beside. What a queue borrows is what the
quota plane wrote into its status at the end.

What is missing without them is what the engine states of it then. A queue of the same cohort
reclaims what is borrowed where it may reclaim and has not used all of its own.

Source: specification of the quota plane, sections 3, 6 and 9.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from kubeworld.objects.paths import Json, first
from reprieve.engine.diagnosis.model import Change
from reprieve.intake.cluster.requests import amount_in_base_units
from reprieve.whatif.happened import Run
from reprieve.whatif.questions.answer import Answer, Borrowed, Outcome, Verdict

__all__ = ["borrowed", "with_undisturbed"]

_QUEUES: Final = ("kueue.x-k8s.io", "clusterqueues")
_COHORTS: Final = ("kueue.x-k8s.io", "cohorts")


def with_undisturbed(answer: Answer, spared: Answer) -> Answer:
    """Return the answer with the pods that start without victims; `spared`: with none allowed."""
    if spared.victims:
        return answer  # some work was preempted nevertheless: nothing can be stated
    known = {(each.kind, each.namespace, each.name): each for each in spared.outcomes}
    return answer.judged_again(
        tuple(
            replace(
                each,
                pods_without_victims=_pods(other),
                pods_if_fewer=_if_fewer(each, other),
                short=_short(each, other),
            )
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
    if resource is None or not names:
        return
    queues = {each["metadata"]["name"]: each for each in run.overlay.all(resource)}
    roots = _roots(run)
    for name in sorted(names & queues.keys()):
        columns = _borrows(queues[name])
        amounts: dict[str, int] = {}
        for (_, kind), amount in columns.items():
            amounts[kind] = amounts.get(kind, 0) + amount
        if amounts:
            root = _root(queues[name], roots)
            lenders = (
                other
                for other, queue in sorted(queues.items())
                if other != name and root and _root(queue, roots) == root
                if _reclaims(queue) and _unused(queue, columns)
            )
            yield Borrowed(name, amounts, tuple(lenders))


def _borrows(queue: Json) -> dict[tuple[str, str], int]:
    """Return what a ClusterQueue uses over its nominal quota, by flavor and resource."""
    found = {}
    for flavor in first(queue, "status.flavorsUsage") or ():
        for used in flavor.get("resources") or ():
            amount = _amount(used["name"], used.get("borrowed"))
            if amount > 0:
                found[flavor["name"], used["name"]] = amount
    return found


def _reclaims(queue: Json) -> bool:
    policy = first(queue, "spec.preemption.reclaimWithinCohort")
    return bool(policy) and policy != "Never"


def _unused(queue: Json, columns: Mapping[tuple[str, str], int]) -> bool:
    """Return whether a queue uses less than its nominal quota of one of these."""
    used = {
        (flavor["name"], each["name"]): _amount(each["name"], each.get("total"))
        for flavor in first(queue, "status.flavorsUsage") or ()
        for each in flavor.get("resources") or ()
    }
    return any(
        column in columns
        and _amount(each["name"], each.get("lendingLimit", each.get("nominalQuota")))
        and used.get(column, 0) < _amount(each["name"], each.get("nominalQuota"))
        for group in first(queue, "spec.resourceGroups") or ()
        for flavor in group.get("flavors") or ()
        for each in flavor.get("resources") or ()
        for column in ((flavor["name"], each["name"]),)
    )


def _amount(resource: str, quantity: str | int | None) -> int:
    return amount_in_base_units(resource, quantity or 0)


def _roots(run: Run) -> dict[str, str]:
    """Return the parent of each cohort that has one."""
    resource = run.overlay.table(*_COHORTS)
    cohorts = run.overlay.all(resource) if resource is not None else ()
    return {
        each["metadata"]["name"]: parent
        for each in cohorts
        if (parent := first(each, "spec.parentName") or first(each, "spec.parent"))
    }


def _root(queue: Json, parents: Mapping[str, str]) -> str:
    """Return the cohort at the root of a queue's tree, empty where it is in none."""
    name = str(first(queue, "spec.cohortName") or first(queue, "spec.cohort") or "")
    seen: set[str] = set()
    while name in parents and name not in seen:
        seen.add(name)
        name = parents[name]
    return name


def _short(wanted: Outcome, spared: Outcome) -> dict[str, int]:
    """Return what is missing without preemption, at the place where that is least.

    Nothing of several pods that are placed one by one: it is known of the first of them alone.
    """
    one_by_one = spared.waiting[0] == "Pod" and wanted.pods - spared.placed > 1
    if spared.diagnosis is None or one_by_one:
        return {}
    deficit = spared.diagnosis.deficit
    place = next(iter(deficit), ("", ""))[0]
    return {kind: amount for (where, kind), amount in deficit.items() if where == place}


def _pods(spared: Outcome) -> int:
    if spared.verdict in (Verdict.STARTS, Verdict.STARTS_WITH_VICTIMS):
        return spared.pods  # of a job that is admitted in part fewer than with victims
    return spared.placed


def _if_fewer(wanted: Outcome, spared: Outcome) -> int | None:
    """Return how many pods the engine starts without victims where none of all of them starts."""
    if _pods(spared) or spared.diagnosis is None:
        return None
    for fix in spared.diagnosis.fixes:
        if fix.change is Change.FEWER_PODS and not fix.victims:
            # Of several sets of pods one gets smaller.
            return max(0, wanted.pods - int(fix.before) + int(fix.after)) or None
    return None
