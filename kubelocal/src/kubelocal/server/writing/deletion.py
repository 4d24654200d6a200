"""What deleting an object of a kind means: removed at once, marked, or marked with less grace.

Source: `kubeworld.writes.changes`; Namespaces have finalizers in their spec, too.
"""

from __future__ import annotations

from typing import Any

from kubelocal.server.types.kinds import Kind
from kubelocal.server.writing.options import DeleteOptions
from kubeworld.units.instants import Nanos
from kubeworld.writes.changes import deleted, grace_of, is_gone

__all__ = ["is_finished", "marked"]


def marked(kind: Kind, obj: dict[str, Any], options: DeleteOptions, now: Nanos) -> dict[str, Any]:
    """Return `obj` as it is once it was deleted, itself where nothing changes.

    What `is_finished` holds of is to be removed.
    """
    seconds = grace_of(obj, options.grace_seconds) if kind.resource == "pods" else 0
    propagation = None if options.propagation is None else options.propagation.value
    new = deleted(obj, now, seconds=seconds, propagation=propagation)
    if kind.resource == "namespaces" and "deletionTimestamp" not in obj["metadata"]:
        new["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    return new


def is_finished(kind: Kind, obj: dict[str, Any]) -> bool:
    """Return whether nothing keeps an object that is being deleted."""
    of_namespace = kind.resource == "namespaces" and (obj.get("spec") or {}).get("finalizers")
    return is_gone(obj) and not of_namespace
