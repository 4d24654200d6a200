"""Webhooks of pods: gates at the creation of those that are queued.

Below a kind whose template states which component gates its pods, pods get gates and the role
alone; so do the pods of a queued set whose template does not state it, since no webhook was called
when that was made. Otherwise, in a managed namespace and without a managed ancestor: default queue
and class, and then, with a queue or where jobs without one are managed, label, finalizer, gates and
role. The controller of the pod may stand below something that is queued and that is not followed
here, because its kind is not listed: such a pod is only gated for a queue of its own.

A pod that runs may be resized in place as far as its Workload was admitted, and always downwards.

Source: specification of the quota plane, sections 10.4, 10.7 and 12.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

from kubeworld.objects.paths import Json, first
from reprieve.api.kueue_validation_jobs import (
    QUEUE_NAME,
    Kind,
    Suspension,
    job_errors,
    job_update_errors,
    pod_errors,
    pod_update_errors,
)
from reprieve.api.kueue_validation_topology import Template, asked_of_topology, topology_errors
from reprieve.jobs.model import JobKind
from reprieve.jobs.passing_on import pass_on
from reprieve.jobs.pods import (
    GROUP_TOTAL,
    MANAGED,
    PARENT,
    annotations_of,
    gated,
    group_of,
    total_of,
)
from reprieve.jobs.reading import is_suspended
from reprieve.jobs.table import BUILT_IN
from reprieve.planes.quota.webhooks.defaults import (
    DEFAULT,
    PASSED_ON,
    JobRules,
    Tenancy,
    exposure_warnings,
    fill_in,
    is_managed,
    labels_of,
)
from reprieve.planes.quota.webhooks.reviews import Asked, Judge, Verdict
from reprieve.wording.kueue_jobs import NOT_LISTED, resizing_refused

__all__ = ["gating", "pod_validating", "resizing"]

_OWNED = f"pod owner is managed by kueue, label '{MANAGED}=true' might lead to unexpected behaviour"


def gating(kind: JobKind, kinds: Sequence[JobKind], tenancy: Tenancy, rules: JobRules) -> Judge:
    """Return what gates pods at their creation; `kinds` are all that are queued."""
    listed = {(each.group, each.kind) for each in kinds}
    unlisted = {(each.group, each.kind) for each in BUILT_IN if each.suspend} - listed
    hidden = unlisted if any(each.suspend for each in kinds) else set()

    def judge(asked: Asked) -> Verdict:
        pod, namespace = asked.obj, asked.namespace
        if PARENT in annotations_of(pod):
            return Verdict(changed=gated(pod, kind.gate, managed=False, finalizer=False))
        above = tenancy.set_above(namespace, pod)
        if above is not None:
            return Verdict(changed=_below(above, pod, kind.gate))
        if not tenancy.manages(namespace) or tenancy.has_ancestor(namespace, pod):
            return Verdict()
        changed = copy.deepcopy(pod)
        owned = tenancy.has_managed_owner(namespace, pod) or _controller(pod) in hidden
        if owned and not labels_of(pod).get(QUEUE_NAME):
            return Verdict()
        fill_in(changed, namespace, tenancy, rules)
        if is_managed(changed, namespace, tenancy, rules):
            changed = gated(changed, kind.gate)
        return Verdict(changed=None if changed == pod else changed)

    return judge


def pod_validating(kind: JobKind, tenancy: Tenancy, rules: JobRules) -> Judge:
    """Return what refuses pods, and warns of what will become of them."""
    text = Kind(kind.text)

    def judge(asked: Asked) -> Verdict:
        if not any(_concerns(each) for each in (asked.obj, asked.old or {})):
            return Verdict()
        return Verdict(tuple(errors(asked)), tuple(warnings(asked)))

    def errors(asked: Asked) -> Iterator[str]:
        pod, old = asked.obj, asked.old
        if old is None:
            yield from job_errors(pod, text)
            yield from pod_errors(pod)
            count = (total_of(pod) or None) if group_of(pod) else 1
            notes = asked_of_topology(annotations_of(pod))
            template = Template("metadata.annotations", notes, count, alone=False)
            yield from topology_errors(template, layered=rules.layered_slices)
            return
        suspension = Suspension(is_suspended(kind, old), is_suspended(kind, pod))
        default_queue = tenancy.has_local_queue(asked.namespace, DEFAULT)
        yield from job_update_errors(pod, old, text, suspension, default_queue=default_queue)
        yield from pod_update_errors(pod, old)

    def warnings(asked: Asked) -> Iterator[str]:
        below = PARENT in annotations_of(asked.obj)
        managed = labels_of(asked.obj).get(MANAGED) == "true"
        if managed and not below and tenancy.has_managed_owner(asked.namespace, asked.obj):
            yield _OWNED
        if managed and not below and kind.children_only and asked.old is None:
            yield NOT_LISTED
        yield from exposure_warnings(kind.kind, asked, tenancy)

    return judge


def resizing(tenancy: Tenancy) -> Judge:
    """Return what refuses that a pod requests more than its Workload was admitted for."""

    def judge(asked: Asked) -> Verdict:
        if asked.old is None:
            return Verdict()
        # Its labels and owners are those that it had before.
        resized = {**asked.old, "spec": asked.obj["spec"]}
        name, more = tenancy.outgrown(asked.namespace, resized, asked.old)
        return Verdict((resizing_refused(name, more),) if more else ())

    return judge


def _below(above: tuple[JobKind, Json], pod: Json, gate: str) -> Json:
    """Return a pod of a set whose template does not state who gates its pods, gated as well."""
    kind, obj = above
    assert kind.passes_on is not None
    changed = gated(pod, gate, managed=False, finalizer=False)
    pass_on(changed, kind.framework, kind.passes_on, labels_of(obj), PASSED_ON)
    return changed


def _concerns(pod: Json) -> bool:
    """Return whether the pod states anything about queueing."""
    labels = labels_of(pod)
    return (
        QUEUE_NAME in labels
        or MANAGED in labels
        or bool(group_of(pod))
        or GROUP_TOTAL in annotations_of(pod)
    )


def _controller(pod: Json) -> tuple[str, str]:
    for owner in first(pod, "metadata.ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("apiVersion", "")).rpartition("/")[0], str(owner.get("kind", ""))
    return "", ""
