"""Webhooks of the kinds that the quota plane queues: what is filled in, what is refused.

At creation, in this order; the second looks at the job as the first left it:

1. no queue name, no managed owner, a managed namespace with a LocalQueue `default`: that one
2. no class, no managed owner, a WorkloadPriorityClass `default`: that one
3. the job is suspended if it is managed: it has a queue name and no ancestor that has one, or jobs
   without a queue name are managed and its namespace is

A kind that cannot be suspended is warned about when its queue can be hit by preemption: nothing
stops it but the loss of its pods. Everything that a webhook misses the plane's reconciler makes up
for, so that these fail open unless the operator chooses otherwise.

Source: specification of the quota plane, sections 10.1, 10.7 and 12.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from reprieve.api.kueue_validation_jobs import (
    PRIORITY_CLASS,
    QUEUE_NAME,
    Kind,
    Suspension,
    batch_job_errors,
    batch_job_update_errors,
    job_errors,
    job_update_errors,
)
from reprieve.controllers.webhook_reviews import CREATE, Asked, Hook, Judge, Verdict
from reprieve.engine.quota.model import LabelSelector
from reprieve.jobs.model import JobKind
from reprieve.jobs.paths import Json, first, put
from reprieve.jobs.reading import is_suspended

__all__ = ["NON_SUSPENDABLE", "JobRules", "Tenancy", "job_hooks", "selector_of"]

DEFAULT: Final = "default"
_ELASTIC: Final = ("Job", "RayCluster", "RayJob", "RayService")
_NO_PREBUILT: Final = ("JAXJob", "SparkApplication")
# Group, version, plural and kind of what has no suspend entry.
NON_SUSPENDABLE: Final = (
    ("", "v1", "pods", "Pod"),
    ("apps", "v1", "deployments", "Deployment"),
    ("apps", "v1", "statefulsets", "StatefulSet"),
    ("kubeflow.org", "v1", "notebooks", "Notebook"),
)


class Tenancy(Protocol):
    """What the plane knows of namespaces, queues and owners."""

    def manages(self, namespace: str) -> bool:
        """Tell whether jobs of this namespace are managed."""
        ...

    def has_local_queue(self, namespace: str, name: str) -> bool:
        """Tell whether there is such a LocalQueue."""
        ...

    def has_priority_class(self, name: str) -> bool:
        """Tell whether there is such a WorkloadPriorityClass."""
        ...

    def has_managed_owner(self, namespace: str, job: Json) -> bool:
        """Tell whether the controller of a job is of an enabled or an external kind."""
        ...

    def has_ancestor(self, namespace: str, job: Json) -> bool:
        """Tell whether a job stands below one that is queued itself."""
        ...

    def can_be_hit(self, namespace: str, local_queue: str) -> Sequence[str]:
        """Return what can hit workloads of a LocalQueue: a setting and its ClusterQueue, each."""
        ...


@dataclass(frozen=True, slots=True)
class JobRules:
    """How jobs are treated. `selector` chooses the namespaces that are asked about, as JSON."""

    without_queue_name: bool = False
    default_classes: bool = True
    failure_policy: str = "Ignore"
    selector: Mapping[str, Any] | None = None


def job_hooks(
    kinds: Sequence[JobKind], tenancy: Tenancy, rules: JobRules | None = None
) -> tuple[Hook, ...]:
    """Return the webhooks of these kinds, and of those that cannot be suspended."""
    rules = rules or JobRules()
    found = []
    for kind in filter(lambda kind: kind.suspend, kinds):
        version = kind.api_version.rpartition("/")[2]
        place = (kind.group, version, kind.plural, kind.kind)
        found.append(_hook(place, _changing(kind, tenancy, rules), rules, mutating=True))
        found.append(_hook(place, _validating(kind, tenancy), rules))
    listed = {(kind.group, kind.kind) for kind in kinds if kind.suspend}
    for place in NON_SUSPENDABLE:
        if (place[0], place[3]) not in listed:
            found.append(_hook(place, _warning(place[3], tenancy), rules))
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
    place: tuple[str, str, str, str], judge: Judge, rules: JobRules, *, mutating: bool = False
) -> Hook:
    group, version, plural, kind = place
    name = kind.lower()
    path = f"{group.replace('.', '-')}-{version}-{name}"
    more: dict[str, Any] = {"operations": CREATE} if mutating else {}
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
        **more,
    )


def _changing(kind: JobKind, tenancy: Tenancy, rules: JobRules) -> Judge:
    def judge(asked: Asked) -> Verdict:
        job, namespace = copy.deepcopy(asked.obj), asked.namespace
        if not tenancy.has_managed_owner(namespace, job):
            _fill_in(job, namespace, tenancy, rules)
        if _is_managed(job, namespace, tenancy, rules) and not is_suspended(kind, job):
            put(job, kind.suspend, True)
        return Verdict(changed=None if job == asked.obj else job)

    return judge


def _fill_in(job: Json, namespace: str, tenancy: Tenancy, rules: JobRules) -> None:
    labels = _labels(job)
    wants = not labels.get(QUEUE_NAME) and tenancy.manages(namespace)
    if wants and tenancy.has_local_queue(namespace, DEFAULT):
        _set_label(job, QUEUE_NAME, DEFAULT)
    wants = rules.default_classes and not labels.get(PRIORITY_CLASS)
    if wants and tenancy.has_priority_class(DEFAULT):
        _set_label(job, PRIORITY_CLASS, DEFAULT)


def _is_managed(job: Json, namespace: str, tenancy: Tenancy, rules: JobRules) -> bool:
    if tenancy.has_ancestor(namespace, job):
        return False
    if _labels(job).get(QUEUE_NAME):
        return True
    return rules.without_queue_name and tenancy.manages(namespace)


def _validating(kind: JobKind, tenancy: Tenancy) -> Judge:
    text = Kind(
        f"{kind.api_version}, Kind={kind.kind}",
        prebuilt=kind.kind not in _NO_PREBUILT,
        elastic=kind.kind in _ELASTIC,
    )
    is_batch = (kind.group, kind.kind) == ("batch", "Job")

    def judge(asked: Asked) -> Verdict:
        # Without a queue name, before and after, a job is nobody's business here.
        if not any(_labels(each).get(QUEUE_NAME) for each in (asked.obj, asked.old or {})):
            return Verdict()
        return Verdict(tuple(errors(asked)))

    def errors(asked: Asked) -> Iterator[str]:
        job, old = asked.obj, asked.old
        if old is None:
            yield from job_errors(job, text)
            yield from batch_job_errors(job) if is_batch else ()
            return
        suspension = Suspension(is_suspended(kind, old), is_suspended(kind, job))
        default_queue = tenancy.has_local_queue(asked.namespace, DEFAULT)
        yield from job_update_errors(job, old, text, suspension, default_queue=default_queue)
        yield from batch_job_update_errors(job, old) if is_batch else ()

    return judge


def _warning(kind: str, tenancy: Tenancy) -> Judge:
    def judge(asked: Asked) -> Verdict:
        queue = _labels(asked.obj).get(QUEUE_NAME)
        if not queue or (asked.old is not None and _labels(asked.old).get(QUEUE_NAME) == queue):
            return Verdict()
        settings = tenancy.can_be_hit(asked.namespace, queue)
        if not settings:
            return Verdict()
        where = f"{asked.namespace}/{queue}"
        return Verdict(
            warnings=(
                (
                    f"{kind} cannot be suspended, and LocalQueue {where} can be hit by preemption "
                    f"({'; '.join(settings)}), which deletes its pods; use a queue that cannot"
                ),
            )
        )

    return judge


def _labels(job: Mapping[str, Any]) -> Mapping[str, str]:
    return first(job, "metadata.labels") or {}


def _set_label(job: Json, name: str, value: str) -> None:
    metadata = job.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), name: value}
