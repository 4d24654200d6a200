"""What deleting an object means: removed at once, marked, or marked with less grace than before.

Rules of the generic registry (`BeforeDelete`, finalizers by propagation policy) and of the pod
strategy (grace period; a pod that is on no node or has ended goes at once).
"""

from __future__ import annotations

from typing import Any, Final

from kubelocal.server.types.kinds import Kind
from kubelocal.server.writing.options import DeleteOptions, Propagation
from kubeworld.objects.pods import is_over
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant

__all__ = ["is_finished", "mark_deleted"]

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
DEFAULT_GRACE_SECONDS: Final = 30


def mark_deleted(kind: Kind, obj: dict[str, Any], options: DeleteOptions, now: Nanos) -> bool:
    """Change `obj` as a delete does; return whether it differs from before.

    An object for which `is_finished` holds afterwards is to be removed.
    """
    metadata = obj["metadata"]
    changed = _set_propagation(metadata, options.propagation)
    grace = _grace(kind, obj, options)
    if "deletionTimestamp" in metadata:
        before = metadata.get("deletionGracePeriodSeconds", 0)
        if grace < before:
            # Less grace than before; never more.
            metadata["deletionGracePeriodSeconds"] = grace
            metadata["deletionTimestamp"] = format_instant(Nanos(now + grace * SECOND))
            changed = True
        return changed
    metadata["deletionTimestamp"] = format_instant(Nanos(now + grace * SECOND))
    metadata["deletionGracePeriodSeconds"] = grace
    if metadata.get("generation"):
        metadata["generation"] += 1
    if kind.resource == "namespaces":
        obj.setdefault("status", {})["phase"] = "Terminating"
    return True


def is_finished(kind: Kind, obj: dict[str, Any]) -> bool:
    """Return whether nothing keeps an object that is being deleted."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if kind.resource == "namespaces" and (obj.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def _set_propagation(metadata: dict[str, Any], propagation: Propagation | None) -> bool:
    if propagation is None:
        return False
    before = list(metadata.get("finalizers") or ())
    after = [name for name in before if name not in (FOREGROUND, ORPHAN)]
    if propagation is Propagation.FOREGROUND:
        after.append(FOREGROUND)
    elif propagation is Propagation.ORPHAN:
        after.append(ORPHAN)
    if after:
        metadata["finalizers"] = after
    else:
        metadata.pop("finalizers", None)
    return after != before


def _grace(kind: Kind, obj: dict[str, Any], options: DeleteOptions) -> int:
    """Return the grace period in seconds."""
    if kind.resource != "pods":
        return 0
    spec = obj.get("spec") or {}
    if not spec.get("nodeName") or is_over(obj):
        return 0
    grace = options.grace_seconds
    if grace is None:
        grace = spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    return 1 if grace < 0 else int(grace)
