"""Owners and children: references, names and the metadata of objects made from a template."""

from __future__ import annotations

import copy
import random
from typing import Any, Final

from kubelocal.machines.objects import Object

__all__ = [
    "child",
    "condition",
    "controller_of",
    "is_active",
    "is_ready",
    "owner_reference",
    "set_condition",
    "suffix",
]

# The letters and digits of generated names: no vowels and nothing that looks like another.
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


def suffix(generator: random.Random) -> str:
    """Return five characters as the API server appends them to generated names."""
    return "".join(generator.choices(_LETTERS, k=5))


def controller_of(obj: Object) -> dict[str, Any] | None:
    """Return the owner reference with `controller: true`, None when there is none."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return None


def owner_reference(owner: Object) -> dict[str, Any]:
    """Return the reference that a controller puts on its children."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def child(
    owner: Object,
    api_version: str,
    kind: str,
    name: str,
    template: Object,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Object:
    """Return a new object in the owner's namespace: the template's metadata and its other fields.

    Labels and annotations given here win over the template's.
    """
    body = copy.deepcopy({k: v for k, v in template.items() if k not in ("metadata", "status")})
    source = template.get("metadata") or {}
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": owner["metadata"].get("namespace", ""),
        "ownerReferences": [owner_reference(owner)],
    }
    for field, extra in (("labels", labels), ("annotations", annotations)):
        merged = {**(source.get(field) or {}), **(extra or {})}
        if merged:
            metadata[field] = merged
    if source.get("finalizers"):
        metadata["finalizers"] = list(source["finalizers"])
    return {**body, "apiVersion": api_version, "kind": kind, "metadata": metadata}


def is_active(pod: Object) -> bool:
    """Whether the pod still counts as a replica: neither finished nor being deleted."""
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed") and not pod[
        "metadata"
    ].get("deletionTimestamp")


def is_ready(pod: Object) -> bool:
    """Whether the pod's Ready condition is true."""
    found = condition(pod, "Ready")
    return found is not None and found["status"] == "True"


def condition(obj: Object, kind: str) -> dict[str, Any] | None:
    """Return the status condition of this type."""
    for found in (obj.get("status") or {}).get("conditions") or ():
        if found["type"] == kind:
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

    `times` names the fields that say when: the transition time first, others are kept up to date.
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
