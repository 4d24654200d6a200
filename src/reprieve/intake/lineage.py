"""The lineage that a Workload or a pod belongs to, by owners, label and template.

The pod template is normalised by being read: what is kept of it is what decides where pods are
placed, and neither names nor labels that a job's controller adds. Source: specification of
disruptions, section 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, instant_or_none
from reprieve.api import kueue
from reprieve.engine.cluster.rows import PodClass, PodRow
from reprieve.engine.disruptions.lineage import (
    LINEAGE_LABEL,
    Identity,
    Lineage,
    Participant,
    owner_lineage,
    participant_of,
)

__all__ = [
    "controller_uid",
    "lineage_label",
    "pod_lineage",
    "pod_participant",
    "unlinked_participant",
    "workload_participant",
    "workload_template",
]

_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")


def workload_template(workload: kueue.Workload) -> str:
    """Return what its pods are like, as a digest; the same as long as its spec is."""
    said = _ENCODER.encode((workload.spec.pod_sets, workload.spec.priority_class_ref))
    return hashlib.blake2b(said, digest_size=8).hexdigest()


def workload_participant(
    workload: kueue.Workload, owner: str, label: str, template: str = ""
) -> Participant:
    """Return the lineage; `owner` is the uid of its root controller owner.

    `template`: where it is known already.
    """
    metadata = workload.metadata
    return participant_of(
        Identity(
            uid=metadata.uid,
            namespace=metadata.namespace,
            tenant=metadata.namespace,
            owner=owner,
            queue=workload.spec.queue_name,
            template=template or workload_template(workload),
            label=label or (metadata.labels or {}).get(LINEAGE_LABEL, ""),
            created=(instant_or_none(metadata.creation_timestamp) or Nanos(0)),
            stays=True,
        )
    )


def pod_participant(row: PodRow) -> Participant:
    """Return the lineage of a pod, whose controller is the highest owner that is known.

    Its class is its template.
    """
    template = _template_of(row.pod_class)
    return participant_of(
        Identity(
            uid=row.uid,
            namespace=row.namespace,
            tenant=row.namespace,
            owner=row.controller,
            queue=row.pod_class.scheduler_name,
            template=template,
            label=dict(row.labels).get(LINEAGE_LABEL, ""),
            created=Nanos(row.created * SECOND),
            group=row.group or row.gang,
        )
    )


def pod_lineage(row: PodRow) -> Lineage:
    """Return the lineage of `pod_participant(row)`; a controller makes reading more unneeded."""
    return _owned(row.controller).lineage if row.controller else pod_participant(row).lineage


def unlinked_participant(row: PodRow) -> Participant:
    """Return `pod_participant(row)` without what work has in common that is submitted again.

    Its template is not read where there is a controller: for a cluster's pods that costs as much as
    all else about them.
    """
    if not row.controller:
        return pod_participant(row)
    for key, _ in row.labels:  # no generator: this is called for every pod of a cluster
        if key == LINEAGE_LABEL:
            return pod_participant(row)
    return _owned(row.controller)


# Pods of one owner come one after the other.
@lru_cache(maxsize=4_096)
def _owned(controller: str) -> Participant:
    return Participant(owner_lineage(controller))


@lru_cache(maxsize=4_096)
def _template_of(pod_class: PodClass) -> str:
    return hashlib.blake2b(repr(pod_class).encode(), digest_size=8).hexdigest()


def controller_uid(job: Mapping[str, Any]) -> str:
    """Return the uid of the owner that controls an object, empty without one."""
    for owner in job["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("uid", ""))
    return ""


def lineage_label(job: Mapping[str, Any]) -> str:
    """Return the lineage that an object is stated to belong to, empty for none."""
    labels = job["metadata"].get("labels") or {}
    return str(labels.get(LINEAGE_LABEL, ""))
