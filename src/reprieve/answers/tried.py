"""Changes that a plane names for work that waits, tried as a plan of the changed work tries them.

A plane tries a change alone: quota without nodes, or one of several pods. So the work is removed
from a copy of the cluster and planned anew with the change, with nodes for the pods of whatever
scheduler it names. What does not start then is not offered. What could not be tried is offered as
what the plane alone knows of it (`Gain`).

A single pod that waits in no queue, and a PodGroup, need no such trial: the scheduling plane
decides about all of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from reprieve.answers.kinds import job_kind_of
from reprieve.answers.sources import Json
from reprieve.answers.unit import Unit, manifests_of
from reprieve.engine.diagnosis.model import Diagnosis, Gain
from reprieve.engine.plan import Plane
from reprieve.jobs.writing import restored, stopped
from reprieve.kube.reader import Reader
from reprieve.kube.resource import NODES, Resource
from reprieve.units.errors import UsageError
from reprieve.whatif.again import Again
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.happened import Run, Undecided
from reprieve.whatif.questions.answer import Answer
from reprieve.whatif.questions.declared_ends import without_objects
from reprieve.whatif.questions.judging import answer_of
from reprieve.whatif.questions.planning import kinds_of
from reprieve.whatif.questions.verifying import alone, verified
from reprieve.whatif.snapshots.snapshot import Snapshot
from reprieve.whatif.submitting.submission import Submitted
from reprieve.whatif.submitting.unjudged import as_stored

__all__ = ["Trials", "offered_alone", "schedulers_of", "tried"]

_DEFAULT_SCHEDULER: Final = "default-scheduler"
#: What a Job's controller adds, by which it knows the pods of the former object.
_OF_JOB: Final = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid")
_OF_JOB_NAME: Final = "batch.kubernetes.io/job-name"


@dataclass(frozen=True, slots=True)
class Trials:
    """For how long changes may be tried, and on what.

    Attributes:
        seconds: of processor time; 0: none is tried.
        client: reads what turns out to be missing; None of a stored snapshot.
        more: the same cluster with all kinds that these planes read.
    """

    seconds: float
    client: Reader | None = None
    more: Callable[[Snapshot, Deciders], Awaitable[Snapshot]] | None = None


def schedulers_of(unit: Unit) -> frozenset[str]:
    """Return whose pods those of a unit are, by its pods or else the templates of its Workload."""
    specs = [pod["spec"] for pod in unit.pods]
    workload = unit.workload or {"spec": {}}
    specs += [each["template"].get("spec") or {} for each in workload["spec"].get("podSets") or ()]
    return frozenset(str(each.get("schedulerName") or _DEFAULT_SCHEDULER) for each in specs)


def offered_alone(unit: Unit, plane: Plane, diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis with its changes as what the plane alone knows that they gain."""
    gain = _gain_alone(unit, plane)
    return diagnosis if gain is None else replace(diagnosis, fixes=alone(diagnosis.fixes, gain))


def _gain_alone(unit: Unit, plane: Plane) -> Gain | None:
    """Return what is known without a trial; None where that is all."""
    if plane is Plane.QUOTA:
        return Gain.QUOTA
    if unit.workload is None and (unit.group_name or len(unit.pods) == 1):
        return None
    return Gain.ONE_POD


async def tried(
    unit: Unit,
    snapshot: Snapshot,
    plane: Plane,
    diagnosis: Diagnosis,
    deciders: Deciders,
    trials: Trials,
) -> Diagnosis:
    """Return the diagnosis with those of its changes with which a plan states a start."""
    known = offered_alone(unit, plane, diagnosis)
    if known is diagnosis or not diagnosis.fixes or not trials.seconds:
        return known
    placing = deciders.placing(schedulers_of(unit))
    if trials.more is not None:
        snapshot = await trials.more(snapshot, placing)
    if snapshot.refuses(NODES) or not snapshot.serves(NODES.group, NODES.plural):
        return known
    kinds = kinds_of(placing)
    try:
        submitted = [as_stored(each, kinds) for each in _submitted(unit, snapshot)]
        return await _planned(unit, snapshot, placing, submitted, diagnosis, trials) or known
    except (UsageError, Undecided):
        return known  # it is not of a kind that can be planned, or would make too many pods


async def _planned(
    unit: Unit,
    snapshot: Snapshot,
    deciders: Deciders,
    submitted: Sequence[Submitted],
    diagnosis: Diagnosis,
    trials: Trials,
) -> Diagnosis | None:
    """Return the diagnosis with what starts; None where no plan states anything of the work."""
    if not submitted:
        return None
    with Again(trials.client, deciders, _unexplained) as again:
        run = await again.first(without_objects(snapshot, unit.uids), submitted)
        found = answer_of(run)
        if len(found.outcomes) != 1 or found.outcomes[0].verdict is None:
            return None
        outcome = replace(found.outcomes[0], diagnosis=diagnosis)
        answer = found.judged_again((outcome,))
        over = again.spent(trials.seconds)
        answer = await verified(run, answer, submitted, again.with_others, over)
        return answer.outcomes[0].diagnosis


async def _unexplained(run: Run, answer: Answer, until: float) -> Answer:
    return answer


def _submitted(unit: Unit, snapshot: Snapshot) -> Iterator[Submitted]:
    """Yield the work as it was written, without what the cluster added since."""
    served = {
        (each.resource.group, each.resource.kind): each.resource for each in snapshot.kinds.values()
    }
    for each in manifests_of(unit):
        group, _, version = str(each["apiVersion"]).rpartition("/")
        kind = job_kind_of(each)
        resource = served.get((group, each["kind"]))
        if resource is None and kind is not None:
            resource = Resource(group, version, kind.plural, kind.kind)
        if resource is None:
            raise UsageError(f"{each['kind']}: not served")
        if kind is not None and unit.workload is not None:
            # What its quota's flavors add to its pods is no part of what was written.
            each = restored(kind, each, unit.workload["spec"].get("podSets") or ())
            each = stopped(kind, each) if kind.suspend else each
        yield Submitted(resource, _as_written(each), "the cluster")


def _as_written(obj: Json) -> Json:
    metadata = {
        name: value
        for name, value in obj["metadata"].items()
        if name in ("name", "namespace", "labels", "annotations")
    }
    spec = dict(obj.get("spec") or {})
    if obj["kind"] == "Pod":
        spec.pop("nodeName", None)
    if (obj["apiVersion"], obj["kind"]) == ("batch/v1", "Job") and not spec.get("manualSelector"):
        spec.pop("selector", None)
        spec["template"] = _without_labels(spec["template"])
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "metadata": metadata,
        "spec": spec,
    }


def _without_labels(template: Any) -> Any:
    metadata = dict(template.get("metadata") or {})
    labels = metadata.get("labels") or {}
    metadata["labels"] = {k: v for k, v in labels.items() if k not in (*_OF_JOB, _OF_JOB_NAME)}
    return {**template, "metadata": metadata}
