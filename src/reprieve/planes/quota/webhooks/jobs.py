"""Webhooks of the kinds that the quota plane queues: what is filled in, what is refused.

At creation, in this order; the second looks at the job as the first left it:

1. no queue name, no managed owner, a managed namespace with a LocalQueue `default`: that one
2. no class, no managed owner, a WorkloadPriorityClass `default`: that one
3. the job is suspended if it is managed: it has a queue name and no ancestor that has one, or jobs
   without a queue name are managed and its namespace is

Instead of the third a pod is gated, and the templates of what makes gated pods state it, also when
they are changed. What a webhook of a kind with a suspend field misses the plane's reconciler makes
up for, so that these fail open unless the operator chooses otherwise.

Source: specification of the quota plane, sections 10.1, 10.3, 10.4 and 12.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Final

from kubeworld.objects.paths import Json, first, set_at
from reprieve.api.kueue_validation_jobs import (
    Kind,
    Suspension,
    batch_job_errors,
    batch_job_update_errors,
    job_errors,
    job_update_errors,
)
from reprieve.api.kueue_validation_kinds import KIND_ERRORS
from reprieve.api.kueue_validation_topology import (
    Template,
    asked_of_topology,
    group_errors,
    topology_errors,
)
from reprieve.engine.quota.model import LabelSelector
from reprieve.jobs.model import JobKind
from reprieve.jobs.passing_on import shift_numbers
from reprieve.jobs.pod_sets import found_pod_sets
from reprieve.jobs.reading import is_managed as can_be_queued
from reprieve.jobs.reading import is_suspended
from reprieve.jobs.training import MANAGER
from reprieve.jobs.writing import injected_runtime
from reprieve.planes.quota.webhooks.defaults import (
    DEFAULT,
    JobRules,
    Tenancy,
    concerns,
    exposure_warnings,
    fill_in,
    is_managed,
)
from reprieve.planes.quota.webhooks.pods import gating, pod_validating, resizing
from reprieve.planes.quota.webhooks.reviews import (
    CREATE,
    CREATE_AND_UPDATE,
    UPDATE,
    Asked,
    Hook,
    Judge,
    Verdict,
)
from reprieve.planes.quota.webhooks.sets import passing_on, set_validating

__all__ = ["JobRules", "Tenancy", "job_hooks", "selector_of"]

_ELASTIC: Final = ("Job", "RayCluster", "RayJob", "RayService")
_NO_PREBUILT: Final = ("JAXJob", "SparkApplication")
_RESIZED: Final = ("", "v1", "pods/resize", "PodResize")
# Its labels become those of a pod, which is queued: group, version, plural and kind.
_NOTEBOOK: Final = ("kubeflow.org", "v1", "notebooks", "Notebook")


def job_hooks(
    kinds: Sequence[JobKind], tenancy: Tenancy, rules: JobRules | None = None
) -> tuple[Hook, ...]:
    """Return the webhooks of these kinds."""
    rules = rules or JobRules()
    found = []
    for kind in kinds:
        version = kind.api_version.rpartition("/")[2]
        place = (kind.group, version, kind.plural, kind.kind)
        if kind.gate:
            judges = gating(kind, kinds, tenancy, rules), pod_validating(kind, tenancy, rules)
        elif kind.passes_on is not None:
            judges = passing_on(kind, tenancy, rules), set_validating(kind, tenancy, rules)
        else:
            judges = _changing(kind, tenancy, rules), _validating(kind, tenancy, rules)
        operations = CREATE if kind.passes_on is None else CREATE_AND_UPDATE
        found.append(_hook(place, judges[0], rules, mutating=True, operations=operations))
        found.append(_hook(place, judges[1], rules))
    if any(kind.gate for kind in kinds):
        found.append(_hook(_NOTEBOOK, _warning(_NOTEBOOK[3], tenancy), rules))
    if kinds:
        found.append(_hook(_RESIZED, resizing(tenancy), rules, operations=UPDATE))
    return tuple(found)


def selector_of(selector: LabelSelector) -> Json:
    """Return a selector as JSON."""
    return {
        "matchExpressions": [
            {
                "key": each.key,
                "operator": each.operator,
                **({"values": list(each.values)} if each.values else {}),
            }
            for each in selector.expressions
        ]
    }


def _hook(
    place: tuple[str, str, str, str],
    judge: Judge,
    rules: JobRules,
    *,
    mutating: bool = False,
    operations: tuple[str, ...] = CREATE_AND_UPDATE,
) -> Hook:
    group, version, plural, kind = place
    name = kind.lower()
    path = f"{group.replace('.', '-')}-{version}-{name}"
    return Hook(
        name=f"{'m' if mutating else 'v'}{name}.kb.io",
        path=f"/{'mutate' if mutating else 'validate'}-{path}",
        group=group,
        version=version,
        resources=(plural,),
        judge=judge,
        mutating=mutating,
        failure_policy=rules.failure_policy,
        namespace_selector=rules.selector,
        operations=operations,
    )


def _changing(kind: JobKind, tenancy: Tenancy, rules: JobRules) -> Judge:
    def judge(asked: Asked) -> Verdict:
        job, namespace = copy.deepcopy(asked.obj), asked.namespace
        if not tenancy.has_managed_owner(namespace, job):
            fill_in(job, namespace, tenancy, rules)
        managed = is_managed(job, namespace, tenancy, rules) and can_be_queued(kind, job)
        if managed and not is_suspended(kind, job):
            set_at(job, kind.suspend, True)
        if managed:
            shift_numbers(kind, job)
        if kind.runtime is not None:
            # There from the start, since patches can only be added then.
            patches = first(job, kind.runtime.patches) or ()
            if not any(each.get("manager") == MANAGER for each in patches):
                job = injected_runtime(kind.runtime, job, {})
        return Verdict(changed=None if job == asked.obj else job)

    return judge


#: What is added to what is wrong with a template that stands in another object.
_OF_RUNTIME: Final = (
    ". Change the annotations in the runtime, or in spec.runtimePatches of the TrainJob"
)


def _validating(kind: JobKind, tenancy: Tenancy, rules: JobRules) -> Judge:
    text = Kind(
        kind.text,
        prebuilt=kind.kind not in _NO_PREBUILT,
        elastic=kind.kind in _ELASTIC,
    )
    is_batch = (kind.group, kind.kind) == ("batch", "Job")
    own = KIND_ERRORS.get((kind.group, kind.kind))

    def judge(asked: Asked) -> Verdict:
        # An object that is not queued, before and after, is not judged here.
        if not concerns(asked, tenancy, rules):
            return Verdict()
        return Verdict(tuple(errors(asked)))

    def errors(asked: Asked) -> Iterator[str]:
        job, old = asked.obj, asked.old
        yield from own(job) if own is not None else ()
        templates = _templates(kind, job, tenancy)
        if old is None or templates != _templates(kind, old, tenancy):
            # What stood there before is no reason to refuse a change of something else.
            advice = "" if kind.runtime is None else _OF_RUNTIME
            for each in templates:
                found = topology_errors(each, layered=rules.layered_slices)
                yield from (why + advice for why in found)
            yield from (why + advice for why in group_errors(templates))
        if old is None:
            yield from job_errors(job, text)
            yield from batch_job_errors(job) if is_batch else ()
            return
        suspension = Suspension(is_suspended(kind, old), is_suspended(kind, job))
        default_queue = tenancy.has_local_queue(asked.namespace, DEFAULT)
        yield from job_update_errors(job, old, text, suspension, default_queue=default_queue)
        yield from batch_job_update_errors(job, old) if is_batch else ()

    return judge


def _templates(kind: JobKind, job: Json, tenancy: Tenancy) -> list[Template]:
    """Return the pod templates of a job that can be read, with the paths of their annotations.

    Those of a runtime are named by their pod set. What a job wraps is checked where it is made.
    """
    if kind.components is not None:
        return []
    found = []
    whole = job if kind.runtime is None else tenancy.resolved(kind, job)
    for each in found_pod_sets(kind, whole):
        annotations = first(each.template, "metadata.annotations")
        if isinstance(annotations, dict):
            at = each.at if kind.runtime is None else f"job[{each.name}]"
            notes = asked_of_topology(annotations)
            found.append(Template(f"{at}.annotations", notes, each.count))
    return found


def _warning(kind: str, tenancy: Tenancy) -> Judge:
    return lambda asked: Verdict(warnings=exposure_warnings(kind, asked, tenancy))
