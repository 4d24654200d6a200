"""Why a group has fewer pods than its minimum: the job that is to make them is suspended.

Looked at are the owners of the group and of its pods, and the jobs of the namespace whose pods name
the group. Of a group that has all of its pods nothing is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kubeworld.objects.paths import first
from reprieve.answers.decided import Decided
from reprieve.answers.document import Step
from reprieve.answers.kinds import job_kind_of
from reprieve.answers.sources import Json, Reading
from reprieve.answers.standing import Standing, let_run
from reprieve.answers.unit import Unit, name_of, namespace_of, uid_of
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.intake.gangs import gang_name
from reprieve.jobs.reading import is_suspended
from reprieve.kube.resource import Resource

__all__ = ["with_missing_members"]

_JOBS: Final = (
    Resource("batch", "v1", "jobs", "Job"),
    Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"),
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
