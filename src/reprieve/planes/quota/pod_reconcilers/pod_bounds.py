"""What one pod may request by the admission of its Workload.

A role is what a pod states of itself, and the template of a set can be changed while no webhook is
called: neither proves that a pod requests what its pod set was admitted for. Bounds, per pod:

1. a resource that the pod set holds quota of: its part of the usage
2. another resource: what the pod set's template requests, with LimitRanges and overhead
3. requests that cannot be counted, such as devices of a claim that is made later: none

Of pods that run, resized in place, the resources that the quota covers are compared alone.

Source: specification of the quota plane, section 10.4; the rule is Reprieve's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kubeworld.objects.paths import Json
from kubeworld.units.quantities import InvalidQuantity
from reprieve.api.kueue import PodSet, PodSetAssignment, Workload
from reprieve.intake.quota_devices import Uncountable
from reprieve.intake.quota_requests import UnreadableRequest, amounts_of
from reprieve.intake.quota_workloads import PodSetRows
from reprieve.jobs.model import JobKind
from reprieve.jobs.pod_sets import pod_sets_of
from reprieve.jobs.pods import controller_of, labels_of, role_of
from reprieve.planes.quota.job_reconciler.injections import POD_SET
from reprieve.planes.quota.state import QuotaState

__all__ = [
    "BEYOND",
    "beyond_admission",
    "held_by_each",
    "outgrown",
    "pod_beyond_admission",
    "requested",
]

#: Reason of the condition of a pod that requests more than is admitted.
BEYOND: Final = "ExceedsAdmission"


def pod_beyond_admission(
    kind: JobKind, pod: Json, workload: Workload, rows: PodSetRows, *, of_set: bool
) -> tuple[str, ...] | None:
    """Return the resources of which a pod requests more than its role was admitted for.

    As of `beyond_admission`. `of_set`: it is known that a set that is queued made the pod.
    """
    role = role_of(pod)
    admitted = next((each for each in workload.spec.pod_sets if each.name == role), None)
    if admitted is None:
        return None
    (asked,) = pod_sets_of(kind, pod)
    if of_set:
        # Other webhooks add containers to the pods of a set, which no quota counts.
        asked = {**asked, "template": _known_containers(asked["template"], admitted)}
    return beyond_admission({**asked, "name": role}, workload, rows)


def beyond_admission(asked: Json, workload: Workload, rows: PodSetRows) -> tuple[str, ...] | None:
    """Return the resources of which a pod set requests more for each pod than was admitted.

    None where it requests no more, nothing is admitted, or what was admitted cannot be counted;
    empty where what it requests cannot be counted, though what was admitted can.
    """
    admission, name = workload.status.admission, asked["name"]
    admitted = next((each for each in workload.spec.pod_sets if each.name == name), None)
    if admission is None or admitted is None:
        return None
    held = next((e for e in admission.pod_set_assignments if e.name == name), None)
    bounds, wanted = requested(admitted, rows), requested(asked, rows)
    if bounds is None:
        return None
    if wanted is None:
        return ()
    bounds = {**bounds, **_held(held, admitted)}
    more = [each for each, amount in wanted.items() if amount > bounds.get(each, 0)]
    return tuple(sorted(more)) or None


def outgrown(
    state: QuotaState, pod: Json, workload: Workload, before: Json | None = None
) -> tuple[str, ...]:
    """Return the resources of its quota of which a pod that runs requests more than was admitted.

    Its claims are left out: no pod gets others, and the template that they name may be another one
    by now. A pod that names no pod set of the Workload is compared with each of them. `before`: the
    pod as it is before a change; what it does not request more of since then is left out.
    """
    admission, rows = workload.status.admission, state.pod_rows(workload.metadata.namespace)
    if admission is None:
        return ()
    queue = state.configuration.cluster_queues.get(admission.cluster_queue)
    known = {each.name: each for each in workload.spec.pod_sets}
    name = labels_of(pod).get(POD_SET, "")
    found: tuple[str, ...] = ()
    for pod_set in (known[name],) if name in known else known.values():
        asked = _asked(pod, pod_set)
        had = {} if before is None else requested(_asked(before, pod_set), rows) or {}
        wanted = requested(asked, rows) or {}
        found = tuple(
            each
            for each in beyond_admission(asked, workload, rows) or ()
            if (queue is None or queue.group_of(each) is not None)
            and wanted.get(each, 0) > had.get(each, 0)
        )
        if not found:
            break
    return found


def _asked(pod: Json, pod_set: PodSet) -> Json:
    """Return what a pod requests, as that pod set; what was added to a controlled pod apart."""
    spec = {key: part for key, part in pod["spec"].items() if key != "resourceClaims"}
    template = {"spec": spec}
    if controller_of(pod):
        template = _known_containers(template, pod_set)
    return {"name": pod_set.name, "template": template}


def requested(pod_set: PodSet | Json, rows: PodSetRows) -> Mapping[str, int] | None:
    """Return what each pod requests, None where that cannot be counted."""
    try:
        return rows.of(msgspec.convert(pod_set, PodSet))[0].requests
    except (UnreadableRequest, Uncountable, InvalidQuantity, msgspec.ValidationError):
        return None


def held_by_each(workload: Workload, pod_set: str) -> Mapping[str, int]:
    """Return what each pod of a pod set holds of the quota; the most of any where none is named."""
    admission = workload.status.admission
    sets = {each.name: each for each in workload.spec.pod_sets}
    found: dict[str, int] = {}
    for each in () if admission is None else admission.pod_set_assignments:
        if each.name in sets and (each.name == pod_set or pod_set not in sets):
            for name, amount in _held(each, sets[each.name]).items():
                found[name] = max(found.get(name, 0), amount)
    return found


def _held(assigned: PodSetAssignment | None, admitted: PodSet) -> Mapping[str, int]:
    """Return what each pod holds of the quota."""
    if assigned is None:
        return {}
    count = admitted.count if assigned.count is None else assigned.count
    if count <= 0:
        return {}
    return {name: usage // count for name, usage in amounts_of(assigned.resource_usage).items()}


def _known_containers(template: Json, admitted: PodSet) -> Json:
    known = admitted.template.spec
    spec = dict(template["spec"])
    for field, those in (
        ("containers", known.containers),
        ("initContainers", known.init_containers),
    ):
        names = {each.name for each in those or ()}
        if spec.get(field):
            spec[field] = [each for each in spec[field] if each.get("name") in names]
    return {**template, "spec": spec}
