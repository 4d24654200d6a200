"""Beside a live Kaiwo operator that reclaims, this one only reads.

Kaiwo is taken to be reclaiming when its manager Lease is being renewed and it writes GpuWorkload
statuses; either alone is harmless (an operator with the feature off, or what an earlier one left
behind).
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["FIELD_MANAGER_PREFIX", "MANAGER_LEASE", "foreign_status_writer"]

FIELD_MANAGER_PREFIX: Final = "reprieve"
#: Held by whoever runs Kaiwo's own manager.
MANAGER_LEASE: Final = "83fc2279.silogen.ai"
#: Command lines that people write statuses with; they decide nothing.
_BY_HAND: Final = ("kubectl",)


def foreign_status_writer(managed_fields: list[dict[str, Any]] | None) -> str:
    """Return who else wrote the status, neither we nor a person; empty when nobody did."""
    for entry in managed_fields or []:
        manager = str(entry.get("manager", ""))
        if entry.get("subresource") == "status" and not manager.startswith(
            (FIELD_MANAGER_PREFIX, *_BY_HAND)
        ):
            return manager
    return ""
