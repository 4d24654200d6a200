"""What a pod's status states about its life: over, active, ready.

A pod is over in the phases Succeeded and Failed; it never leaves them. It is active while it is
neither over nor being deleted. Source: `PodStatus` of the API; the controllers' `IsPodActive`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubeworld.objects.conditions import condition

__all__ = ["OVER", "is_active", "is_over", "is_ready", "phase_of"]

#: The phases that a pod never leaves.
OVER: Final = frozenset({"Succeeded", "Failed"})


def phase_of(pod: Mapping[str, Any]) -> str:
    """Return the pod's phase, empty without one."""
    return str((pod.get("status") or {}).get("phase") or "")


def is_over(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod has ended."""
    return (pod.get("status") or {}).get("phase") in OVER


def is_active(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod counts as a replica: neither over nor being deleted."""
    return not is_over(pod) and not pod["metadata"].get("deletionTimestamp")


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod's Ready condition is true."""
    found = condition(pod, "Ready")
    return found is not None and found.get("status") == "True"
