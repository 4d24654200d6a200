"""The garbage collector: dependents of deleted owners, foreground and orphan deletion.

Rules (Kubernetes documentation, "Garbage Collection"):

1. An owner is absent when no object of its kind, name and namespace has its uid. Owners of a kind
   that is not served count as present.
2. An object whose owners are all absent is deleted in the background.
3. An object with a present owner only loses the references to absent owners.
4. An owner with the finalizer `foregroundDeletion` is deleted after its dependents that block it.
5. An owner with the finalizer `orphan` is deleted after its dependents have lost their reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kubeworld.controllers.acts import Delete, Object, Update

__all__ = ["is_waiting", "step"]

_FOREGROUND: Final = "foregroundDeletion"
_ORPHAN: Final = "orphan"


def step(
    obj: Object, owners: Mapping[str, Object | None], dependents: Sequence[Object]
) -> Iterator[Delete | Update]:
    """Yield what becomes of an object.

    Args:
        obj: any object.
        owners: those that it names, by uid; None for one that is absent. They count for what is
            not being deleted.
        dependents: what names it among its owners.
    """
    metadata = obj["metadata"]
    uid, finalizers = metadata["uid"], metadata.get("finalizers") or ()
    references = metadata.get("ownerReferences") or ()
    if metadata.get("deletionTimestamp"):
        if _ORPHAN in finalizers:
            for each in dependents:
                named = each["metadata"]["ownerReferences"]
                yield _owned_by(each, [r for r in named if r["uid"] != uid])
            yield _without(obj, _ORPHAN)
        elif _FOREGROUND in finalizers and not any(_blocks(each, uid) for each in dependents):
            yield _without(obj, _FOREGROUND)
    elif references:
        there = [r for r in references if owners[r["uid"]] is not None]
        waiting = [r for r in there if _is_awaited(r, owners)]
        kept = [r for r in there if r not in waiting]
        if kept and len(kept) < len(references):
            yield _owned_by(obj, kept)
        elif not kept:
            yield Delete(obj, "Foreground" if waiting and dependents else "Background")


def is_waiting(obj: Mapping[str, Any]) -> bool:
    """Return whether the object is being deleted in the foreground."""
    metadata = obj["metadata"]
    return bool(metadata.get("deletionTimestamp")) and _FOREGROUND in (
        metadata.get("finalizers") or ()
    )


def _is_awaited(reference: Object, owners: Mapping[str, Object | None]) -> bool:
    owner = owners[reference["uid"]]
    return bool(owner and is_waiting(owner) and reference.get("blockOwnerDeletion"))


def _blocks(dependent: Object, uid: str) -> bool:
    references = dependent["metadata"]["ownerReferences"]
    return any(r["uid"] == uid and r.get("blockOwnerDeletion") for r in references)


def _owned_by(obj: Object, references: list[Object]) -> Update:
    metadata = {**obj["metadata"], "ownerReferences": references}
    if not references:
        del metadata["ownerReferences"]
    return Update({**obj, "metadata": metadata})


def _without(obj: Object, finalizer: str) -> Update:
    kept = [each for each in obj["metadata"]["finalizers"] if each != finalizer]
    return Update({**obj, "metadata": {**obj["metadata"], "finalizers": kept}})
