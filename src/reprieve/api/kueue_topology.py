"""What pods request of topologies in their annotations, and which AdmissionChecks are MultiKueue's.

The annotations of a pod template become the `topologyRequest` of its pod set. Reprieve sends no
work to other clusters: an AdmissionCheck of MultiKueue's controller is never active. Source:
specification of topology-aware scheduling, section 1.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubeworld.units.untrusted import integer_or_none, read_json

__all__ = [
    "CONSTRAINTS",
    "GROUP",
    "INDEX_OFFSET",
    "MULTI_KUEUE",
    "PREFERRED",
    "PROVISIONING",
    "REQUIRED",
    "SLICE_LEVEL",
    "SLICE_SIZE",
    "UNCONSTRAINED",
    "boolean_or_none",
    "topology_request",
]

#: Controller name of AdmissionChecks that are MultiKueue's.
MULTI_KUEUE: Final = "kueue.x-k8s.io/multikueue"
#: The same of those that wait for nodes which an autoscaler has yet to provide.
PROVISIONING: Final = "kueue.x-k8s.io/provisioning-request"
_PREFIX: Final = "kueue.x-k8s.io/podset-"
REQUIRED: Final = f"{_PREFIX}required-topology"
PREFERRED: Final = f"{_PREFIX}preferred-topology"
UNCONSTRAINED: Final = f"{_PREFIX}unconstrained-topology"
SLICE_LEVEL: Final = f"{_PREFIX}slice-required-topology"
SLICE_SIZE: Final = f"{_PREFIX}slice-size"
CONSTRAINTS: Final = f"{_PREFIX}slice-required-topology-constraints"
GROUP: Final = f"{_PREFIX}group-name"
#: Annotation of pods: with which number the first of them begins.
INDEX_OFFSET: Final = "kueue.x-k8s.io/pod-index-offset"
_MOST_LAYERS: Final = 3


def topology_request(annotations: Mapping[str, str]) -> dict[str, Any]:
    """Return what a pod template's annotations request, empty for nothing.

    What cannot be read is left out; webhooks refuse it.
    """
    found: dict[str, Any] = {}
    unconstrained = boolean_or_none(annotations.get(UNCONSTRAINED, ""))
    if annotations.get(REQUIRED):
        found["required"] = annotations[REQUIRED]
    elif annotations.get(PREFERRED):
        found["preferred"] = annotations[PREFERRED]
    elif unconstrained is not None:
        found["unconstrained"] = unconstrained
    size = integer_or_none(annotations.get(SLICE_SIZE, ""))
    layers = _layers(annotations[CONSTRAINTS]) if annotations.get(CONSTRAINTS) else []
    if layers:
        found["podsetSliceRequiredTopologyConstraints"] = layers
    elif annotations.get(SLICE_LEVEL) and size is not None and size > 0:
        found["podSetSliceRequiredTopology"] = annotations[SLICE_LEVEL]
        found["podSetSliceSize"] = size
    if annotations.get(GROUP) and ("required" in found or "preferred" in found):
        found["podSetGroupName"] = annotations[GROUP]
    return found


def boolean_or_none(text: str) -> bool | None:
    """Return a boolean as Go reads it, None for what is none."""
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    return False if text in ("0", "f", "F", "false", "FALSE", "False") else None


def _layers(text: str) -> list[dict[str, Any]]:
    """Return slice layers that are written as a JSON list; none where it is no such list."""
    try:
        given = read_json(text)
    except ValueError:
        return []
    if not isinstance(given, list) or not 1 <= len(given) <= _MOST_LAYERS:
        return []
    layers = []
    for each in given:
        level = each.get("topology") if isinstance(each, dict) else None
        size = each.get("size") if isinstance(each, dict) else None
        if not isinstance(level, str) or isinstance(size, bool) or not isinstance(size, int):
            return []
        layers.append({"topology": level, "size": size})
    return layers
