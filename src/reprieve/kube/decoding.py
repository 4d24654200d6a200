"""From bytes to wire structs: objects, pages of lists, lines of watches.

Decoders are built once per type; what is no type but a `Reading` reads the bytes of each object by
itself. A line of a watch is read in one pass, unless it is none that states what became of an
object of a wire struct. A page is decoded in one pass; only if that fails are its items decoded one
by one, so that one object of unexpected shape, or nested too deeply, is skipped and reported and
the others are not lost. The deletion of such an object is reported all the same. Where objects are
freed one after the other, a page is decoded in parts: five hundred pods at once are read from
memory that has to be fetched, few from what the processor has at hand.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

import msgspec

from reprieve.kube.errors import Call, Undecodable, error_from
from reprieve.kube.objects import PartialObject
from reprieve.kube.outline import part, parts

__all__ = [
    "Page",
    "Reading",
    "Shape",
    "Skipped",
    "WatchEvent",
    "decode_event",
    "decode_object",
    "decode_page",
    "decode_parts",
]

T = TypeVar("T")
# The decoder recurses, and an object may be nested more deeply than Python allows.
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
Skipped = Callable[[Undecodable], None]


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """A way to read an object other than into one type.

    `read` makes of its bytes what has the metadata of a wire struct, or fails as a decoder does.
    """

    read: Callable[[bytes | msgspec.Raw], T]


Shape: TypeAlias = type[T] | Reading[T]


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A part of a list.

    Attributes:
        items: in the server's order.
        resource_version: of the whole list.
        continue_token: requests the next page; empty on the last one.
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
    """A line that states what became of an object: by far the most of them."""

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


def decode_object(body: bytes | msgspec.Raw, kind: Shape[T], call: Call | None = None) -> T:
    """Return the object in `body`.

    Raises:
        Undecodable: not JSON, or other types than `kind` promises.
    """
    try:
        if isinstance(kind, Reading):
            return kind.read(body)
        decoded: T = _decoder(cast("Any", kind)).decode(body)
    except _UNREADABLE as cause:
        raise _undecodable(cause, call) from cause
    return decoded


def _undecodable(cause: Exception, call: Call | None) -> Undecodable:
    return Undecodable(f"the answer cannot be read: {cause}", call=call)


def decode_page(
    body: bytes, kind: Shape[T], call: Call | None = None, skipped: Skipped | None = None
) -> Page[T]:
    """Return one page of a list.

    Args:
        body: the answer.
        kind: type of the items.
        call: for errors.
        skipped: notified of each item that cannot be decoded; None raises instead.

    Raises:
        Undecodable: not a list; or a bad item where `skipped` is None.
    """
    try:
        if isinstance(kind, Reading):
            page, raws = _in_parts(body, call)
            items = _one_by_one(raws, kind, call, skipped)
        else:
            page = _list_decoder(cast("Any", kind)).decode(body)
            items = page.items or []
    except (msgspec.ValidationError, UnicodeDecodeError, RecursionError) as cause:
        if skipped is None:
            raise Undecodable(f"the list cannot be read: {cause}", call=call) from cause
        page, raws = _in_parts(body, call)
        items = _one_by_one(raws, kind, call, skipped)
    except msgspec.DecodeError as cause:
        raise Undecodable(f"the list cannot be read: {cause}", call=call) from cause
    return Page(items, page.metadata.resource_version, page.metadata.continue_token)


def decode_parts(
    body: bytes,
    kind: Shape[T],
    together: int,
    call: Call | None = None,
    skipped: Skipped | None = None,
) -> Iterator[Page[T]]:
    """Yield one page of a list as pages of at most so many items, each decoded when its turn comes.

    An empty page is one without items. Arguments and errors are those of `decode_page`.
    """
    page, raws = _in_parts(body, call)
    version, token = page.metadata.resource_version, page.metadata.continue_token
    for start in range(0, max(len(raws), 1), together):
        items = _one_by_one(raws[start : start + together], kind, call, skipped)
        yield Page(items, version, token)


def _one_by_one(
    raws: Iterable[bytes | msgspec.Raw], kind: Shape[T], call: Call | None, skipped: Skipped | None
) -> list[T]:
    read = kind.read if isinstance(kind, Reading) else _decoder(cast("Any", kind)).decode
    items = []
    for raw in raws:
        try:
            items.append(read(raw))
        except _UNREADABLE as cause:
            error = _undecodable(cause, call)
            if skipped is None:
                raise error from cause
            error.__cause__ = cause
            skipped(_named(error, raw, call))
    return items


def _in_parts(body: bytes, call: Call | None) -> tuple[_List[Any], Sequence[bytes | msgspec.Raw]]:
    try:
        page = _list_decoder(msgspec.Raw).decode(body)
        return page, page.items or []
    except RecursionError:
        known = {each.key: each.text for each in parts(body)}
        metadata = decode_object(known.get(b"metadata", b"{}"), _ListMetadata, call)
        return _List(metadata), [each.text for each in parts(known.get(b"items", b""))]
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise Undecodable(f"the list cannot be read: {cause}", call=call) from cause


def decode_event(line: bytes, kind: Shape[T], call: Call | None = None) -> WatchEvent[T]:
    """Return one event of a watch.

    Raises:
        ApiError: the line is an ERROR event; the class states which, such as `Expired`.
        Undecodable: the line or its object is not what it should be.
    """
    if isinstance(kind, Reading) or (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        # Another type of event, and what is to be reported with its name, are read again.
        with contextlib.suppress(*_UNREADABLE):
            return _change(line, kind)
    try:
        event = decode_object(line, _Line, call)
    except Undecodable as error:
        if not isinstance(error.__cause__, RecursionError):
            raise
        return _deep(line, error, call)
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


def _change(line: bytes, kind: Shape[Any]) -> WatchEvent[Any]:
    if isinstance(kind, Reading):
        change = _change_decoder(msgspec.Raw).decode(line)
        found = kind.read(change.object)
    else:
        change = _change_decoder(cast("Any", kind)).decode(line)
        found = change.object
    return WatchEvent(change.type, found, found.metadata.resource_version)


def _deep(line: bytes, error: Undecodable, call: Call | None) -> WatchEvent[Any]:
    """Return the event of an object that is nested too deeply, if it is a deletion."""
    raw = part(line, b"object")
    if part(line, b"type") != b'"DELETED"':
        raise _named(error, raw, call) from error
    known = {each.key: each.text for each in parts(part(raw, b"metadata"))}
    names = (b"name", b"namespace", b"uid", b"resourceVersion")
    metadata = b",".join(b'"%s":%s' % (name, known[name]) for name in names if name in known)
    gone = decode_object(b'{"metadata":{%s}}' % metadata, PartialObject, call)
    return WatchEvent("DELETED", gone, gone.metadata.resource_version)


def _named(error: Undecodable, raw: bytes | msgspec.Raw, call: Call | None) -> Undecodable:
    """Return the error with the name of the object that cannot be decoded."""
    metadata = part(bytes(raw), b"metadata")
    try:
        namespace, name = (
            decode_object(part(metadata, key) or b'""', Any, call)
            for key in (b"namespace", b"name")
        )
    except Undecodable:
        return error
    where = f"{namespace}/{name}" if namespace else name
    return Undecodable(f"{where} is skipped: {error.__cause__}", call=call)
