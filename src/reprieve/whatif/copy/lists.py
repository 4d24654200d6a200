"""Reads what a cluster holds with the caller's rights: each kind once, all of them in parallel.

A kind that may not be listed cluster-wide is listed namespace by namespace, where that is allowed;
what stays unseen is part of the answer, since a decision without it is only a bound. Where the
namespaces cannot be listed either, those that the caller names are tried.

    snapshot = await gather(client, wanted(controllers, settings), clock)

Source: the API's list semantics; specification of access: RBAC in `docs/security/rights.md`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.kube.errors import ApiError, Call, Expired, Forbidden, NotFound
from reprieve.kube.objects import version_number
from reprieve.kube.reader import Reader
from reprieve.kube.resource import NAMESPACES, Resource
from reprieve.kube.transport import Request
from reprieve.whatif.snapshots.snapshot import KindKey, Listed, Snapshot, Unseen

__all__ = ["discovered", "gather", "read_single"]

_PAGE: Final = 500
_TIMEOUT: Final = 60 * SECOND
_AT_ONCE: Final = 16


class _Metadata(msgspec.Struct, gc=False):
    name: str = ""
    namespace: str = ""


class _Head(msgspec.Struct, gc=False):
    metadata: _Metadata


class _ListMetadata(msgspec.Struct, gc=False):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    continue_token: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct, gc=False):
    metadata: _ListMetadata
    items: list[msgspec.Raw] | None = None


class _Version(msgspec.Struct, gc=False):
    group_version: str = msgspec.field(name="groupVersion")


class _Group(msgspec.Struct, gc=False):
    name: str
    versions: list[_Version]


class _Groups(msgspec.Struct, gc=False):
    groups: list[_Group] | None = None


class _ApiResource(msgspec.Struct, gc=False):
    name: str
    kind: str
    namespaced: bool


class _ApiResources(msgspec.Struct, gc=False):
    resources: list[_ApiResource] | None = None


_HEAD: Final = msgspec.json.Decoder(_Head)
_PAGES: Final = msgspec.json.Decoder(_List)


async def gather(
    client: Reader, wanted: Iterable[Resource], clock: Clock, *, namespaces: Collection[str] = ()
) -> Snapshot:
    """Return what a cluster holds of these kinds; of several versions of a kind the first served.

    Args:
        client: for the API server, with the caller's rights.
        wanted: the kinds.
        clock: for the instant.
        namespaces: where to look if neither a kind nor the namespaces can be listed cluster-wide.

    Raises:
        ApiError: the server refused something else than a list, or could not be reached.
    """
    slots = asyncio.Semaphore(_AT_ONCE)
    documents = await _documents(client, slots)
    served = _served(documents, wanted)
    places, known = await _namespaces(client, namespaces)

    async def one(resource: Resource) -> tuple[Listed, Unseen | None]:
        async with slots:
            return await _listed(client, resource, places)

    found = await asyncio.gather(*(one(resource) for resource in served.values()))
    return Snapshot(
        at=clock.wall(),
        kinds={(each.resource.group, each.resource.plural): each for each, _ in found},
        documents=documents,
        unseen=tuple(unseen for _, unseen in found if unseen is not None),
        namespaces=known,
    )


async def read_single(client: Reader, paths: Iterable[str]) -> Mapping[str, bytes | None]:
    """Return objects by path; None for what is not there or may not be read."""

    async def one(path: str) -> bytes | None:
        try:
            return await client.transport.request(Request("GET", path), Call("get", path))
        except (NotFound, Forbidden):
            return None

    wanted = sorted(paths)
    return dict(zip(wanted, await asyncio.gather(*map(one, wanted)), strict=True))


def discovered(documents: Mapping[str, bytes | None]) -> list[Resource]:
    """Return every kind that discovery documents have, subresources apart."""
    found = []
    for path, document in documents.items():
        parts = path.strip("/").split("/")
        group, version = ("", parts[1]) if parts[0] == "api" else (parts[1], parts[2])
        if document is None:
            continue
        for each in msgspec.json.decode(document, type=_ApiResources).resources or ():
            if "/" not in each.name:
                found.append(Resource(group, version, each.name, each.kind, each.namespaced))
    return found


async def _documents(client: Reader, slots: asyncio.Semaphore) -> dict[str, bytes | None]:
    """Return the discovery documents of all group versions, by path."""
    body = await client.transport.request(Request("GET", "/apis"), Call("get", "/apis"))
    groups = msgspec.json.decode(body, type=_Groups).groups or []
    paths = ["/api/v1", *(f"/apis/{v.group_version}" for g in groups for v in g.versions)]

    async def one(path: str) -> bytes | None:
        async with slots:
            try:
                return await client.transport.request(Request("GET", path), Call("get", path))
            except ApiError:
                # An aggregated API that is away hinders no other work.
                return None

    return dict(zip(paths, await asyncio.gather(*map(one, paths)), strict=True))


def _served(
    documents: Mapping[str, bytes | None], wanted: Iterable[Resource]
) -> dict[KindKey, Resource]:
    offered = {(each.group, each.version, each.plural): each for each in discovered(documents)}
    found: dict[KindKey, Resource] = {}
    for each in wanted:
        if (each.group, each.version, each.plural) in offered:
            found.setdefault((each.group, each.plural), each)
    return found


async def _namespaces(client: Reader, named: Collection[str]) -> tuple[Sequence[str], int | None]:
    """Return where to look, and how many namespaces there are if that is known."""
    try:
        objects, _ = await _pages(client, NAMESPACES, "")
    except Forbidden:
        return sorted(set(named)), None
    names = sorted(name for _, name in objects)
    return names, len(names)


async def _listed(
    client: Reader, resource: Resource, places: Sequence[str]
) -> tuple[Listed, Unseen | None]:
    try:
        objects, version = await _pages(client, resource, "")
        return Listed(resource, objects, version), None
    except NotFound:
        return Listed(resource, {}), None
    except Forbidden:
        if not resource.namespaced:
            return Listed(resource, {}), Unseen(resource, ())
    objects, version, refused = {}, 0, []
    for place in places:
        try:
            more, at = await _pages(client, resource, place)
        except Forbidden:
            refused.append(place)
        else:
            objects.update(more)
            version = max(version, at)
    return Listed(resource, objects, version), Unseen(resource, tuple(refused))


async def _pages(
    client: Reader, resource: Resource, namespace: str, limit: int = _PAGE
) -> tuple[dict[tuple[str, str], bytes], int]:
    """Return all objects by namespace and name, and the version of the list."""
    call = Call.on("list", resource, namespace)
    path = resource.path(namespace)
    objects: dict[tuple[str, str], bytes] = {}
    version, token = "", ""
    while True:
        query = {"limit": str(limit)} if limit else {}
        if token:
            query["continue"] = token
        request = Request("GET", path, query, timeout=_TIMEOUT)
        try:
            page = _PAGES.decode(await client.transport.request(request, call))
        except Expired:
            if not limit:
                raise
            # The list outlived its continue token: everything at once cannot.
            return await _pages(client, resource, namespace, 0)
        for raw in page.items or ():
            metadata = _HEAD.decode(raw).metadata
            objects[metadata.namespace, metadata.name] = bytes(raw)
        version = version or page.metadata.resource_version
        token = page.metadata.continue_token
        if not token:
            return objects, max(0, version_number(version))
