"""Why something has no pods, or too few: the API server refuses them, by its controller's words.

Of a job whose queue has made no Workload the last warning about it states why. Of something that
has all of its pods nothing is read. Where some are there, a refusal counts unless one was made
after it: then the others are on their way.

Source: the events `FailedCreate` of kube-controller-manager and of the controllers of jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kubeworld.objects.paths import first
from kubeworld.objects.pods import is_over
from reprieve.answers.announced import instant_of
from reprieve.answers.document import State, Step
from reprieve.answers.kinds import job_kind_of
from reprieve.answers.sources import Json, Reading
from reprieve.answers.standing import Standing
from reprieve.answers.unit import Unit, name_of, namespace_of, uid_of
from reprieve.api.kueue_validation_jobs import QUEUE_NAME
from reprieve.kube.resource import EVENTS, Resource
from reprieve.units.counts import counted
from reprieve.whatif.questions.asked import described

__all__ = ["with_refusal"]

_REFUSED: Final = "FailedCreate"
_MADE: Final = "SuccessfulCreate"
_WITH_PODS: Final = (State.RUNS, State.STARTS, State.WAITS)
_REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
_LEADS: Final = ("Error creating: ", "failed error: ")


async def with_refusal(reading: Reading, unit: Unit, standing: Standing) -> Standing:
    """Return how a unit stands, with the answer that its controller got when it made its pods."""
    lacks = _lacks(unit) if standing.state in _WITH_PODS else 0
    if standing.state is not State.UNKNOWN and not lacks:
        return standing
    reported = await _reported(reading, unit)
    refused = max(
        (each for each in reported if each["reason"] == _REFUSED), key=instant_of, default=None
    )
    made = max((instant_of(each) for each in reported if each["reason"] == _MADE), default="")
    if refused is None and standing.state is State.UNKNOWN and unit.workload is None:
        return _warned(unit, standing, reported)
    if refused is None or instant_of(refused) < made:
        return standing  # what was refused before has been made since
    why = str(refused.get("message", ""))
    for lead in _LEADS:
        why = why.rpartition(lead)[2]
    why = why.rstrip(".")
    where, kind = namespace_of(unit.asked), unit.asked["kind"].lower()
    remedy = Step(
        "Change what is refused, or have it allowed; its controller tries again by itself:",
        f"kubectl -n {where} describe {kind} {name_of(unit.asked)}",
    )
    if lacks:
        pods = counted(lacks, "more pod")
        return replace(standing, refused=f"the API server refuses {pods}: {why}", remedy=remedy)
    text = f"the API server refuses its pods: {why}"
    return Standing(State.STOPPED, text=text, remedy=remedy)


def _warned(unit: Unit, standing: Standing, reported: Sequence[Json]) -> Standing:
    """Return how a job without a Workload stands, with the last warning about it."""
    labels = unit.root["metadata"].get("labels") or {}
    warnings = [each for each in reported if each.get("type") == "Warning"]
    if QUEUE_NAME not in labels or not warnings:
        return standing
    why = str(max(warnings, key=instant_of).get("message", "")).rstrip(".")
    command = f"kubectl -n {namespace_of(unit.root)} describe {unit.root['kind'].lower()}"
    remedy = Step("Correct what is refused:", f"{command} {name_of(unit.root)}")
    return Standing(State.STOPPED, text=f"{standing.text}: {why}", remedy=remedy)


def _lacks(unit: Unit) -> int:
    """Return how many pods a job or set lacks of those that it wants at once."""
    asked = unit.asked
    live = [pod for pod in unit.pods if not is_over(pod)]
    if not live:
        return 0
    wanted = sum(count for count, _ in described(job_kind_of(asked), asked))
    if not wanted:
        replicas = first(asked, "spec.replicas")
        wanted = replicas if isinstance(replicas, int) else 0
    completions = first(asked, "spec.completions")
    if asked["kind"] == "Job" and isinstance(completions, int):
        # Near its end a job has fewer pods than may run at once.
        succeeded = first(asked, "status.succeeded")
        left = completions - (succeeded if isinstance(succeeded, int) else 0)
        wanted = min(wanted, left)
    return max(0, wanted - len(live))


async def _reported(reading: Reading, unit: Unit) -> Sequence[Json]:
    """Return the events of those who make the unit's pods: pods made and refused, and warnings."""
    namespace = namespace_of(unit.asked)
    uids = {uid_of(each) for each in (unit.asked, *unit.owners)}
    for each in await reading.listed((_REPLICA_SETS,), namespace, quietly=True):
        owners = each["metadata"].get("ownerReferences") or ()
        if uids & {str(owner.get("uid")) for owner in owners}:
            uids.add(uid_of(each))
    for pod in unit.pods:
        owners = pod["metadata"].get("ownerReferences") or ()
        uids |= {str(owner.get("uid")) for owner in owners if owner.get("controller")}
    return [
        event
        for event in await reading.listed((EVENTS,), namespace, quietly=True)
        if (event.get("reason") in (_REFUSED, _MADE) or event.get("type") == "Warning")
        and str((event.get("involvedObject") or {}).get("uid")) in uids
    ]
