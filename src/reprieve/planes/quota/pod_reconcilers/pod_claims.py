"""What a pod that runs has of devices by its claims, against what its Workload was admitted for.

Quota counts the template that a pod set names, as it is when the Workload is admitted. A claim is
made of the template of that name as it is when a pod comes, and stays as it is then: a template
that was deleted and created anew, with more devices, is another one of the same name. So the claims
themselves are read. Source: resource.k8s.io/v1 (the spec of a claim never changes); the rule is
Reprieve's own, an open report of the reference (kueue 13842) describes the gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubeworld.objects.paths import Json, first
from reprieve.api.core import PodResourceClaim
from reprieve.api.devices import ResourceClaim, ResourceClaimTemplate, ResourceClaimTemplateSpec
from reprieve.api.kueue import PodSet, Workload
from reprieve.api.kueue_workloads import PodSpec, PodTemplate
from reprieve.intake.quota_devices import Uncountable, claimed_devices
from reprieve.intake.quota_workloads import PodSetRows
from reprieve.jobs.pods import labels_of
from reprieve.kube.errors import NotFound
from reprieve.kube.reader import Reader
from reprieve.kube.resource import DEVICE_CLAIMS
from reprieve.planes.quota.job_reconciler.injections import POD_SET
from reprieve.planes.quota.pod_reconcilers.pod_bounds import held_by_each, requested

__all__ = ["claims_beyond", "is_of_claims"]

_UNCOUNTABLE: Final = ("devices that cannot be counted",)


def is_of_claims(workload: Workload | None, classes: Mapping[str, str]) -> bool:
    """Return whether pods of a Workload have claims whose devices count in quota."""
    if workload is None or not classes:
        return False
    return any(each.template.spec.resource_claims for each in workload.spec.pod_sets)


async def claims_beyond(
    client: Reader, pod: Json, workload: Workload, rows: PodSetRows
) -> tuple[str, ...] | None:
    """Return the resources of which a pod's claims have more than was admitted for each pod.

    None where a claim is not made yet.

    Args:
        client: that reads claims.
        pod: as JSON.
        workload: of the pod, admitted.
        rows: of the pod's namespace, with the resource of each DeviceClass.

    Raises:
        ApiError: a claim cannot be read.
    """
    templates: dict[str, ResourceClaimTemplate] = {}
    entries: list[PodResourceClaim] = []
    namespace = pod["metadata"]["namespace"]
    for name, claim in _made(pod).items():
        if claim is None:
            return None
        try:
            found = await client.get(DEVICE_CLAIMS, namespace, claim, ResourceClaim)
        except NotFound:
            return None
        templates[name] = ResourceClaimTemplate(spec=ResourceClaimTemplateSpec(found.spec))
        entries.append(PodResourceClaim(name=name, resource_claim_template_name=name))
    label = labels_of(pod).get(POD_SET, "")
    template = PodTemplate(spec=PodSpec(resource_claims=entries))
    asked = PodSet(name=label, count=1, template=template)
    try:
        claimed = claimed_devices(asked, templates, rows.rules.device_classes)
    except Uncountable:
        return _UNCOUNTABLE
    spec = {key: part for key, part in pod["spec"].items() if key != "resourceClaims"}
    others = requested({"name": label, "count": 1, "template": {"spec": spec}}, rows) or {}
    bounds = held_by_each(workload, label)
    more = (each for each, n in claimed.items() if others.get(each, 0) + n > bounds.get(each, 0))
    return tuple(sorted(more))


def _made(pod: Json) -> Mapping[str, str | None]:
    """Return the claim of each entry that names a template, None where it is not made yet."""
    statuses = first(pod, "status.resourceClaimStatuses") or ()
    made = {each.get("name"): each.get("resourceClaimName") for each in statuses}
    return {
        str(each["name"]): made.get(each["name"])
        for each in first(pod, "spec.resourceClaims") or ()
        if each.get("resourceClaimTemplateName")
    }
