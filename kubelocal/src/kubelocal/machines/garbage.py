"""Drives the garbage collector.

That an owner is absent is checked against the store, never concluded from the change feed alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import Change, ChangeType, Object
from kubeworld.controllers.acts import Update
from kubeworld.controllers.garbage import is_waiting, step

__all__ = ["GarbageCollector"]


class GarbageCollector:
    """Deletes what has no owner any more."""

    name = "garbage"

    def __init__(self, informer: Informer) -> None:
        self._informer = informer

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        obj = change.object
        uid = obj["metadata"]["uid"]
        if change.type is ChangeType.DELETED:
            yield from (key for key, _ in self._informer.dependents(uid))
        elif obj["metadata"].get("ownerReferences") or obj["metadata"].get("finalizers"):
            yield key_of(change.resource, obj)
            if is_waiting(obj):
                yield from (key for key, _ in self._informer.dependents(uid))
        # An owner in foreground deletion waits until this one is deleted or no longer references
        # it.
        for state in (before, obj):
            for reference in ((state or {}).get("metadata") or {}).get("ownerReferences") or ():
                owner = self._informer.by_uid(reference["uid"])
                if owner is not None and is_waiting(owner[1]):
                    yield owner[0]

    async def reconcile(self, key: Key) -> None:
        obj = self._informer.at(key)
        if obj is None:
            return
        named = obj["metadata"].get("ownerReferences") or ()
        owners = {each["uid"]: await self._owner(each, key.namespace) for each in named}
        dependents = [found for _, found in self._informer.dependents(obj["metadata"]["uid"])]
        for act in step(obj, owners, dependents):
            found = self._informer.by_uid(act.object["metadata"]["uid"])
            if found is None:
                continue
            resource = found[0].resource
            if isinstance(act, Update):
                await self._informer.update(resource, act.object)
            else:
                await self._informer.delete(resource, obj, propagation=act.propagation)

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
