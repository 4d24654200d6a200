"""Why a group has fewer pods than its minimum: its pods failed, or their job is suspended.

A pod that its kubelet refuses (`UnexpectedAdmissionError`, `OutOfcpu`) has failed; its siblings run
on. Only a controller creates it again.

For a suspended job, the owners of the group and of its pods are looked at, and the jobs of the
namespace whose pods name the group. Of a group that has all of its pods nothing is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kubeworld.objects.paths import first
from reprieve.answers.conditions import minimum_of
from reprieve.answers.decided import Decided
from reprieve.answers.document import State, Step
from reprieve.answers.kinds import job_kind_of
from reprieve.answers.sources import Json, Reading
from reprieve.answers.standing import Standing, let_run
from reprieve.answers.unit import Unit, name_of, namespace_of, uid_of
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.intake.gangs import gang_name
from reprieve.jobs.reading import is_suspended
from reprieve.kube.resource import Resource
from reprieve.units.counts import counted

__all__ = ["with_failed_members", "with_missing_members"]

_JOBS: Final = (
    Resource("batch", "v1", "jobs", "Job"),
    Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"),
)
_WITH_PODS: Final = (State.RUNS, State.STARTS, State.WAITS)


def with_failed_members(unit: Unit, standing: Standing) -> Standing:
    """Return how a unit stands, with the failed pods without which its group is too small."""
    minimum = (None if unit.group is None else minimum_of(unit.group)) or 0
    failed = [pod for pod in unit.members if _phase(pod) == "Failed"]
    # A pod that has succeeded has done its part.
    lacks = minimum - (len(unit.members) - len(failed))
    if lacks <= 0 or not failed:
        return standing
    if standing.state is State.FINISHED and unit.asked["kind"] == "Pod":
        return replace(standing, remedy=standing.remedy or _another(unit.asked))
    if standing.state not in _WITH_PODS:
        return standing
    last = max(failed, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))
    text = (
        f"group {unit.group_name} lacks {lacks} of its minimum of {counted(minimum, 'pod')}: "
        f"Pod {name_of(last)} {_how(last)}"
    )
    if len(failed) > 1:
        text += f" (in all {counted(len(failed), 'pod')} of the group failed)"
    return replace(standing, failed=text, remedy=standing.remedy or _another(last))


def _phase(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def _how(pod: Json) -> str:
    """Return how a pod failed, as the end of a sentence."""
    status, node = pod.get("status") or {}, pod["spec"].get("nodeName")
    why = ": ".join(filter(None, (status.get("reason"), status.get("message"))))
    where = f" on node {node}" if node else ""
    return f"failed{where}: {why.rstrip('.')}" if why else f"failed{where}"


def _another(pod: Json) -> Step:
    """Return what gives the group a pod in place of one that has failed."""
    owner = next((each for each in _owners(pod) if each.get("controller")), None)
    where = f"kubectl -n {namespace_of(pod)}"
    if owner is None:
        return Step(
            "The pod has no controller, so that it is not created again: delete it, and create it.",
            f"{where} delete pod {name_of(pod)}",
        )
    return Step(
        f"{owner['kind']} {owner['name']} creates another pod, unless it has given up:",
        f"{where} describe {str(owner['kind']).lower()} {owner['name']}",
    )


async def with_missing_members(
    reading: Reading, unit: Unit, standing: Standing, decided: Decided | None
) -> tuple[Standing, Decided | None]:
    """Return both with the suspended job that is to make a group's missing pods."""
    reported = standing.reported
    known = None if decided is None else decided.diagnosis
    said = None if reported is None else reported.diagnosis
    found = known or said
    if reported is None or found is None or found.reason is not Reason.GROUP_INCOMPLETE:
        return standing, decided
    job = await _suspended(reading, unit)
    if job is None:
        return standing, decided
    row = job_kind_of(job)
    assert row is not None and row.suspend, "it was found to be suspended"
    why = f"{job['kind']} {namespace_of(job)}/{name_of(job)} is suspended ({row.suspend}: true)"
    remedy = let_run(job, row.suspend.removeprefix("spec."), False)
    if decided is not None and known is not None:
        decided = replace(decided, diagnosis=_with_why(known, why))
    if said is not None:
        reported = replace(reported, diagnosis=_with_why(said, why))
    return replace(standing, reported=reported, remedy=_also(standing.remedy, remedy)), decided


def _with_why(diagnosis: Diagnosis, why: str) -> Diagnosis:
    return replace(diagnosis, values={**diagnosis.values, "why": why})


def _also(known: Step | None, found: Step) -> Step:
    return known or found


async def _suspended(reading: Reading, unit: Unit) -> Json | None:
    """Return the first suspended job that owns the group or its pods, or whose pods name it."""
    owners = {str(each.get("uid")) for part in (unit.group, *unit.pods) for each in _owners(part)}
    namespace = namespace_of(unit.asked)
    for resource in _JOBS:
        for each in await reading.listed((resource,), namespace, quietly=True):
            job = {"apiVersion": resource.api_version, "kind": resource.kind, **each}
            row = job_kind_of(job)
            if row is None or not row.suspend or not is_suspended(row, job):
                continue
            if uid_of(job) in owners or unit.group_name in set(_groups(job)):
                return job
    return None


def _owners(part: Json | None) -> list[Json]:
    return [] if part is None else list(part["metadata"].get("ownerReferences") or ())


def _groups(job: Json) -> Iterator[str]:
    """Yield the groups that the pods of a job will name."""
    templates = [first(job, "spec.template")]
    for each in first(job, "spec.replicatedJobs") or ():
        templates.append(first(each, "template.spec.template"))
    for template in filter(None, templates):
        metadata = template.get("metadata") or {}
        named = first(template, "spec.schedulingGroup.podGroupName")
        yield str(
            named or gang_name(metadata.get("labels") or {}, metadata.get("annotations") or {})
        )
