"""The garbage collector: dependents of owners that are gone, foreground and orphan deletion.

Rules (Kubernetes documentation, "Garbage Collection"):

1. An owner is absent when no object of its kind, name and namespace has its uid; absence is checked
   against the store, never concluded from the change feed alone.
2. An object whose owners are all absent is deleted in the background.
3. An object with a present owner only loses the references to absent owners.
4. An owner with the finalizer `foregroundDeletion` goes after its dependents that block it.
5. An owner with the finalizer `orphan` goes after its dependents have lost their reference.

Owners of a kind that is not served count as present.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Final

from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import Change, ChangeType, Object

__all__ = ["GarbageCollector"]

_FOREGROUND: Final = "foregroundDeletion"
_ORPHAN: Final = "orphan"


class GarbageCollector:
    """Deletes what nobody owns any more."""

    name = "garbage"

    def __init__(self, informer: Informer) -> None:
        self._informer = informer

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        obj = change.object
        uid = obj["metadata"]["uid"]
        if change.type is ChangeType.DELETED:
            yield from (key for key, _ in self._informer.dependents(uid))
        elif obj["metadata"].get("ownerReferences") or _finalizers(obj):
            yield key_of(change.resource, obj)
            if _waits(obj):
                yield from (key for key, _ in self._informer.dependents(uid))
        # An owner in foreground deletion waits for this one to go or to let go of it.
        for state in (before, obj):
            for reference in ((state or {}).get("metadata") or {}).get("ownerReferences") or ():
                owner = self._informer.by_uid(reference["uid"])
                if owner is not None and _waits(owner[1]):
                    yield owner[0]

    async def reconcile(self, key: Key) -> None:
        obj = self._informer.at(key)
        if obj is None:
            return
        if obj["metadata"].get("deletionTimestamp"):
            if _ORPHAN in _finalizers(obj):
                await self._orphan(key, obj)
            elif _FOREGROUND in _finalizers(obj):
                await self._finish_foreground(key, obj)
        elif obj["metadata"].get("ownerReferences"):
            await self._judge(key, obj)

    async def _judge(self, key: Key, obj: Object) -> None:
        present, waiting, absent = [], [], []
        for reference in obj["metadata"]["ownerReferences"]:
            found = await self._owner(reference, key.namespace)
            if found is None:
                absent.append(reference)
            elif _waits(found) and reference.get("blockOwnerDeletion"):
                waiting.append(reference)
            else:
                present.append(reference)
        if present:
            if absent or waiting:
                await self._keep_references(key, obj, present)
        elif waiting and any(True for _ in self._informer.dependents(obj["metadata"]["uid"])):
            await self._informer.delete(key.resource, obj, propagation="Foreground")
        else:
            await self._informer.delete(key.resource, obj, propagation="Background")

    async def _owner(self, reference: dict[str, Any], namespace: str) -> Object | None:
        """Return the owner, a placeholder when its kind is not served, None when it is absent."""
        known = self._informer.by_uid(reference["uid"])
        if known is not None:
            return known[1]
        resource = self._informer.objects.resource_of(reference["apiVersion"], reference["kind"])
        if resource is None:
            return {"metadata": {}}
        found = await self._informer.objects.get(resource, namespace, reference["name"])
        return found if found and found["metadata"]["uid"] == reference["uid"] else None

    async def _finish_foreground(self, key: Key, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        blocking = [
            dependent
            for _, dependent in self._informer.dependents(uid)
            if any(
                r["uid"] == uid and r.get("blockOwnerDeletion")
                for r in dependent["metadata"]["ownerReferences"]
            )
        ]
        if not blocking:
            await self._drop_finalizer(key, obj, _FOREGROUND)

    async def _orphan(self, key: Key, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        for dependent_key, dependent in self._informer.dependents(uid):
            references = dependent["metadata"]["ownerReferences"]
            rest = [r for r in references if r["uid"] != uid]
            await self._keep_references(dependent_key, dependent, rest)
        await self._drop_finalizer(key, obj, _ORPHAN)

    async def _keep_references(self, key: Key, obj: Object, kept: list[dict[str, Any]]) -> None:
        updated = copy.deepcopy(obj)
        if kept:
            updated["metadata"]["ownerReferences"] = kept
        else:
            del updated["metadata"]["ownerReferences"]
        await self._informer.update(key.resource, updated)

    async def _drop_finalizer(self, key: Key, obj: Object, finalizer: str) -> None:
        updated = copy.deepcopy(obj)
        updated["metadata"]["finalizers"] = [f for f in _finalizers(obj) if f != finalizer]
        await self._informer.objects.update(key.resource, updated)
        await self._informer.refresh(key)


def _finalizers(obj: Object) -> list[str]:
    return list(obj["metadata"].get("finalizers") or ())


def _waits(obj: Object) -> bool:
    """Whether the object is being deleted in the foreground."""
    return bool(obj["metadata"].get("deletionTimestamp")) and _FOREGROUND in _finalizers(obj)
