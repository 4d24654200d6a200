"""What is asked of topologies and of MultiKueue: which of it makes a job wait, not served here.

Nothing here knows racks and blocks. Pods that *require* a level of a topology wait, since running
them elsewhere breaks what they were promised; where one is *preferred* or any will do they run
wherever there is quota, and whose job it is is told. Nobody here sends work to other clusters: an
AdmissionCheck of MultiKueue's controller is never active. Source: the annotations and the
`topologyRequest` of Kueue's topology-aware scheduling.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = [
    "MULTI_KUEUE",
    "PREFERRED",
    "REQUIRED",
    "required_level",
    "topology_request",
    "unsupported_text",
]

#: Controller name of AdmissionChecks that are MultiKueue's.
MULTI_KUEUE: Final = "kueue.x-k8s.io/multikueue"
_PREFIX: Final = "kueue.x-k8s.io/podset-"
#: Fields of a `topologyRequest` that pods cannot do without, with the annotations they come from.
REQUIRED: Final = {
    "required": f"{_PREFIX}required-topology",
    "podSetSliceRequiredTopology": f"{_PREFIX}slice-required-topology",
}
PREFERRED: Final = {"preferred": f"{_PREFIX}preferred-topology"}


def topology_request(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return what a pod template's annotations ask for, empty for nothing."""
    named = {**REQUIRED, **PREFERRED}
    return {field: annotations[name] for field, name in named.items() if annotations.get(name)}


def required_level(request: Mapping[str, object]) -> str:
    """Return the level that a `topologyRequest` requires, empty for none."""
    return next((str(request[field]) for field in REQUIRED if request.get(field)), "")


def unsupported_text(pod_set: str, level: str) -> str:
    """Return why a workload waits that requires a level of a topology."""
    return (
        f"pod set {pod_set} requires the topology level {level}, and topology-aware scheduling is "
        f"not supported: remove {REQUIRED['required']} (or prefer the level) to have it queued"
    )
