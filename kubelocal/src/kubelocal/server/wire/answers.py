"""Answers in the form that the client requested: objects, Tables or metadata alone.

Objects that are kept in the version requested are answered with their stored bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from kubelocal.server.printing.tables import table
from kubelocal.server.reading import ListResult
from kubelocal.server.types import conversion
from kubelocal.server.types.kinds import Kind
from kubelocal.server.wire.negotiation import Form, as_partial
from kubelocal.store import Stored
from kubeworld.units.clock import Clock

__all__ = ["Answers", "encoded", "warn"]

JSON: Final = "application/json"
# Some hundred kilobytes of pods: more makes the kernel find new memory for each piece.
ITEMS_PER_PIECE: Final = 32
_END: Final = b"]}\n"


def _json(body: bytes, code: int = 200) -> web.Response:
    return web.Response(status=code, body=body + b"\n", content_type=JSON)


def warn(response: web.StreamResponse, warnings: Iterable[str]) -> None:
    """Place each of `warnings` once into the header of an answer that has not been sent."""
    for warning in dict.fromkeys(warnings):
        text = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{text}"')


def encoded(kind: Kind, stored: Stored) -> bytes:
    """Return a kept object as JSON in version `kind`."""
    if conversion.is_kept_as(kind, stored.body):
        return stored.body
    return orjson.dumps(conversion.from_storage(kind, stored.decode()))


class _Joined(Payload):
    """The items of a list after `start`, sent piece by piece as the client reads them.

    `cut`: what each item begins with and has lost.
    """

    def __init__(self, start: bytes, items: Sequence[bytes | memoryview], cut: bytes) -> None:
        super().__init__(items, content_type=JSON)
        self._start, self._items, self._cut = start, items, cut
        self._size = len(start) + len(_END) + sum(map(len, items))
        if items:
            self._size += len(items) * (len(cut) + 1) - 1

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._pieces()).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        for piece in self._pieces():
            await writer.write(piece)

    def _pieces(self) -> Iterator[bytes]:
        between, lead = b"," + self._cut, self._start + self._cut
        for first in range(0, len(self._items), ITEMS_PER_PIECE):
            joined = between.join(self._items[first : first + ITEMS_PER_PIECE])
            yield (between if first else lead) + joined
        yield _END if self._items else self._start + _END


@dataclass(frozen=True, slots=True)
class Answers:
    """How one request is answered. `include_object`: what the rows of a Table carry."""

    kind: Kind
    form: Form
    include_object: str
    clock: Clock

    def plain(self, obj: dict[str, Any], code: int = 200) -> web.Response:
        """Answer with exactly this object, whatever form was requested."""
        return _json(orjson.dumps(obj), code)

    def object(self, obj: dict[str, Any], code: int = 200) -> web.Response:
        return _json(self._one(obj, obj["metadata"]), code)

    def stored(self, stored: Stored) -> web.Response:
        if self.form is Form.OBJECT:
            return _json(encoded(self.kind, stored))
        obj = conversion.from_storage(self.kind, stored.decode())
        return _json(self._one(obj, obj["metadata"]))

    def listed(self, result: ListResult) -> web.Response:
        metadata: dict[str, Any] = {"resourceVersion": result.resource_version}
        if result.continue_token:
            metadata["continue"] = result.continue_token
        if result.remaining is not None:
            metadata["remainingItemCount"] = result.remaining
        if self.form is Form.TABLE:
            rows = table(
                self.kind,
                result.objects,
                self.clock.wall(),
                self.include_object,
                result.resource_version,
                result.continue_token,
            )
            rows["metadata"] = {**rows["metadata"], **metadata}
            return _json(orjson.dumps(rows))
        if self.form is Form.PARTIAL:
            head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
            items: Sequence[bytes | memoryview] = [
                orjson.dumps(as_partial(obj)) for obj in result.objects
            ]
            cut = b""
        else:
            head = {"kind": self.kind.list_kind, "apiVersion": self.kind.api_version}
            items = self._items(result.stored)
            cut = b"" if self.kind.custom is not None else b"{"
        start = orjson.dumps({**head, "metadata": metadata})[:-1] + b',"items":['
        return web.Response(body=_Joined(start, items, cut))

    def _items(self, objects: Sequence[Stored]) -> Sequence[bytes | memoryview]:
        """Return objects as they stand in a list: built-in ones without apiVersion and kind."""
        kept = conversion.kept_head(self.kind)
        bodies = [
            one.body if one.body.startswith(kept) else encoded(self.kind, one) for one in objects
        ]
        if self.kind.custom is not None:
            return bodies
        after = len(orjson.dumps({"apiVersion": self.kind.api_version, "kind": self.kind.kind}))
        # The bytes are shared with the store, and copied when they are sent; `{` is cut off.
        return [memoryview(body)[after:] for body in bodies]

    def _one(self, obj: dict[str, Any], metadata: dict[str, Any]) -> bytes:
        if self.form is Form.TABLE and obj.get("kind") in (self.kind.kind, "Scale"):
            return orjson.dumps(
                table(
                    self.kind,
                    [obj],
                    self.clock.wall(),
                    self.include_object,
                    metadata.get("resourceVersion", ""),
                )
            )
        return orjson.dumps(as_partial(obj) if self.form is Form.PARTIAL else obj)
