"""Why no idle work is preempted for something that waits elsewhere: for nodes, or for its quota.

Queried from the idle plane of a run, as it was at its end: by what the operator measured last, and
of no exporter. Work that did not opt in has no GpuWorkload, and is not evicted for it.

Source: specification of the idle plane, sections 11, 14 and 17.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kubeworld.objects.paths import first
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.kube.resource import GPU_WORKLOADS
from reprieve.whatif.happened import Run
from reprieve.wording.diagnosis import sentence
from reprieve.wording.shared_devices import SHARED_DEVICE

__all__ = ["IdleReason", "idle_reason"]

_NOT_ITSELF: Final = "It has not opted in itself, so that no idle work is preempted for it"


@dataclass(frozen=True, slots=True)
class IdleReason:
    """A reason of the idle plane, and its sentence; `itself`: what waits did not opt in."""

    reason: Reason
    text: str
    itself: bool = False


def idle_reason(run: Run, roots: Collection[str]) -> IdleReason | None:
    """Return why no idle work is evicted for work that requests GPUs, by its root's uids.

    None: the idle plane does not decide here, or a workload is preempted.
    """
    # What no plan without the idle plane needs.
    from reprieve.planes.idle.plane import IdlePlane

    plane = next((each for each in run.planes if isinstance(each, IdlePlane)), None)
    if plane is None:
        return None
    for found in run.overlay.all(GPU_WORKLOADS):
        if first(found, "spec.workloadRef.uid") in roots:
            metadata = found["metadata"]
            said = plane.waiting.diagnosis(metadata["namespace"], metadata["name"])
            if said is None:
                return None
            return IdleReason(said.reason, sentence(said) + _shared(run))
    return IdleReason(Reason.NOT_OPTED_IN, _NOT_ITSELF, itself=True)


def _shared(run: Run) -> str:
    """Return of how many tracked workloads the own use of GPUs is not known, as a clause."""
    count = sum(
        each["type"] == SHARED_DEVICE and each["status"] == "True"
        for found in run.overlay.all(GPU_WORKLOADS)
        for each in first(found, "status.conditions") or ()
    )
    if not count:
        return ""
    those = "1 tracked workload" if count == 1 else f"{count} tracked workloads"
    return f". Of {those} the own use of GPUs is not known (condition {SHARED_DEVICE})"
