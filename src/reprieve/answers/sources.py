"""Where answers are read from: an API server with the caller's rights, or objects in memory.

A `Reading` queries one of them for one answer: it keeps what was read, so nothing is read twice,
and notes what the caller may not read, which is stated before the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.instants import Nanos
from reprieve.kube.discovery import NotServed, RestMapper
from reprieve.kube.errors import Call, Forbidden, NotFound
from reprieve.kube.reader import Reader
from reprieve.kube.resource import Resource
from reprieve.whatif.snapshots.snapshot import Listed, Snapshot

__all__ = [
    "ClusterSource",
    "Json",
    "MemorySource",
    "OnceSource",
    "Reading",
    "SnapshotSource",
    "Source",
]

Json = dict[str, Any]


class Source(Protocol):
    """Reads objects as JSON."""

    @property
    def now(self) -> Nanos:
        """The instant of which answers are."""
        ...

    async def get(self, resource: Resource, namespace: str, name: str) -> Json | None:
        """Return an object, None where there is none.

        Raises:
            Forbidden: the caller may not read it.
            ApiError: any other refusal.
        """
        ...

    async def list(self, resource: Resource, namespace: str) -> list[Json] | None:
        """Return the objects of a namespace, or of all with an empty one; None: no such kind.

        Raises:
            Forbidden: the caller may not list them.
            ApiError: any other refusal.
        """
        ...

    async def resource_for(self, api_version: str, kind: str) -> Resource | None:
        """Return where a kind is served, None where it is not."""
        ...


class ClusterSource:
    """An API server."""

    def __init__(self, client: Reader, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._mapper = RestMapper(client, clock)

    @property
    def now(self) -> Nanos:
        """The present."""
        return self._clock.wall()

    async def get(self, resource: Resource, namespace: str, name: str) -> Json | None:
        """Read an object."""
        try:
            found: Json = await self._client.get(resource, namespace, name, dict)
        except NotFound:
            return None
        return found

    async def list(self, resource: Resource, namespace: str) -> list[Json] | None:
        """List objects; lists name kind and version once, here every object does."""
        try:
            page = await self._client.list(resource, dict, namespace=namespace)
        except NotFound:
            return None
        named = {"apiVersion": resource.api_version, "kind": resource.kind}
        return [{**named, **each} for each in page.items]

    async def resource_for(self, api_version: str, kind: str) -> Resource | None:
        """Query the discovery documents."""
        try:
            return await self._mapper.resource_for(api_version, kind)
        except NotServed:
            return None


class OnceSource:
    """Another source, for several answers: what was read or refused is not read again."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._read: dict[tuple[object, ...], Any] = {}

    @property
    def now(self) -> Nanos:
        """That of the source."""
        return self._source.now

    async def get(self, resource: Resource, namespace: str, name: str) -> Json | None:
        """Read an object."""
        key = ("get", resource, namespace, name)
        found: Json | None = await self._once(key, self._source.get, resource, namespace, name)
        return found

    async def list(self, resource: Resource, namespace: str) -> list[Json] | None:
        """List objects."""
        key = ("list", resource, namespace)
        found: list[Json] | None = await self._once(key, self._source.list, resource, namespace)
        return found

    async def resource_for(self, api_version: str, kind: str) -> Resource | None:
        """Look a kind up."""
        return await self._source.resource_for(api_version, kind)

    async def _once(
        self, key: tuple[object, ...], read: Callable[..., Awaitable[Any]], *given: object
    ) -> Any:
        if key not in self._read:
            try:
                self._read[key] = await read(*given)
            except Forbidden as refusal:
                self._read[key] = refusal
        found = self._read[key]
        if isinstance(found, Forbidden):
            raise found.with_traceback(None)
        return found


class MemorySource:
    """Objects in memory: those of a snapshot."""

    def __init__(self, objects: Iterable[Json], now: Nanos) -> None:
        self._now = now
        self._objects: dict[tuple[str, str], list[Json]] = {}
        for each in objects:
            key = str(each.get("apiVersion", "")), str(each.get("kind", ""))
            self._objects.setdefault(key, []).append(each)

    @property
    def now(self) -> Nanos:
        """The instant of the snapshot."""
        return self._now

    async def get(self, resource: Resource, namespace: str, name: str) -> Json | None:
        """Look an object up."""
        for each in self._objects.get((resource.api_version, resource.kind), ()):
            metadata = each["metadata"]
            if metadata["name"] == name and metadata.get("namespace", "") == namespace:
                return each
        return None

    async def list(self, resource: Resource, namespace: str) -> list[Json] | None:
        """Return those of a kind."""
        found = self._objects.get((resource.api_version, resource.kind))
        if found is None or not namespace:
            return found
        return [each for each in found if each["metadata"].get("namespace") == namespace]

    async def resource_for(self, api_version: str, kind: str) -> Resource | None:
        """Return a kind of which there is an object."""
        found = self._objects.get((api_version, kind))
        if not found:
            return None
        group, _, version = api_version.rpartition("/")
        namespaced = bool(found[0]["metadata"].get("namespace"))
        return Resource(group, version, f"{kind.lower()}s", kind, namespaced)


class SnapshotSource:
    """A snapshot, with the rights of the user who made it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @property
    def now(self) -> Nanos:
        """The instant of the snapshot."""
        return self._snapshot.at

    async def get(self, resource: Resource, namespace: str, name: str) -> Json | None:
        """Look an object up."""
        listed = self._listed(resource)
        body = None if listed is None else listed.objects.get((namespace, name))
        if body is None and resource in self._refused(namespace):
            raise Forbidden("", call=Call.on("get", resource, namespace, name))
        found: Json | None = None if body is None else msgspec.json.decode(body)
        return found

    async def list(self, resource: Resource, namespace: str) -> list[Json] | None:
        """Return those of a kind, of the version in which it was read."""
        listed = self._listed(resource)
        if listed is None:
            return None
        if not listed.objects and resource in self._refused(namespace):
            raise Forbidden("", call=Call.on("list", resource, namespace))
        named = {"apiVersion": resource.api_version, "kind": resource.kind}
        return [
            {**named, **msgspec.json.decode(body)}
            for (space, _), body in listed.objects.items()
            if not namespace or space == namespace
        ]

    async def resource_for(self, api_version: str, kind: str) -> Resource | None:
        """Return a kind that was read."""
        for listed in self._snapshot.kinds.values():
            if (listed.resource.api_version, listed.resource.kind) == (api_version, kind):
                return listed.resource
        return None

    def _listed(self, resource: Resource) -> Listed | None:
        listed = self._snapshot.kinds.get((resource.group, resource.plural))
        return None if listed is None or listed.resource.version != resource.version else listed

    def _refused(self, namespace: str) -> Sequence[Resource]:
        return [
            each.resource
            for each in self._snapshot.unseen
            if not each.namespaces or namespace in each.namespaces
        ]


class Reading:
    """Reads for one answer.

    `refused`: kinds with the namespaces in which they may not be read, empty for all of them.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.refused: dict[tuple[str, str], str] = {}
        self._objects: dict[tuple[str, str, str], Json | None] = {}
        self._lists: dict[tuple[str, str], list[Json] | None] = {}

    @property
    def now(self) -> Nanos:
        """The instant of which the answer is."""
        return self.source.now

    async def get(
        self, resource: Resource, namespace: str, name: str, *, quietly: bool = False
    ) -> Json | None:
        """Return an object; None where there is none, or where it may not be read.

        `quietly`: a refusal is not noted.
        """
        space = namespace if resource.namespaced else ""
        key = resource.qualified, space, name
        if key not in self._objects:
            try:
                self._objects[key] = await self.source.get(resource, space, name)
            except Forbidden as refusal:
                if not quietly:
                    self._note(resource, space, refusal)
                self._objects[key] = None
        return self._objects[key]

    async def listed(
        self, resources: Iterable[Resource], namespace: str, *, quietly: bool = False
    ) -> list[Json]:
        """Return the objects of the first kind that is served; none where they may not be read.

        `quietly`: a refusal is not noted, as nothing is missing from the answer but a better name.
        """
        for resource in resources:
            key = resource.qualified + "/" + resource.version, namespace
            if key not in self._lists:
                try:
                    self._lists[key] = await self.source.list(resource, namespace)
                except Forbidden as refusal:
                    if not quietly:
                        self._note(resource, namespace, refusal)
                    self._lists[key] = None
            found = self._lists[key]
            if found is not None:
                return found
        return []

    async def list_all(self, resources: Iterable[Resource], namespace: str) -> list[Json]:
        """Return the objects of all of the kinds."""
        found: dict[str, Json] = {}
        for resource in resources:
            for each in await self.listed((resource,), namespace):
                # One object is served under every version of its kind.
                found.setdefault(str(each["metadata"].get("uid")), each)
        return list(found.values())

    async def owner(self, reference: Mapping[str, Any], namespace: str) -> Json | None:
        """Return the object that an ownerReference names, None where it is not there any more."""
        api_version, kind = str(reference.get("apiVersion")), str(reference.get("kind"))
        resource = await self.source.resource_for(api_version, kind)
        if resource is None:
            return None
        found = await self.get(resource, namespace, str(reference.get("name")))
        if found is None or found["metadata"].get("uid") != reference.get("uid"):
            return None
        return {"apiVersion": api_version, "kind": kind, **found}

    def _note(self, resource: Resource, namespace: str, refusal: Forbidden) -> None:
        self.refused.setdefault((resource.qualified, namespace), refusal.rule or "")
