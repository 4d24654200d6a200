"""From what is submitted to the whole answer: the run, why what waits does, and what would help.

Pending work is queried from the planes themselves, as they were when the run ended: the dominant
reason, and the changes with which it starts when the engine decides again. Where several planes
decide, or several pods wait one by one, only those of these changes are reported with which all of
it starts under all of them (`whatif.questions.verifying`). If it would wait on the same cluster
without any work on it, too, it never fits: that is decided by another run.

Source: the design's "Processes and time"; the reasons are those of `engine.diagnosis.reasons`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from reprieve.engine.diagnosis.causes import Cause
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Trait, with_trait
from reprieve.engine.diagnosis.refusals import Refused
from reprieve.jobs.table import job_kinds
from reprieve.kube.reader import Reader
from reprieve.kube.resource import (
    NODES,
)
from reprieve.planes.common.process_settings import QUOTA, SCHEDULING
from reprieve.planes.quota.plane import QuotaPlane
from reprieve.planes.quota.watches import CLUSTER_QUEUES
from reprieve.planes.scheduling.plane import SchedulingPlane
from reprieve.whatif.again import Again
from reprieve.whatif.controllers.pod_templates import labels_of_flavors, preempting_classes
from reprieve.whatif.copy.gathering import require
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.happened import Run
from reprieve.whatif.questions.afterwards import borrowed, with_undisturbed
from reprieve.whatif.questions.answer import GATED, Answer, Outcome, Verdict
from reprieve.whatif.questions.beside import affordable, reported_beside
from reprieve.whatif.questions.emptied import emptied
from reprieve.whatif.questions.judging import answer_of
from reprieve.whatif.questions.own_pods import with_own_cause
from reprieve.whatif.questions.verifying import verified
from reprieve.whatif.questions.written import with_written
from reprieve.whatif.run import decided
from reprieve.whatif.snapshots.snapshot import Snapshot
from reprieve.whatif.submitting.pod_admission import check_classes
from reprieve.whatif.submitting.submission import Submitted
from reprieve.whatif.submitting.unjudged import Kinds, as_stored, kinds_by_name
from reprieve.wording.diagnosis import sentence
from reprieve.wording.kube_scheduler import POD_SCHEDULED

__all__ = ["kinds_of", "over_after", "planned"]

_LONGEST_TRYING: Final = 2.0  # seconds for changes that would help, of all that waits

#: What keeps work from starting on an empty cluster, and is not for want of capacity.
_NOT_ROOM: Final = with_trait(Trait.NOT_ROOM)


async def planned(
    client: Reader | None,
    snapshot: Snapshot,
    deciders: Deciders,
    submitted: Sequence[Submitted],
    *,
    fixes: bool = True,
    trying: float = _LONGEST_TRYING,
    asking: float | None = None,
) -> Answer:
    """Return what would happen.

    With `fixes`, and what would help what waits, and what would start without preemption;
    after `trying` seconds no further change is tried in the scheduling plane, and after as many of
    processor time none is planned again with several planes. So, too, with when what waits starts
    and how narrowly the rest does; after `asking` seconds of processor time the cluster is decided
    about no more for that, and by default not at all where it is large.

    Raises:
        Undecided: the planes did not get ready, or the caller may not list what they decide on.
        UsageError: what is stored of their settings is not accepted, the API server could not read
            what is submitted, or it would accept none of its pods.
    """
    if SCHEDULING in deciders.options.controllers:
        require(snapshot, NODES)
    kinds = kinds_of(deciders)
    submitted = [as_stored(each, kinds) for each in submitted]
    check_classes(snapshot, submitted, kinds)
    with Again(client, deciders, _explained_until) as again:
        return await _planned(again, snapshot, submitted, fixes, trying, asking)


async def _planned(
    again: Again,
    snapshot: Snapshot,
    submitted: Sequence[Submitted],
    fixes: bool,
    trying: float,
    asking: float | None,
) -> Answer:
    deciders = again.deciders
    run = await again.first(snapshot, submitted)
    if asking is None:
        asking = affordable(again.of_one)
    queued = any(each.queue for each in answer_of(run).outcomes)
    if queued and QUOTA in deciders.options.controllers:
        require(snapshot, CLUSTER_QUEUES)
    until = time.monotonic() + trying
    answer = await _explained(run, answer_of(run), fixes=fixes, over=over_after(until))
    if fixes and (len(deciders.options.controllers) > 1 or any(map(_by_pod, answer.outcomes))):
        answer = await verified(run, answer, submitted, again.with_others, again.spent(trying))
    answer = replace(answer, borrowed=tuple(borrowed(run, answer)))
    if fixes and answer.victims:
        answer = with_undisturbed(answer, await again.sparing(submitted, until))
    if any(each.verdict is Verdict.WAITS for each in answer.outcomes):
        answer = await _with_never(again.client, run, deciders, submitted, answer)
    if fixes:
        answer = await reported_beside(again, run, submitted, answer, asking)
    return with_written(run, answer)


def kinds_of(deciders: Deciders) -> Kinds:
    """Return the rows of the table of jobs, with those that the operator's settings add."""
    quota = deciders.settings.quota
    return kinds_by_name(job_kinds(() if quota is None else quota.settings().job_kinds))


async def _explained_until(run: Run, answer: Answer, until: float) -> Answer:
    return await _explained(run, answer, fixes=True, over=over_after(until))


async def _with_never(
    client: Reader | None,
    run: Run,
    deciders: Deciders,
    submitted: Sequence[Submitted],
    answer: Answer,
) -> Answer:
    """Return the answer with what would wait on the same cluster without any work, too."""
    alone = await decided(client, emptied(run.overlay.snapshot), deciders, submitted)
    without = await _explained(alone, answer_of(alone), fixes=False, over=lambda: True)
    never = {
        (each.kind, each.namespace, each.name): each
        for each in without.outcomes
        if each.verdict is Verdict.WAITS
        and each.reason != GATED
        and (each.diagnosis is None or each.diagnosis.reason not in _NOT_ROOM)
        and not _lacks_partner(each)
    }
    return answer.judged_again(
        tuple(
            _never(each, never[name], single=len(without.outcomes) == 1)
            if each.verdict is Verdict.WAITS
            and (name := (each.kind, each.namespace, each.name)) in never
            else each
            for each in answer.outcomes
        )
    )


def _lacks_partner(alone: Outcome) -> bool:
    """Return whether a pod is to be near others, none of which is on a cluster without any work."""
    nodes = () if alone.diagnosis is None else alone.diagnosis.nodes
    return any(each.kind is Refused.NO_PARTNER for each in nodes)


def _never(outcome: Outcome, alone: Outcome, *, single: bool) -> Outcome:
    """Return the outcome of what fits nowhere; `alone`: that on the cluster without any work.

    Its reason is the one that remains there: the end of other work does not change it. `single`:
    nothing else was submitted, so that only its own pods have nodes there.
    """
    judged = replace(outcome, verdict=Verdict.NEVER_FITS, pods_on_empty_cluster=alone.placed)
    found, remains = outcome.diagnosis, alone.diagnosis
    if remains is None:
        return judged
    same = found is not None and found.reason is remains.reason
    tried = found if same else replace(remains, fixes=() if found is None else found.fixes)
    if single and alone.placed and tried is not None:
        tried = with_own_cause(tried)
    elif same:
        return judged
    assert tried is not None, "one of the two"
    return replace(judged, diagnosis=tried, reason=tried.reason.value, message=sentence(tried))


def _by_pod(outcome: Outcome) -> bool:
    """Return whether each of several pods waits by itself: a change was tried for one of them."""
    return outcome.waiting[0] == "Pod" and outcome.asks.pods > 1


def over_after(until: float) -> Callable[[], bool]:
    """Return what states whether this monotonic instant, in seconds, has passed."""
    return lambda: time.monotonic() > until


async def _explained(run: Run, answer: Answer, *, fixes: bool, over: Callable[[], bool]) -> Answer:
    """Return the answer with what the planes state about each thing that waits."""
    outcomes = [
        await _with_diagnosis(run, each, fixes=fixes, over=over)
        if each.verdict is Verdict.WAITS
        else each
        for each in answer.outcomes
    ]
    return answer.judged_again(tuple(outcomes))


async def _with_diagnosis(
    run: Run, outcome: Outcome, *, fixes: bool, over: Callable[[], bool]
) -> Outcome:
    found = await _diagnosis(run, outcome, fixes=fixes, over=over)
    if found is None:
        return outcome
    if found.cause is Cause.DEACTIVATED_BY_OPERATOR:
        found = replace(found, values={**found.values, "said": _reported_to_pods(run, outcome)})
    return replace(outcome, diagnosis=found, reason=found.reason.value, message=sentence(found))


def _reported_to_pods(run: Run, outcome: Outcome) -> str:
    """Return what the scheduler stated last of pods deleted with their job's admission."""
    said = (
        str(condition.get("message", ""))
        for change in reversed(run.history)
        if change.object["kind"] == "Pod"
        and change.object["metadata"].get("namespace", "") == outcome.namespace
        and change.object["metadata"]["name"].startswith(f"{outcome.name}-")
        for condition in (change.object.get("status") or {}).get("conditions") or ()
        if condition["type"] == POD_SCHEDULED and condition["status"] == "False"
    )
    return next(filter(None, said), "").rstrip(".")


async def _diagnosis(
    run: Run, outcome: Outcome, *, fixes: bool, over: Callable[[], bool]
) -> Diagnosis | None:
    kind, name = outcome.waiting
    for plane in run.planes:
        if kind == "Workload" and isinstance(plane, QuotaPlane):
            return await plane.waiting.diagnosis(outcome.namespace, name, fixes=fixes)
        if kind in ("Pod", "PodGroup") and isinstance(plane, SchedulingPlane):
            await asyncio.sleep(0)
            return plane.diagnosis(
                kind,
                outcome.namespace,
                name,
                fixes=fixes,
                classes=tuple(preempting_classes(run.overlay)),
                imposed=labels_of_flavors(run.overlay) if outcome.queue else frozenset(),
                stop=over,
            )
    return None
