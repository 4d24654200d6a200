"""Names for strings that have a meaning."""

from __future__ import annotations

from typing import NewType

__all__ = ["GpuWorkloadKey", "NodeName", "PlanId", "Uid"]

Uid = NewType("Uid", str)
PlanId = NewType("PlanId", str)
NodeName = NewType("NodeName", str)
GpuWorkloadKey = NewType("GpuWorkloadKey", str)  # "namespace/name"
