"""An API server in memory: what a cluster holds, and what would be written on top of it.

It answers as an API server does, as far as the planes need it: lists, watches, objects, creation,
replacement, patches (merge, strategic, apply), the status and scale subresources, bindings,
evictions and deletion with preconditions, grace periods and finalizers. Nothing leaves it: every
write stays here and is sent to the watches. A plane reaches it through `OverlayWire`, what stands
in for other controllers through `create`, `change` and `delete`. What becomes of an object by a
write is determined by `kubeworld.writes`.

    overlay = Overlay(snapshot, clock)
    client = Client(Transport(OverlayWire(overlay), clock))

Source: the API conventions of Kubernetes; the design's "State that can be trusted".
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.instants import Nanos, format_instant
from kubeworld.writes.changes import (
    bound,
    check,
    deleted,
    generation_of,
    grace_of,
    is_gone,
    patched,
    replaced,
)
from kubeworld.writes.refusals import Refused
from reprieve.kube.bodies import Json
from reprieve.kube.resource import (
    EVENTS,
    GPU_WORKLOADS,
    KAIWO_CONFIGS,
    LEASES,
    PODS,
    PREEMPTION_PARTS,
    PREEMPTIONS,
    Resource,
)
from reprieve.whatif.copy.tables import Table, table_of, typed
from reprieve.whatif.snapshots.snapshot import KindKey, Listed, Snapshot

__all__ = ["Change", "Overlay"]

#: Kinds that planes write and that need not be installed for an answer.
_OWN: Final = (
    PREEMPTIONS,
    PREEMPTION_PARTS,
    GPU_WORKLOADS,
    KAIWO_CONFIGS,
    LEASES,
    EVENTS,
    Resource("events.k8s.io", "v1", "events", "Event"),
)
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one object; `old` is None for a new one, `new` for a deleted one.

    `at`: when, in the virtual time of the run.
    """

    at: Nanos
    kind: KindKey
    old: Json | None
    new: Json | None

    @property
    def object(self) -> Json:
        """The object as it is, or as it was last."""
        found = self.new if self.new is not None else self.old
        assert found is not None, "one of them is there"
        return found


class Overlay:
    """The objects of a snapshot and everything that was written since.

    Attributes:
        history: every change, in order; events and leases apart.
        asked: paths of objects that were requested and are not part of the snapshot.
        unread: kinds that were listed, which the cluster serves and of which nothing was read.
        subscribers: called with each change, after it was stored.
        admission: what webhooks make of an object that is created.
    """

    def __init__(self, snapshot: Snapshot, clock: Clock) -> None:
        self.snapshot = snapshot
        self.clock = clock
        self.history: list[Change] = []
        self.asked: set[str] = set()
        self.unread: set[str] = set()
        self.subscribers: list[Callable[[Change], None]] = []
        self.admission: Callable[[Resource, Json], Json] = lambda resource, obj: obj
        self._tables: dict[KindKey, Table] = {}
        self._last = max((each.version for each in snapshot.kinds.values()), default=1)
        self._numbers = itertools.count(1)
        for key, listed in snapshot.kinds.items():
            self._tables[key] = table_of(listed, snapshot.documents)
        for resource in _OWN:
            key = (resource.group, resource.plural)
            self._tables.setdefault(key, Table(resource, {}))

    # Reading

    @property
    def version(self) -> int:
        """The version of the newest change."""
        return self._last

    def table(self, group: str, plural: str) -> Resource | None:
        """Return the resource of a kind that is served, None without it."""
        found = self._tables.get((group, plural))
        return None if found is None else found.resource

    def resource_of(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource that an object or a reference to one names; None if not served."""
        group = api_version.rpartition("/")[0]
        for (of, _), table in self._tables.items():
            if of == group and table.resource.kind == kind:
                return table.resource
        return None

    def get(self, resource: Resource, namespace: str, name: str) -> Json | None:
        """Return an object, not to be changed; None where it is not there."""
        table = self._tables.get((resource.group, resource.plural))
        return None if table is None else self._read(table, (namespace, name))

    def owners(self, obj: Json) -> Iterator[tuple[Json, Json]]:
        """Yield the references of an object to owners that are there, with these."""
        for reference in obj["metadata"].get("ownerReferences") or ():
            resource = self.resource_of(reference["apiVersion"], reference["kind"])
            namespace = obj["metadata"].get("namespace", "")
            found = None if resource is None else self.get(resource, namespace, reference["name"])
            if found is not None:
                yield reference, found

    def single(self, resource: Resource, namespace: str, name: str) -> Json | None:
        """Return an object, also of a kind that was not listed; one not known is requested."""
        if self.table(resource.group, resource.plural) is not None:
            return self.get(resource, namespace, name)
        path = resource.path(namespace, name)
        if path not in self.snapshot.single:
            self.asked.add(path)
        found = self.snapshot.single.get(path)
        return None if found is None else dict(msgspec.json.decode(found))

    def all(self, resource: Resource) -> Iterator[Json]:
        """Yield the objects of a kind, not to be changed. It decodes all of them."""
        table = self._tables.get((resource.group, resource.plural))
        for key in list(table.objects) if table is not None else ():
            found = self._read(table, key) if table is not None else None
            if found is not None:
                yield found

    def raw(self, resource: Resource) -> Iterator[tuple[tuple[str, str], bytes]]:
        """Yield the objects of a kind as JSON, by namespace and name."""
        table = self._tables.get((resource.group, resource.plural))
        for key, value in list(table.objects.items()) if table is not None else ():
            yield key, value if isinstance(value, bytes) else msgspec.json.encode(value)

    def naming(self, resource: Resource, word: bytes) -> list[tuple[tuple[str, str], bytes]]:
        """Return those of `raw` in which a word stands, which is a tenth of the work of reading."""
        table = self._tables.get((resource.group, resource.plural))
        return [
            (key, raw)
            for key, value in ([] if table is None else table.objects.items())
            if word in (raw := value if isinstance(value, bytes) else msgspec.json.encode(value))
        ]

    def names(self, resource: Resource) -> list[tuple[str, str]]:
        """Return namespace and name of the objects of a kind."""
        table = self._tables.get((resource.group, resource.plural))
        return [] if table is None else list(table.objects)

    def bytes_of(self, resource: Resource, namespace: str, name: str) -> bytes | None:
        """Return an object as JSON; None where it is not there."""
        table = self._tables.get((resource.group, resource.plural))
        value = None if table is None else table.objects.get((namespace, name))
        return value if value is None or isinstance(value, bytes) else msgspec.json.encode(value)

    def frozen(self) -> Snapshot:
        """Return what there is now as a snapshot, to continue from in another run."""
        kinds = {
            key: Listed(
                table.resource,
                {
                    name: value if isinstance(value, bytes) else msgspec.json.encode(value)
                    for name, value in table.objects.items()
                },
                self._last,
            )
            for key, table in self._tables.items()
        }
        return replace(self.snapshot, at=self.clock.wall(), kinds=kinds)

    def held(self, kind: KindKey, namespace: str = "", name: str = "") -> list[bytes | Json]:
        """Return the objects of a kind as they are held, not to be changed; `name` alone if given.

        Raises:
            Refused: the kind is not served.
        """
        objects = self._table(kind).objects
        if not namespace and not name:
            return list(objects.values())
        return [
            value
            for key, value in objects.items()
            if (not namespace or key[0] == namespace) and (not name or key[1] == name)
        ]

    def watch(self, kind: KindKey, since: int, listener: Callable[[bytes], None]) -> None:
        """Notify a listener of each change of a kind after a version, as a line of a watch."""
        table = self._table(kind)
        for version, line in table.reported:
            if version > since:
                listener(line)
        table.listeners.append(listener)

    # Writing

    def create(self, resource: Resource, obj: Json) -> Json:
        """Store a new object, and return it as it is stored.

        Raises:
            Refused: the name is in use.
        """
        key = (resource.group, resource.plural)
        if key not in self._tables:
            self._tables[key] = table_of(Listed(resource, {}), self.snapshot.documents)
        table = self._tables[key]
        body = copy.deepcopy(obj)
        metadata = body.setdefault("metadata", {})
        if not metadata.get("name"):
            stem = metadata.get("generateName", "")
            metadata["name"] = stem + self.suffix(resource, metadata.get("namespace", ""), stem)
        key = (metadata.get("namespace", ""), metadata["name"])
        if key in table.objects:
            text = f'{resource.qualified} "{key[1]}" already exists'
            raise Refused(409, "AlreadyExists", text)
        body = self.admission(resource, typed(resource, body))
        metadata = body["metadata"]
        metadata.setdefault(
            "uid", str(uuid.uuid5(uuid.NAMESPACE_URL, f"{resource}{key}{self._last}"))
        )
        metadata["creationTimestamp"] = format_instant(self.clock.wall())
        metadata["generation"] = 1
        metadata.pop("managedFields", None)
        return self._store(table, key, None, body)

    def change(self, resource: Resource, new: Json) -> Json:
        """Store an object in place of the one of its name, whatever its version.

        Raises:
            Refused: it is not there.
        """
        table = self._table((resource.group, resource.plural))
        key = _key(new)
        old = self._existing(table, key)
        return self._settle(table, key, old, new)

    def replace(self, kind: KindKey, key: tuple[str, str], sent: Json, part: str) -> Json:
        """Replace an object, or its status."""
        table = self._table(kind)
        old = self._existing(table, key)
        new = replaced(old, sent, part, with_status=table.with_status)
        return self._settle(table, key, old, new)

    def patch(
        self, kind: KindKey, key: tuple[str, str], sent: Json, part: str, *, strategic: bool
    ) -> Json:
        """Patch an object, its status or its scale."""
        table = self._table(kind)
        old = self._existing(table, key)
        new = patched(old, sent, part, strategic=strategic, with_status=table.with_status)
        return self._settle(table, key, old, new)

    def delete(self, kind: KindKey, key: tuple[str, str], options: Json | None = None) -> Json:
        """Delete an object: at once, or when its grace period and its finalizers are over."""
        table = self._table(kind)
        old = self._existing(table, key)
        options = options or {}
        check(old, options.get("preconditions") or {})
        pods = kind == (PODS.group, PODS.plural)
        seconds = grace_of(old, options.get("gracePeriodSeconds")) if pods else 0
        if not seconds and not old["metadata"].get("finalizers"):
            self._remove(table, key, old)
            return old
        new = deleted(old, self.clock.wall(), seconds=seconds)
        return old if new is old else self._store(table, key, old, new)

    def drop(self, kind: KindKey, key: tuple[str, str]) -> None:
        """Delete an object at once, as if it had ended long ago: no subscriber is notified."""
        table = self._table(kind)
        last = self._existing(table, key)
        subscribers, self.subscribers = self.subscribers, []
        try:
            self._remove(table, key, last)
        finally:
            self.subscribers = subscribers

    def bind(self, key: tuple[str, str], sent: Json) -> Json:
        """Bind a pod to a node."""
        table = self._table((PODS.group, PODS.plural))
        old = self._existing(table, key)
        return self._settle(table, key, old, bound(old, sent, self.clock.wall()))

    def suffix(self, resource: Resource, namespace: str, stem: str) -> str:
        """Return five letters for a generated name that is free, other ones at each call."""
        table = self._tables.get((resource.group, resource.plural))
        while True:
            text = f"{resource.qualified}/{namespace}/{stem}/{next(self._numbers)}"
            digest = hashlib.sha256(text.encode()).digest()
            letters = "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:5])
            # Of three thousand names of one stem two are the same in one of four cases.
            if table is None or (namespace, stem + letters) not in table.objects:
                return letters

    def suffixes(self, resource: Resource, owner: Json) -> Callable[[str], str]:
        """Return what gives letters for the names of an owner's children, by their stem."""
        namespace = owner["metadata"].get("namespace", "")
        return lambda stem: self.suffix(resource, namespace, stem)

    # The way in

    def _settle(self, table: Table, key: tuple[str, str], old: Json, new: Json) -> Json:
        """Store a changed object, or delete it when nothing holds it any more."""
        if new == old:
            return old
        new = generation_of(old, new)
        if is_gone(new):
            self._remove(table, key, new)
            return new
        return self._store(table, key, old, new)

    def _store(self, table: Table, key: tuple[str, str], old: Json | None, new: Json) -> Json:
        self._last += 1
        metadata = {**new["metadata"], "resourceVersion": str(self._last)}
        stored = {**typed(table.resource, new), "metadata": metadata}
        table.objects[key] = stored
        self._notify(table, "ADDED" if old is None else "MODIFIED", old, stored)
        return stored

    def _remove(self, table: Table, key: tuple[str, str], last: Json) -> None:
        del table.objects[key]
        self._last += 1
        metadata = {**last["metadata"], "resourceVersion": str(self._last)}
        self._notify(table, "DELETED", {**last, "metadata": metadata}, None)

    def _notify(self, table: Table, what: str, old: Json | None, new: Json | None) -> None:
        resource = table.resource
        kind = (resource.group, resource.plural)
        if resource.kind in ("Event", "Lease"):
            return
        change = Change(self.clock.wall(), kind, old, new)
        line = msgspec.json.encode({"type": what, "object": change.object})
        table.reported.append((self._last, line))
        for listener in table.listeners:
            listener(line)
        self.history.append(change)
        for subscriber in self.subscribers:
            subscriber(change)

    def _table(self, kind: KindKey) -> Table:
        found = self._tables.get(kind)
        if found is None:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        return found

    def _existing(self, table: Table, key: tuple[str, str]) -> Json:
        found = self._read(table, key)
        if found is None:
            raise Refused(404, "NotFound", f'{table.resource.qualified} "{key[1]}" not found')
        return found

    @staticmethod
    def _read(table: Table, key: tuple[str, str]) -> Json | None:
        found = table.objects.get(key)
        if isinstance(found, bytes):
            found = typed(table.resource, msgspec.json.decode(found))
            table.objects[key] = found
        return found


def _key(obj: Json) -> tuple[str, str]:
    metadata: Mapping[str, Any] = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
