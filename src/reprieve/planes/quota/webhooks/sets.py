"""Webhooks of Deployments, StatefulSets and LeaderWorkerSets: their templates state who gates.

At creation and at every change, after the default queue and class were filled in. Refused while
they are managed: another queue once replicas are ready, other requests or placement of a
StatefulSet's pods, replicas of a StatefulSet other than to and from zero, or before the pods of a
scale-down have ended, another template or size of a LeaderWorkerSet's groups.

Source: specification of the quota plane, sections 10.4 and 12.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from kubeworld.objects.paths import Json, first, total
from reprieve.api import field_errors as wrong
from reprieve.api.kueue_validation_jobs import QUEUE_NAME
from reprieve.api.kueue_validation_topology import Template, asked_of_topology, topology_errors
from reprieve.jobs.model import JobKind, PassesOn
from reprieve.jobs.passing_on import pass_on, shift_numbers
from reprieve.jobs.pods import shape
from reprieve.planes.quota.job_reconciler.job_lookup import workload_key
from reprieve.planes.quota.webhooks.defaults import (
    PASSED_ON,
    JobRules,
    Tenancy,
    concerns,
    exposure_warnings,
    fill_in,
    is_managed,
    labels_of,
)
from reprieve.planes.quota.webhooks.reviews import Asked, Judge, Verdict

__all__ = ["passing_on", "set_validating"]

_QUEUE_LABEL = f"metadata.labels[{QUEUE_NAME}]"


def passing_on(kind: JobKind, tenancy: Tenancy, rules: JobRules) -> Judge:
    """Return what writes into the templates of a kind that its pods are gated."""
    passes_on = kind.passes_on
    assert passes_on is not None

    def judge(asked: Asked) -> Verdict:
        obj, namespace = copy.deepcopy(asked.obj), asked.namespace
        if asked.old is None and not tenancy.has_managed_owner(namespace, obj):
            fill_in(obj, namespace, tenancy, rules)
        if is_managed(obj, namespace, tenancy, rules):
            for path in passes_on.templates:
                template = first(obj, path)
                if isinstance(template, dict):
                    pass_on(template, kind.framework, passes_on, labels_of(obj), PASSED_ON)
            shift_numbers(kind, obj)
        return Verdict(changed=None if obj == asked.obj else obj)

    return judge


def set_validating(kind: JobKind, tenancy: Tenancy, rules: JobRules) -> Judge:
    """Return what refuses changes of a managed set, and warns of queues that can be hit."""
    passes_on = kind.passes_on
    assert passes_on is not None

    def judge(asked: Asked) -> Verdict:
        if not concerns(asked, tenancy, rules):
            return Verdict()
        warnings = exposure_warnings(kind.kind, asked, tenancy)
        return Verdict(tuple(errors(asked.obj, asked.old)), warnings)

    def templates(obj: Json) -> Iterator[Template]:
        for path in passes_on.templates:
            notes = asked_of_topology(first(obj, f"{path}.metadata.annotations"))
            yield Template(f"{path}.metadata.annotations", notes, None)

    def errors(obj: Json, old: Json | None) -> Iterator[str]:
        queue = labels_of(obj).get(QUEUE_NAME, "")
        if queue:
            yield from (wrong.invalid(_QUEUE_LABEL, queue, w) for w in wrong.subdomain(queue))
        former_templates = [] if old is None else [*templates(old)]
        for each in templates(obj):
            if each not in former_templates:
                yield from topology_errors(each, layered=rules.layered_slices)
        if old is None:
            return
        former = labels_of(old).get(QUEUE_NAME, "")
        ready = total(obj, passes_on.busy) > 0
        if former and queue != former and (ready or not queue):
            yield wrong.immutable(_QUEUE_LABEL, queue)
        if passes_on.groups:
            yield from _groups(passes_on, obj, old)
        elif passes_on.total:
            yield from _replicas(passes_on, obj, old)
            grows = not _count(old, passes_on.total) and _count(obj, passes_on.total)
            if grows and tenancy.is_leaving(workload_key(kind, old)):
                why = "workload from previous scale-down is still being deleted"
                yield wrong.forbidden(passes_on.total, why)

    return judge


def _groups(passes_on: PassesOn, obj: Json, old: Json) -> Iterator[str]:
    for path in passes_on.templates:
        if _shape(obj, path) != _shape(old, path):
            yield wrong.immutable(f"{path}.spec", _shape(obj, path))
    size, former = first(obj, passes_on.total), first(old, passes_on.total)
    if size != former:
        yield wrong.immutable(passes_on.total, size)


def _replicas(passes_on: PassesOn, obj: Json, old: Json) -> Iterator[str]:
    for path in passes_on.templates:
        if _shape(obj, path) != _shape(old, path):
            yield wrong.immutable(f"{path}.spec", _shape(obj, path))
    wanted, former = (_count(each, passes_on.total) for each in (obj, old))
    if wanted and former and wanted != former:
        yield wrong.immutable(passes_on.total, wanted)
    if not former and wanted and total(obj, "status.replicas") > 0:
        yield wrong.forbidden(passes_on.total, "scaling down is still in progress")


def _count(obj: Json, path: str) -> int:
    found = first(obj, path)
    return found if isinstance(found, int) else 1


def _shape(obj: Json, path: str) -> Any:
    template = first(obj, path)
    return shape(template.get("spec") or {}) if isinstance(template, dict) else None
