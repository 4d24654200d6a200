"""Beside a plan's verdict: when it starts, how narrowly, and why no idle work is evicted.

Each thing submitted that waits has an estimate, or why there is none; so has what starts once
others have been preempted. What decides about the whole cluster again (how narrowly; ends of
declared run times) is left out once that has used so many seconds of processor time.

Source: start estimates and fragility as `whatif.questions.estimating` and
`whatif.questions.fragility` define them.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from kubeworld.objects.paths import Json, first
from reprieve.engine.diagnosis.estimates import Estimate
from reprieve.engine.diagnosis.reasons import BEYOND_EVICTION
from reprieve.engine.idle.resources import is_gpu
from reprieve.kube.resource import PODS, PREEMPTIONS
from reprieve.planes.common.process_settings import IDLE
from reprieve.whatif.again import Again
from reprieve.whatif.happened import Run
from reprieve.whatif.questions.answer import Answer, Outcome, Verdict
from reprieve.whatif.questions.estimating import (
    Waiter,
    after_victims,
    estimated,
    waiting_pod,
    waiting_workload,
)
from reprieve.whatif.questions.fragility import fragility
from reprieve.whatif.questions.idle_reason import idle_reason
from reprieve.whatif.snapshots.snapshot import KindKey, Snapshot
from reprieve.whatif.submitting.submission import Submitted

__all__ = ["affordable", "reported_beside", "spent"]

#: Seconds of processor time.
LONGEST_ASKING: Final = 3.0
_PODS: Final[KindKey] = (PODS.group, PODS.plural)
_RECORDS: Final[KindKey] = (PREEMPTIONS.group, PREEMPTIONS.plural)
_WORKLOADS: Final = ("kueue.x-k8s.io", "workloads")
_LOCAL_QUEUES: Final = ("kueue.x-k8s.io", "localqueues")
_DEFAULT_GRACE: Final = 30


def affordable(of_one: float) -> float:
    """Return how long questions may last, if one decision uses so many seconds of CPU.

    Nothing where one decision uses too much of it: an answer is not to last several times as long.
    """
    return LONGEST_ASKING if of_one * 2 <= LONGEST_ASKING else 0.0


def spent(seconds: float) -> Callable[[], bool]:
    """Return what states whether the process has worked for so long since now."""
    end = time.process_time() + seconds
    return lambda: time.process_time() >= end


async def reported_beside(
    again: Again, run: Run, submitted: Sequence[Submitted], answer: Answer, asking: float
) -> Answer:
    """Return the answer with estimates, reasons of the idle plane, and how fragile it is."""
    over, deciders = again.spent(asking), again.deciders

    async def decide(snapshot: Snapshot) -> Answer:
        return await again.on(snapshot, submitted)

    fragile = await fragility(run, answer, decide, over)
    outcomes = []
    for each in answer.outcomes:
        estimate = await _estimate(run, each, decide, over)
        waits = each.verdict is Verdict.WAITS and IDLE in deciders.options.controllers
        asks = any(is_gpu(name, deciders.settings.start.vendors) for name in each.asks.total)
        gains = each.diagnosis is None or each.diagnosis.reason not in BEYOND_EVICTION
        idle = idle_reason(run, _uids(run, each)) if waits and asks and gains else None
        outcomes.append(replace(each, estimate=estimate, idle=idle))
    return replace(answer.judged_again(tuple(outcomes)), fragile=fragile)


async def _estimate(
    run: Run,
    outcome: Outcome,
    decide: Callable[[Snapshot], Awaitable[Answer]],
    over: Callable[[], bool],
) -> Estimate | None:
    if outcome.verdict is Verdict.STARTS_WITH_VICTIMS:
        return _once_they_left(run)
    if outcome.verdict is not Verdict.WAITS:
        return None

    async def starts(snapshot: Snapshot) -> bool:
        other = await decide(snapshot)
        return any(
            (each.kind, each.namespace, each.name)
            == (outcome.kind, outcome.namespace, outcome.name)
            and each.verdict in (Verdict.STARTS, Verdict.STARTS_WITH_VICTIMS)
            for each in other.outcomes
        )

    waiter = _waiter(run, outcome)
    return await estimated(run.overlay.snapshot, outcome.diagnosis, waiter, starts, over)


def _once_they_left(run: Run) -> Estimate:
    """Return by when it starts, given the grace periods of the pods that are preempted."""
    uids = {obj["metadata"]["uid"] for obj in run.submitted}
    placed = [
        change.at - run.submitted_at
        for change in run.history
        if change.kind == _PODS
        and change.new is not None
        and change.new["spec"].get("nodeName")
        and not (change.old or {"spec": {}})["spec"].get("nodeName")
    ]
    graces = [
        _grace(change.old)
        for change in run.history
        if change.kind == _PODS
        and change.new is None
        and change.old is not None
        and change.old["metadata"]["uid"] not in uids
    ]
    plans = sum(1 for each in run.history if each.kind == _RECORDS and each.old is None)
    return after_victims(run.overlay.snapshot.at, placed, max(graces, default=0), plans)


def _grace(pod: Json) -> int:
    said = pod["metadata"].get("deletionGracePeriodSeconds")
    own = pod["spec"].get("terminationGracePeriodSeconds")
    return next((int(each) for each in (own, said) if each is not None), _DEFAULT_GRACE)


def _waiter(run: Run, outcome: Outcome) -> Waiter | None:
    """Return what waits; None where it is not there."""
    kind, name = outcome.waiting
    if kind == "Workload":
        table = run.overlay.table(*_WORKLOADS)
        found = None if table is None else run.overlay.get(table, outcome.namespace, name)
        return None if found is None else waiting_workload(found, _cluster_queue(run, outcome))
    pod = _waiting_pod(run, outcome)
    return None if pod is None else waiting_pod(pod, outcome.asks.total)


def _cluster_queue(run: Run, outcome: Outcome) -> str:
    table = run.overlay.table(*_LOCAL_QUEUES)
    queue = None if table is None else run.overlay.get(table, outcome.namespace, outcome.queue)
    return str(first(queue, "spec.clusterQueue") or outcome.cluster_queue)


def _waiting_pod(run: Run, outcome: Outcome) -> Json | None:
    kind, name = outcome.waiting
    if kind == "Pod":
        return run.overlay.get(PODS, outcome.namespace, name)
    pods = (each.new for each in reversed(run.history) if each.kind == _PODS and each.new)
    return next(
        (
            pod
            for pod in pods
            if not pod["spec"].get("nodeName")
            and first(pod, "spec.schedulingGroup.podGroupName") == name
        ),
        None,
    )


def _uids(run: Run, outcome: Outcome) -> set[str]:
    return {
        obj["metadata"]["uid"]
        for obj in run.submitted
        if (obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        == (outcome.kind, outcome.namespace, outcome.name)
    }
