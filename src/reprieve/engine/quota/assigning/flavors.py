"""Which flavors the pods of a pod set could run on at all.

All taints that keep pods away must be tolerated by the pods or by the flavor itself. The node
selector and the required node affinity must match the flavor's labels, as far as they speak of
labels that this flavor has; a term of the affinity that states nothing about them makes the whole
affinity state nothing, since terms are alternatives.

Source: specification of the quota plane, section 5.1.
"""

from __future__ import annotations

from reprieve.engine.quota.model import PodSet, ResourceFlavor

__all__ = ["mismatch"]


def mismatch(flavor: ResourceFlavor, pod_set: PodSet) -> str:
    """Return why the flavor does not do, empty if it does."""
    tolerations = (*pod_set.tolerations, *flavor.tolerations)
    for taint in flavor.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(
            each.tolerates(taint) for each in tolerations
        ):
            return f"untolerated taint {taint} in flavor {flavor.name}"
    labels = flavor.labels
    selected = all(
        labels[key] == value for key, value in pod_set.node_selector.items() if key in labels
    )
    if not selected or not _affine(flavor, pod_set):
        return f"flavor {flavor.name} doesn't match node affinity"
    return ""


def _affine(flavor: ResourceFlavor, pod_set: PodSet) -> bool:
    terms = [
        [each for each in term if each.key in flavor.labels] for term in pod_set.affinity or ()
    ]
    if not all(terms):
        return True
    return not terms or any(all(each.matches(flavor.labels) for each in term) for term in terms)
