"""Reads of objects: get, list, watch.

Every method accepts the `Resource` and the type to decode the answer into: a msgspec Struct with
the fields in use, or `dict`. Reads wait for no turn and need no fence, so a `Reader` is all that a
part needs which only looks at the cluster. Lists are read in pages; a watch is one request, and
resuming it is the `reflector`'s business.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Final, TypeVar

from kubeworld.units.durations import SECOND
from reprieve.kube.decoding import (
    Page,
    Shape,
    Skipped,
    WatchEvent,
    decode_event,
    decode_object,
    decode_page,
    decode_parts,
)
from reprieve.kube.errors import Call, Undecodable
from reprieve.kube.resource import Resource
from reprieve.kube.transport import Request, Transport

__all__ = ["PAGE_SIZE", "Reader"]

T = TypeVar("T")
PAGE_SIZE: Final = 500
_LIST_TIMEOUT: Final = 60 * SECOND
_METADATA_ONLY: Final = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)


class Reader:
    """Reads objects of any kind; `transport` leads to one API server."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def get(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        type: type[T],
        /,
        *,
        subresource: str = "",
    ) -> T:
        """Return the object as of now (a quorum read).

        Raises:
            NotFound: no such object, or no such kind.
            ApiError: any other refusal.
        """
        call = Call.on("get", resource, namespace, name, subresource)
        request = Request("GET", resource.path(namespace, name, subresource))
        return decode_object(await self.transport.request(request, call), type, call)

    async def list(
        self,
        resource: Resource,
        type: Shape[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        skipped: Skipped | None = None,
        metadata_only: bool = False,
    ) -> Page[T]:
        """Return all objects, read in pages, as one `Page`; arguments as of `list_pages`."""
        items: list[T] = []
        version = ""
        async for page in self.list_pages(
            resource,
            type,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            skipped=skipped,
            metadata_only=metadata_only,
        ):
            items += page.items
            version = page.resource_version
        return Page(items, version)

    async def list_pages(
        self,
        resource: Resource,
        type: Shape[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        page_size: int = PAGE_SIZE,
        skipped: Skipped | None = None,
        metadata_only: bool = False,
        together: int = 0,
    ) -> AsyncIterator[Page[T]]:
        """Yield the pages of a list.

        Args:
            resource: the kind.
            type: what each item is decoded into.
            namespace: empty for all.
            label_selector: as the API has it.
            field_selector: as the API has it.
            resource_version: the list is not older than this; empty for the newest state.
            page_size: items in a page; 0 for everything at once.
            skipped: called for items that cannot be decoded; None raises `Undecodable`.
            metadata_only: the server leaves out all but the metadata.
            together: at most so many items are decoded and yielded at once; 0 for whole pages.

        Raises:
            Expired: the list changed too much between two pages.
        """
        call = Call.on("list", resource, namespace)
        path = resource.path(namespace)
        query = _selectors(label_selector, field_selector)
        if page_size:
            query["limit"] = str(page_size)
        first = dict(query)
        if resource_version:
            first |= {"resourceVersion": resource_version, "resourceVersionMatch": "NotOlderThan"}
        token = ""
        while True:
            asked = query | {"continue": token} if token else first
            request = Request("GET", path, asked, timeout=_LIST_TIMEOUT)
            if metadata_only:
                request = replace(request, accept=_METADATA_ONLY)
            body = await self.transport.request(request, call)
            if together:
                for page in decode_parts(body, type, together, call, skipped):
                    yield page
            else:
                page = decode_page(body, type, call, skipped)
                yield page
            token = page.continue_token
            if not token:
                return

    async def watch(
        self,
        resource: Resource,
        type: Shape[T],
        *,
        resource_version: str,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int = 300,
        skipped: Skipped | None = None,
        opened: Callable[[], None] | None = None,
    ) -> AsyncGenerator[WatchEvent[T]]:
        """Yield what happens after `resource_version`, with bookmarks, until the server ends it.

        `opened` is called once the server has accepted the watch.

        Raises:
            Expired: the server no longer has that version: list again.
            ApiError: any other refusal, at the start or in the middle.
        """
        call = Call.on("watch", resource, namespace)
        query = _selectors(label_selector, field_selector) | {
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout_seconds),
        }
        request = Request(
            "GET", resource.path(namespace), query, timeout=(timeout_seconds + 15) * SECOND
        )
        async with aclosing(self.transport.stream(request, call, opened=opened)) as lines:
            async for line in lines:
                try:
                    event = decode_event(line, type, call)
                except Undecodable as error:
                    if skipped is None:
                        raise
                    skipped(error)
                else:
                    yield event


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    given = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: selector for name, selector in given.items() if selector}
