"""Beside a live Kaiwo operator that reclaims, this one only reads.

Kaiwo is assumed to reclaim when its manager Lease is being renewed and it writes GpuWorkload
statuses; either alone is harmless (an operator with the feature off, or what an earlier one left
behind). Where the Lease is in a namespace that may be a tenant's, Kaiwo has to have written last.
"""

from __future__ import annotations

from typing import Final

__all__ = ["HOMES", "MANAGER_LEASE"]

#: Held by the process that runs Kaiwo's own manager.
MANAGER_LEASE: Final = "83fc2279.silogen.ai"
#: Where Kaiwo's own manifests install it.
HOMES: Final = ("kaiwo-system",)
