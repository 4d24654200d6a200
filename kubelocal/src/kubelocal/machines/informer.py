"""What the machines know of the cluster, and their writes.

One `Informer` feeds all machines: it holds the last seen state of every object with the indexes
they need, and passes each change on to its listeners. The machines' own writes pass through it, and
their results are seen at once, so that no machine acts twice because the change feed lags.

Versions: a state older than the one held is dropped (resourceVersions are compared as numbers), and
so is any state of a uid that has been seen deleted.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from kubelocal.machines.objects import Change, Changed, ChangeType, Gone, Object, Objects
from kubeworld.writes.changes import is_gone

__all__ = ["Informer", "Key", "Listener", "key_of"]

_REMEMBERED_DELETIONS: Final = 20_000


class Key(NamedTuple):
    """Where an object is; `namespace` is empty for cluster-scoped ones."""

    resource: str
    namespace: str
    name: str


Listener = Callable[[Change, Object | None], None]
"""Called with each change and the state before it (None for a new object)."""


def key_of(resource: str, obj: Object) -> Key:
    """Return the key of an object of this resource."""
    metadata = obj["metadata"]
    return Key(resource, metadata.get("namespace", ""), metadata["name"])


class Informer:
    """The last seen state of every object, and writes whose results are seen at once."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.listeners: list[Listener] = []
        self._states: defaultdict[str, dict[Key, Object]] = defaultdict(dict)
        # uid -> key, for all and only the objects in `_states`.
        self._keys: dict[str, Key] = {}
        # owner's uid -> keys of the objects that name it in ownerReferences; values never empty.
        self._dependents: dict[str, dict[Key, None]] = {}
        # node -> keys of the pods bound to it; values never empty.
        self._on_node: dict[str, dict[Key, None]] = {}
        # uids seen deleted, oldest first; bounded, since a late answer is only ever a moment late.
        self._deleted: OrderedDict[str, None] = OrderedDict()

    def get(self, resource: str, namespace: str, name: str) -> Object | None:
        """Return the last seen state. Shared with everybody: copy before changing it."""
        return self._states[resource].get(Key(resource, namespace, name))

    def at(self, key: Key) -> Object | None:
        return self._states[key.resource].get(key)

    def all(self, resource: str) -> Iterable[Object]:
        """Return the objects of this resource, in the order in which they were first seen."""
        return self._states[resource].values()

    def by_uid(self, uid: str) -> tuple[Key, Object] | None:
        key = self._keys.get(uid)
        return None if key is None else (key, self._states[key.resource][key])

    def dependents(self, uid: str) -> list[tuple[Key, Object]]:
        """Return the objects that name this uid among their owners."""
        return [(k, self._states[k.resource][k]) for k in self._dependents.get(uid, ())]

    def controlled(self, uid: str, resource: str) -> Iterator[Object]:
        """Give the objects of this resource whose controller has this uid."""
        for key in self._dependents.get(uid, ()):
            if key.resource == resource:
                obj = self._states[resource][key]
                if any(
                    r["uid"] == uid and r.get("controller")
                    for r in obj["metadata"]["ownerReferences"]
                ):
                    yield obj

    def on_node(self, name: str) -> list[Object]:
        """Return the pods that are bound to the node of this name."""
        return [self._states["pods"][key] for key in self._on_node.get(name, ())]

    def apply(self, change: Change) -> None:
        """Apply one change and notify the listeners, unless it is older than what is held."""
        if change.type is ChangeType.SYNCED:
            return
        key, uid = key_of(change.resource, change.object), change.object["metadata"]["uid"]
        before = self.at(key)
        if change.type is ChangeType.DELETED:
            self._deleted[uid] = None
            if len(self._deleted) > _REMEMBERED_DELETIONS:
                self._deleted.popitem(last=False)
            if before is None or before["metadata"]["uid"] != uid:
                return
            self._forget(key, before)
        else:
            if uid in self._deleted:
                return
            if before is not None and before["metadata"]["uid"] == uid:
                if _version(change.object) <= _version(before):
                    return
                self._forget(key, before)
            elif before is not None:
                self.apply(Change(ChangeType.DELETED, change.resource, before))
                before = None
            self._hold(key, change.object)
        for listener in self.listeners:
            listener(change, before)

    async def create(self, resource: str, obj: Object) -> Object:
        """Create the object; see `Objects.create`."""
        created = await self.objects.create(resource, obj)
        self.apply(Change(ChangeType.ADDED, resource, created))
        return created

    async def update(self, resource: str, obj: Object, *, subresource: str = "") -> Object:
        """Replace the object or its status; see `Objects.update`.

        After a conflict the present state is read, so that the next try starts from it.
        """
        try:
            updated = await self.objects.update(resource, obj, subresource=subresource)
        except (Changed, Gone):
            await self.refresh(key_of(resource, obj))
            raise
        if is_gone(updated):
            await self.refresh(key_of(resource, obj))
        else:
            self.apply(Change(ChangeType.MODIFIED, resource, updated))
        return updated

    async def delete(
        self,
        resource: str,
        obj: Object,
        *,
        grace_seconds: int | None = None,
        propagation: str = "Background",
    ) -> None:
        """Delete exactly this object (uid precondition); see `Objects.delete`."""
        key = key_of(resource, obj)
        await self.objects.delete(
            resource,
            key.namespace,
            key.name,
            uid=obj["metadata"]["uid"],
            grace_seconds=grace_seconds,
            propagation=propagation,
        )
        await self.refresh(key)

    async def bind(self, pod: Object, node: str) -> None:
        """Assign the pod to the node; see `Objects.bind`."""
        key = key_of("pods", pod)
        await self.objects.bind(key.namespace, key.name, pod["metadata"]["uid"], node)
        await self.refresh(key)

    async def refresh(self, key: Key) -> Object | None:
        """Read the object and apply what came back."""
        held = self.at(key)
        now = await self.objects.get(*key)
        if now is not None:
            self.apply(Change(ChangeType.MODIFIED, key.resource, now))
        elif held is not None:
            self.apply(Change(ChangeType.DELETED, key.resource, held))
        return self.at(key)

    def _hold(self, key: Key, obj: Object) -> None:
        self._states[key.resource][key] = obj
        self._keys[obj["metadata"]["uid"]] = key
        for reference in obj["metadata"].get("ownerReferences") or ():
            self._dependents.setdefault(reference["uid"], {})[key] = None
        node = key.resource == "pods" and obj["spec"].get("nodeName")
        if node:
            self._on_node.setdefault(node, {})[key] = None

    def _forget(self, key: Key, obj: Object) -> None:
        del self._states[key.resource][key]
        del self._keys[obj["metadata"]["uid"]]
        for reference in obj["metadata"].get("ownerReferences") or ():
            held = self._dependents.get(reference["uid"], {})
            held.pop(key, None)
            if not held:
                self._dependents.pop(reference["uid"], None)
        node = key.resource == "pods" and obj["spec"].get("nodeName")
        if node:
            del self._on_node[node][key]
            if not self._on_node[node]:
                del self._on_node[node]


def _version(obj: Object) -> int:
    text = obj["metadata"].get("resourceVersion", "0")
    return int(text) if text.isdigit() else 0
