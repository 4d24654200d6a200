"""`Objects` on the embedded API server, in its own process and without HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NoReturn

from kubelocal.machines.informer import Key, key_of
from kubelocal.machines.objects import (
    FREQUENT,
    AlreadyThere,
    Change,
    Changed,
    ChangeType,
    Gone,
    Object,
    Refused,
)
from kubelocal.server.api import Api
from kubelocal.server.errors import StatusError
from kubelocal.server.types.conversion import shelf
from kubelocal.server.types.kinds import Kind
from kubelocal.server.writing.options import DeleteOptions, Propagation, WriteOptions
from kubelocal.store import EventType
from kubeworld.units.durations import SECOND

__all__ = ["EmbeddedObjects"]

_DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"
_MANAGER: Final = "kubelocal-machines"


class EmbeddedObjects:
    """The objects of an `Api`. Several feeds may run at the same time."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def get(self, resource: str, namespace: str, name: str) -> Object | None:
        kind = self._kind(resource)
        if kind is None:
            return None
        try:
            return await self._api.get(kind, namespace if kind.namespaced else "", name)
        except StatusError as error:
            if error.code == 404:
                return None
            _refuse(error)

    async def create(self, resource: str, obj: Object) -> Object:
        kind = self._kind_of(resource, obj)
        namespace = obj["metadata"].get("namespace") or "default"
        try:
            return await self._api.create(
                kind, namespace if kind.namespaced else "", obj, WriteOptions(_MANAGER)
            )
        except StatusError as error:
            _refuse(error)

    async def update(self, resource: str, obj: Object, *, subresource: str = "") -> Object:
        kind = self._kind_of(resource, obj)
        metadata = obj["metadata"]
        if subresource not in kind.subresources:
            subresource = ""
        try:
            return await self._api.update(
                kind,
                metadata.get("namespace", ""),
                metadata["name"],
                obj,
                WriteOptions(_MANAGER),
                subresource,
            )
        except StatusError as error:
            _refuse(error)

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
        kind = self._kind(resource)
        if kind is None:
            return
        options = DeleteOptions(grace_seconds, Propagation(propagation), uid)
        try:
            await self._api.delete(kind, namespace if kind.namespaced else "", name, options)
        except StatusError as error:
            if error.code != 404:
                _refuse(error)

    async def bind(self, namespace: str, pod: str, uid: str, node: str) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, "namespace": namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._api.bind(namespace, pod, binding)
        except StatusError as error:
            _refuse(error)

    def resource_of(self, api_version: str, kind: str) -> str | None:
        found = self._api.registry.by_kind(api_version, kind)
        return None if found is None else found.resource

    async def changes(self, resources: Sequence[str] | None = None) -> AsyncIterator[Change]:
        feed: asyncio.Queue[Change | None] = asyncio.Queue()
        watches: dict[str, asyncio.Task[None]] = {}
        waiting: set[str] = set()
        try:
            self._follow_all(feed, watches, resources)
            waiting |= watches.keys()
            while True:
                change = await feed.get()
                if change is None:  # a watch has failed; its task has the reason
                    for watch in watches.values():
                        if watch.done():
                            watch.result()
                    continue
                if change.type is ChangeType.SYNCED:
                    if change.resource in waiting:
                        waiting.discard(change.resource)
                        if not waiting:
                            yield Change(ChangeType.SYNCED, "", {})
                    continue
                yield change
                if change.resource == _DEFINITIONS:
                    self._follow_all(feed, watches, resources)
        finally:
            for watch in watches.values():
                watch.cancel()
            await asyncio.gather(*watches.values(), return_exceptions=True)

    def _follow_all(
        self,
        feed: asyncio.Queue[Change | None],
        watches: dict[str, asyncio.Task[None]],
        resources: Sequence[str] | None,
    ) -> None:
        """Start a watch for every resource that is wanted, or served now, and has none."""
        if resources is None:
            kinds = [kind for kind in self._api.registry.all() if "watch" in kind.verbs]
            shelves = [kind.resource for kind in kinds if kind.resource == shelf(kind)]
            resources = [resource for resource in shelves if resource not in FREQUENT]
        for resource in resources:
            if resource not in watches:
                watch = asyncio.create_task(self._follow(resource, feed))
                watch.add_done_callback(lambda _: feed.put_nowait(None))
                watches[resource] = watch

    async def _follow(self, resource: str, feed: asyncio.Queue[Change | None]) -> None:
        """Pass on the changes of one resource until cancelled, across ends of its watch."""
        known: dict[Key, Object] = {}
        while True:
            kind = self._kind(resource)
            if kind is None:  # its definition is deleted, or not created yet
                for obj in known.values():
                    feed.put_nowait(Change(ChangeType.DELETED, resource, obj))
                known.clear()
                feed.put_nowait(Change(ChangeType.SYNCED, resource, {}))
                await self._api.clock.sleep(SECOND)
                continue
            listed: dict[Key, Object] | None = {}
            watch = self._api.watch(kind, None, bookmarks=True, send_initial_events=True)
            async for event in watch:
                if event.type is EventType.BOOKMARK:
                    if listed is not None:
                        for key in known.keys() - listed.keys():
                            gone = known.pop(key)
                            feed.put_nowait(Change(ChangeType.DELETED, resource, gone))
                        listed = None
                        feed.put_nowait(Change(ChangeType.SYNCED, resource, {}))
                    continue
                if event.type is EventType.ERROR:
                    break
                key = key_of(resource, event.object)
                if event.type is EventType.DELETED:
                    known.pop(key, None)
                else:
                    known[key] = event.object
                    if listed is not None:
                        listed[key] = event.object
                feed.put_nowait(Change(ChangeType(event.type.value), resource, event.object))

    def _kind(self, resource: str) -> Kind | None:
        plural, _, group = resource.partition(".")
        return self._api.registry.stored(group, plural)

    def _kind_of(self, resource: str, obj: dict[str, Any]) -> Kind:
        kind = self._api.registry.by_kind(obj["apiVersion"], obj["kind"])
        if kind is None or kind.resource != resource:
            raise Refused(f"no kind {obj['kind']} of {obj['apiVersion']} is stored in {resource}")
        return kind


def _refuse(error: StatusError) -> NoReturn:
    """Raise the protocol's error for the server's."""
    if error.reason == "AlreadyExists":
        raise AlreadyThere(error.message) from None
    if error.code == 409:
        raise Changed(error.message) from None
    if error.code == 404:
        raise Gone(error.message) from None
    raise Refused(error.message) from None
