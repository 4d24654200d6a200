"""From bytes to wire structs: objects, pages of lists, lines of watches.

Decoders are built once per type. A line of a watch is read in one go, unless it is none that says
what became of an object of a wire struct. A page is decoded in one go; only if that fails are its
items decoded one by one, so that one object of unexpected shape is skipped and reported and the
others are not lost.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec

from reprieve.kube.errors import Call, Undecodable, error_from

__all__ = ["Page", "Skipped", "WatchEvent", "decode_event", "decode_object", "decode_page"]

T = TypeVar("T")
Skipped = Callable[[Undecodable], None]


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A part of a list.

    Attributes:
        items: in the server's order.
        resource_version: of the whole list.
        continue_token: asks for the next page; empty on the last one.
    """

    items: list[T]
    resource_version: str
    continue_token: str = ""


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """One line of a watch.

    Attributes:
        type: `ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`.
        object: None for bookmarks.
        resource_version: of the object, or of the bookmark.
        initial_events_end: on the bookmark that ends the initial events.
    """

    type: str
    object: T | None
    resource_version: str
    initial_events_end: bool = False


class _ListMetadata(msgspec.Struct, gc=False):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    continue_token: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct, Generic[T], gc=False):
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)
    items: list[T] | None = None


class _Line(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _Change(msgspec.Struct, Generic[T], gc=False):
    """A line that says what became of an object: by far the most of them."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: T


class _Annotated(msgspec.Struct, gc=False):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    name: str = ""
    annotations: dict[str, str] | None = None


class _Outline(msgspec.Struct, gc=False):
    metadata: _Annotated


@functools.cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


@functools.cache
def _list_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_List[kind])


@functools.cache
def _change_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_Change[kind])


def decode_object(body: bytes, kind: type[T], call: Call | None = None) -> T:
    """Return the object in `body`.

    Raises:
        Undecodable: not JSON, or other types than `kind` promises.
    """
    try:
        decoded: T = _decoder(cast("Any", kind)).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise Undecodable(f"the answer cannot be read: {cause}", call=call) from cause
    return decoded


def decode_page(
    body: bytes, kind: type[T], call: Call | None = None, skipped: Skipped | None = None
) -> Page[T]:
    """Return one page of a list.

    Args:
        body: the answer.
        kind: type of the items.
        call: for errors.
        skipped: told of each item that cannot be decoded; None raises instead.

    Raises:
        Undecodable: not a list; or a bad item and nobody to tell.
    """
    try:
        page = _list_decoder(cast("Any", kind)).decode(body)
        items: list[T] = page.items or []
    except (msgspec.ValidationError, UnicodeDecodeError) as cause:
        if skipped is None:
            raise Undecodable(f"the list cannot be read: {cause}", call=call) from cause
        page = decode_object(body, _List[msgspec.Raw], call)
        items = []
        for raw in page.items or []:
            try:
                items.append(decode_object(raw, kind, call))
            except Undecodable as error:
                skipped(_named(error, raw, call))
    except msgspec.DecodeError as cause:
        raise Undecodable(f"the list cannot be read: {cause}", call=call) from cause
    return Page(items, page.metadata.resource_version, page.metadata.continue_token)


def decode_event(line: bytes, kind: type[T], call: Call | None = None) -> WatchEvent[T]:
    """Return one event of a watch.

    Raises:
        ApiError: the line is an ERROR event; the class tells which, such as `Expired`.
        Undecodable: the line or its object is not what it should be.
    """
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        # Another type of event, and what is to be told with its name, are read again.
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            change = _change_decoder(cast("Any", kind)).decode(line)
            return WatchEvent(change.type, change.object, change.object.metadata.resource_version)
    event = decode_object(line, _Line, call)
    if event.type == "ERROR":
        status: Any = decode_object(event.object, dict, call)
        code = status.get("code")
        raise error_from(code if isinstance(code, int) else 500, status, call)
    outline = decode_object(event.object, _Outline, call)
    version = outline.metadata.resource_version
    if event.type == "BOOKMARK":
        annotations = outline.metadata.annotations or {}
        end = annotations.get("k8s.io/initial-events-end") == "true"
        return WatchEvent(event.type, None, version, end)
    try:
        decoded = decode_object(event.object, kind, call)
    except Undecodable as error:
        raise _named(error, event.object, call) from error
    return WatchEvent(event.type, decoded, version)


class _Named(msgspec.Struct, gc=False):
    namespace: Any = ""
    name: Any = ""


class _Header(msgspec.Struct, gc=False):
    metadata: _Named = msgspec.field(default_factory=_Named)


def _named(error: Undecodable, raw: msgspec.Raw, call: Call | None) -> Undecodable:
    """Return the error with the name of the object that cannot be decoded."""
    try:
        metadata = decode_object(raw, _Header).metadata
    except Undecodable:
        return error
    where = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
    return Undecodable(f"{where} is skipped: {error.__cause__}", call=call)
