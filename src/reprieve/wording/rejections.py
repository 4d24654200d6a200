"""kube-scheduler's text for each reason why a node refuses a pod (specification, 16 and 21)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reprieve.engine.placement.reasons import Reason, Rejection

__all__ = ["reason_text"]

#: `{0}` is the reason's subject.
_TEXTS: Final[Mapping[Rejection, str]] = {
    Rejection.NODE_NAME: "node(s) didn't match the requested node name",
    Rejection.UNSCHEDULABLE: "node(s) were unschedulable",
    Rejection.TAINT: "node(s) had untolerated taint(s)",
    Rejection.NODE_AFFINITY: "node(s) didn't match Pod's node affinity/selector",
    Rejection.ADDED_AFFINITY: "node(s) didn't match scheduler-enforced node affinity",
    Rejection.LEFT_OUT: "node(s) didn't satisfy plugin(s) [{0}]",
    Rejection.AFFINITY_CONFLICT: "pod affinity terms conflict",
    Rejection.PORTS: "node(s) didn't have free ports for the requested pod ports",
    Rejection.TOO_MANY_PODS: "Too many pods",
    Rejection.INSUFFICIENT: "Insufficient {0}",
    Rejection.DISK: "node(s) had no available disk",
    Rejection.READ_WRITE_ONCE_POD: (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod"
    ),
    Rejection.VOLUME_LIMIT: "node(s) exceed max volume count",
    Rejection.DRIVER_MISSING: "{0} CSI driver is not installed on the node",
    Rejection.CLAIM_MISSING: 'persistentvolumeclaim "{0}" not found',
    Rejection.CLAIM_NOT_MADE: (
        'waiting for ephemeral volume controller to create the persistentvolumeclaim "{0}"'
    ),
    Rejection.CLAIM_DELETED: 'persistentvolumeclaim "{0}" is being deleted',
    Rejection.CLAIM_UNBOUND: "pod has unbound immediate PersistentVolumeClaims",
    Rejection.VOLUME_AFFINITY: "node(s) didn't match PersistentVolume's node affinity",
    Rejection.NO_VOLUME: "node(s) didn't find available persistent volumes to bind",
    Rejection.NO_STORAGE: "node(s) did not have enough free storage",
    Rejection.VOLUME_MISSING: (
        "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
    ),
    Rejection.VOLUME_ZONE: "node(s) had no available volume zone",
    Rejection.SPREAD_LABEL: (
        "node(s) didn't match pod topology spread constraints (missing required label)"
    ),
    Rejection.SPREAD_SKEW: "node(s) didn't match pod topology spread constraints",
    Rejection.POD_AFFINITY: "node(s) didn't match pod affinity rules",
    Rejection.POD_ANTI_AFFINITY: "node(s) didn't match pod anti-affinity rules",
    Rejection.EXISTING_ANTI_AFFINITY: ("node(s) didn't satisfy existing pods anti-affinity rules"),
    Rejection.DEVICES: "{0}",
    Rejection.DEVICES_NOT_HERE: "resourceclaim not available on the node",
    Rejection.DEVICES_IN_USE: "resourceclaim in use",
    Rejection.DEVICES_TAKEN: "{0}",
    Rejection.FEATURES: "node(s) didn't match Pod's required features",
    Rejection.UNSUPPORTED: "{0} is not supported by this scheduler",
    # These stand in arrays only; a filter that gives no detail is named by them all the same.
    Rejection.RESOURCES: "Insufficient resources",
    Rejection.RESOURCES_EXCEED_NODE: "Insufficient resources",
    Rejection.PLACEMENT: "node(s) are outside the examined placement",
}


def reason_text(reason: Reason) -> str:
    """Return the text of one reason, as it stands in a fit text after its count."""
    if reason.rejection is Rejection.CLAIM_LOST:
        claim, _, volume = reason.subject.partition("/")
        return f'persistentvolumeclaim "{claim}" bound to non-existent persistentvolume "{volume}"'
    return _TEXTS[reason.rejection].format(reason.subject)
