"""Conditions of a status: read one, set one.

Source: the API conventions of Kubernetes: one entry for each type, whose transition time moves
only when its status does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["condition", "set_condition"]


def condition(obj: Mapping[str, Any], kind: str) -> dict[str, Any] | None:
    """Return the status condition of this type."""
    for found in (obj.get("status") or {}).get("conditions") or ():
        if found.get("type") == kind:
            return dict(found)
    return None


def set_condition(
    status: dict[str, Any],
    kind: str,
    value: bool | None,
    now: str,
    *,
    reason: str = "",
    message: str = "",
    times: tuple[str, ...] = ("lastTransitionTime",),
) -> None:
    """Set a condition in place; the transition time moves only when the value does. None: Unknown.

    `times` names the fields that state when: the transition time first, others are kept up to date.
    """
    text = "Unknown" if value is None else str(value)
    conditions = status.setdefault("conditions", [])
    present = next((c for c in conditions if c["type"] == kind), None)
    wanted = {"type": kind, "status": text}
    if reason:
        wanted["reason"] = reason
    if message:
        wanted["message"] = message
    if present is not None:
        same = {k: v for k, v in present.items() if k in ("type", "status", "reason", "message")}
        if same == wanted:
            return
        if present["status"] == text:
            wanted[times[0]] = present.get(times[0], now)
    wanted.setdefault(times[0], now)
    for field in times[1:]:
        wanted[field] = now
    if present is None:
        conditions.append(wanted)
    else:
        present.clear()
        present.update(wanted)
