"""The machines' store interface over the client, so that they also run on a real API server.

Scenarios use it too: what people do in them is creating, changing and deleting objects of any kind.
Kinds are known from aggregated discovery, which is read again by `refresh` and by `changes` of all
resources when a CustomResourceDefinition changes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import msgspec

from kubelocal.machines.objects import (
    AlreadyThere,
    Change,
    Changed,
    ChangeType,
    Gone,
    Object,
    Refused,
    StoreError,
    Unanswered,
)
from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.kube.bodies import Propagation
from reprieve.kube.client import Client
from reprieve.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, Resource
from reprieve.kube.transport import Request

__all__ = ["KubeObjects"]

_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_AGAIN: Final = SECOND


class KubeObjects:
    """`local.machines.objects.Objects` over a client; `refresh` has to be awaited before use."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._resources: dict[str, Resource] = {}  # by `jobs.batch`, the preferred version
        self._kinds: dict[tuple[str, str], Resource] = {}  # by apiVersion and kind
        self._watchable: set[str] = set()

    async def refresh(self) -> None:
        """Read which kinds are served.

        Raises:
            ApiError: discovery was refused.
        """
        resources: dict[str, Resource] = {}
        kinds: dict[tuple[str, str], Resource] = {}
        watchable: set[str] = set()
        for path in ("/api", "/apis"):
            body = await self._client.transport.request(Request("GET", path, accept=_AGGREGATED))
            for resource, verbs in _served(msgspec.json.decode(body)):
                resources.setdefault(resource.qualified, resource)
                kinds.setdefault((resource.api_version, resource.kind), resource)
                if {"list", "watch"} <= verbs:
                    watchable.add(resource.qualified)
        self._resources, self._kinds, self._watchable = resources, kinds, watchable

    def resource_of(self, api_version: str, kind: str) -> str | None:
        """Return the resource that stores this kind; None when no such kind is served."""
        found = self._kinds.get((api_version, kind))
        return found.qualified if found is not None else None

    def resource_named(self, kind: str) -> str | None:
        """Return the resource of a kind whatever its group, the first in discovery's order."""
        return next(
            (found.qualified for (_, name), found in self._kinds.items() if name == kind), None
        )

    def namespaced(self, api_version: str, kind: str) -> bool:
        """Whether objects of this kind live in namespaces; True when it is not served."""
        found = self._kinds.get((api_version, kind))
        return found is None or found.namespaced

    async def get(self, resource: str, namespace: str, name: str) -> Object | None:
        """Return the object, or None when it or its resource does not exist."""
        found = self._resources.get(resource)
        if found is None:
            return None
        try:
            return await self._client.get(found, _within(found, namespace), name, dict)
        except NotFound:
            return None
        except ApiError as error:
            raise _translated(error) from error

    async def create(self, resource: str, obj: Object) -> Object:
        """Store a new object and return it as stored."""
        try:
            return await self._client.create(self._known(resource), obj, dict)
        except ApiError as error:
            raise _translated(error) from error

    async def update(self, resource: str, obj: Object, *, subresource: str = "") -> Object:
        """Replace the object, or its `status`, and return it as stored."""
        try:
            return await self._client.replace(
                self._known(resource), obj, dict, subresource=subresource
            )
        except ApiError as error:
            raise _translated(error) from error

    async def delete(
        self,
        resource: str,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
        propagation: str = "Background",
    ) -> None:
        """Delete the object; one that does not exist is no error."""
        found = self._known(resource)
        try:
            await self._client.delete(
                found,
                _within(found, namespace),
                name,
                uid=uid or "",
                grace_seconds=grace_seconds,
                propagation=Propagation(propagation),
            )
        except NotFound:
            return
        except ApiError as error:
            raise _translated(error) from error

    async def bind(self, namespace: str, pod: str, uid: str, node: str) -> None:
        """Assign the pod to the node."""
        try:
            await self._client.bind(namespace, pod, node, uid=uid)
        except ApiError as error:
            raise _translated(error) from error

    async def changes(self, resources: Sequence[str] | None = None) -> AsyncIterator[Change]:
        """Give every existing object as ADDED, then SYNCED, then each change as it happens."""
        # Bounded, so that lists are not read faster than they are handed out.
        queue: asyncio.Queue[Change] = asyncio.Queue(maxsize=1_000)
        streams = _Streams(self, queue)
        try:
            names = sorted(self._watchable) if resources is None else list(resources)
            streams.announce([streams.start(name) for name in names])
            while True:
                change = await queue.get()
                yield change
                if resources is None and change.resource == CUSTOM_RESOURCE_DEFINITIONS.qualified:
                    with contextlib.suppress(ApiError):
                        await self.refresh()
                    for name in sorted(self._watchable - streams.names):
                        streams.start(name)
        finally:
            await streams.stop()

    def _known(self, resource: str) -> Resource:
        found = self._resources.get(resource)
        if found is None:
            raise Refused(f"the server does not serve {resource}")
        return found

    async def _follow(
        self, resource: str, queue: asyncio.Queue[Change], synced: asyncio.Event
    ) -> None:
        """List and watch one resource for ever; what is missing from a new list is DELETED."""
        present: dict[str, Object] = {}
        while True:
            found = self._resources.get(resource)
            if found is None:
                synced.set()
                await self._clock.sleep(_AGAIN)
                with contextlib.suppress(ApiError):
                    await self.refresh()
                continue
            try:
                page = await self._client.list(found, dict)
                for change in _difference(resource, _described(page.items, found), present):
                    await queue.put(change)
                synced.set()
                version = page.resource_version
                while True:
                    async for event in self._client.watch(found, dict, resource_version=version):
                        version = event.resource_version
                        if event.object is not None:
                            change = Change(ChangeType(event.type), resource, event.object)
                            _keep(present, change)
                            await queue.put(change)
            except Expired:
                continue
            except ApiError as error:
                if isinstance(error, NotFound | Forbidden):
                    synced.set()
                await self._clock.sleep(_AGAIN)


class _Streams:
    """One task per followed resource, and one that states when all of the first are synced."""

    def __init__(self, objects: KubeObjects, queue: asyncio.Queue[Change]) -> None:
        self._objects = objects
        self._queue = queue
        self._tasks: list[asyncio.Task[None]] = []
        self.names: set[str] = set()

    def start(self, resource: str) -> asyncio.Event:
        synced = asyncio.Event()
        self.names.add(resource)
        follow = self._objects._follow(resource, self._queue, synced)
        self._tasks.append(asyncio.create_task(follow))
        return synced

    def announce(self, synced: Sequence[asyncio.Event]) -> None:
        async def wait() -> None:
            for event in synced:
                await event.wait()
            await self._queue.put(Change(ChangeType.SYNCED, "", {}))

        self._tasks.append(asyncio.create_task(wait()))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _served(document: Any) -> list[tuple[Resource, set[str]]]:
    """Return the resources of an aggregated discovery document, preferred versions first."""
    served: list[tuple[int, Resource, set[str]]] = []
    for group in document.get("items", ()):
        for rank, version in enumerate(group.get("versions", ())):
            for item in version.get("resources", ()):
                kind = item.get("responseKind", {}).get("kind", "")
                resource = Resource(
                    group=group.get("metadata", {}).get("name", ""),
                    version=version["version"],
                    plural=item["resource"],
                    kind=kind,
                    namespaced=item.get("scope") == "Namespaced",
                )
                served.append((rank, resource, set(item.get("verbs", ()))))
    return [(resource, verbs) for _, resource, verbs in sorted(served, key=lambda entry: entry[0])]


def _described(items: Sequence[Object], resource: Resource) -> list[Object]:
    """Return the items of a list with the type that lists leave out."""
    return [{"apiVersion": resource.api_version, "kind": resource.kind} | item for item in items]


def _difference(resource: str, items: Sequence[Object], present: dict[str, Object]) -> list[Change]:
    """Return the changes from `present` to `items`, and bring `present` up to date."""
    changes: list[Change] = []
    uids = {item["metadata"]["uid"] for item in items}
    for uid in [uid for uid in present if uid not in uids]:
        changes.append(Change(ChangeType.DELETED, resource, present.pop(uid)))
    for item in items:
        before = present.get(item["metadata"]["uid"])
        if before is None:
            changes.append(Change(ChangeType.ADDED, resource, item))
        elif before["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
            changes.append(Change(ChangeType.MODIFIED, resource, item))
        present[item["metadata"]["uid"]] = item
    return changes


def _keep(present: dict[str, Object], change: Change) -> None:
    uid = change.object["metadata"]["uid"]
    if change.type is ChangeType.DELETED:
        present.pop(uid, None)
    else:
        present[uid] = change.object


def _within(resource: Resource, namespace: str) -> str:
    return namespace if resource.namespaced else ""


def _translated(error: ApiError) -> StoreError:
    if isinstance(error, AlreadyExists):
        return AlreadyThere(error.message)
    if isinstance(error, Conflict):
        return Changed(error.message)
    if isinstance(error, NotFound):
        return Gone(error.message)
    if isinstance(error, ServerError | TooManyRequests | Unreachable):
        return Unanswered(str(error))
    return Refused(str(error))
