"""What a set that makes gated pods writes into their metadata: who gates them, and their queue.

Source: specification of the quota plane, section 10.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubeworld.objects.paths import Json, first
from reprieve.api.kueue_topology import GROUP, INDEX_OFFSET
from reprieve.jobs.evaluation import holds
from reprieve.jobs.model import JobKind, PassesOn
from reprieve.jobs.pods import MANAGED, PARENT, SERVING, labels_of

__all__ = ["name_of_set", "pass_on", "shift_numbers"]

_HASH: Final = "pod-template-hash"


def pass_on(
    template: Json,
    parent: str,
    passes_on: PassesOn,
    labels: Mapping[str, str],
    queue_labels: tuple[str, ...],
) -> None:
    """Write into a template, or into a pod, what pods of a set with these labels state.

    `parent`: name of the set's framework. `queue_labels`: names of the labels that are passed on.
    """
    metadata = template.setdefault("metadata", {})
    notes = {PARENT: parent, **({SERVING: "true"} if passes_on.serving else {})}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **notes}
    more: dict[str, str] = {MANAGED: "true"} if passes_on.managed else {}
    if passes_on.queue:
        more |= {name: labels[name] for name in queue_labels if labels.get(name)}
    if more:
        metadata["labels"] = {**(metadata.get("labels") or {}), **more}


def shift_numbers(kind: JobKind, job: Json) -> None:
    """Write into templates that the numbers of their pods begin with 1, where they do.

    Not where both pod sets are placed together: then the smaller one determines where they begin.
    """
    for source in kind.pod_sets:
        template = first(job, source.template)
        if source.shifted is None or not isinstance(template, dict):
            continue
        metadata = template.get("metadata") or {}
        notes = metadata.get("annotations") or {}
        if GROUP not in notes and holds(source.shifted, job):
            template["metadata"] = {**metadata, "annotations": {**notes, INDEX_OFFSET: "1"}}


def name_of_set(group: str, kind: str, passes_on: PassesOn, pod: Json) -> str:
    """Return the name of the set of a kind that made a pod, by its controller; empty for none.

    The pods of a Deployment are controlled by a ReplicaSet, which is named after it and its hash.
    """
    owners = first(pod, "metadata.ownerReferences") or ()
    controller = next((owner for owner in owners if owner.get("controller")), None)
    if controller is None:
        return ""
    if passes_on.set_label:
        return labels_of(pod).get(passes_on.set_label, "")
    version, _, _ = str(controller.get("apiVersion", "")).rpartition("/")
    name = str(controller.get("name", ""))
    if (version, controller.get("kind")) == (group, kind):
        return name
    suffix = f"-{labels_of(pod).get(_HASH, '')}"
    by_replica_set = (version, controller.get("kind")) == ("apps", "ReplicaSet")
    if by_replica_set and kind == "Deployment" and len(suffix) > 1 and name.endswith(suffix):
        return name.removesuffix(suffix)
    return ""
