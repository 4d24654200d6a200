"""Answers in the form that the client asked for: objects, Tables or metadata alone.

Objects that are kept in the version asked for are answered with their stored bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from aiohttp import web

from reprieve.local.server import conversion
from reprieve.local.server.kinds import Kind
from reprieve.local.server.negotiation import Form, as_partial
from reprieve.local.server.reading import ListResult
from reprieve.local.server.tables import table
from reprieve.local.store import Stored
from reprieve.units.clock import Clock

__all__ = ["Answers", "encoded"]

JSON: Final = "application/json"


def _json(body: bytes, code: int = 200) -> web.Response:
    return web.Response(status=code, body=body + b"\n", content_type=JSON)


def encoded(kind: Kind, stored: Stored) -> bytes:
    """Return a kept object as JSON in version `kind`."""
    if conversion.is_kept_as(kind, stored.body):
        return stored.body
    return orjson.dumps(conversion.from_storage(kind, stored.decode()))


@dataclass(frozen=True, slots=True)
class Answers:
    """How one request is answered. `include_object`: what the rows of a Table carry."""

    kind: Kind
    form: Form
    include_object: str
    clock: Clock

    def plain(self, obj: dict[str, Any], code: int = 200) -> web.Response:
        """Answer with exactly this object, whatever form was asked for."""
        return _json(orjson.dumps(obj), code)

    def object(
        self, obj: dict[str, Any], code: int = 200, warnings: Sequence[str] = ()
    ) -> web.Response:
        response = _json(self._one(obj, obj["metadata"]), code)
        for warning in warnings:
            text = warning.replace("\\", "\\\\").replace('"', '\\"')
            response.headers.add("Warning", f'299 - "{text}"')
        return response

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
            items = [orjson.dumps(as_partial(obj)) for obj in result.objects]
        else:
            head = {"kind": self.kind.list_kind, "apiVersion": self.kind.api_version}
            items = self._items(result.stored)
        start = orjson.dumps({**head, "metadata": metadata})[:-1] + b',"items":['
        if not items:
            return _json(start + b"]}")
        # Joined once: a list may have hundreds of megabytes.
        items[0] = start + items[0]
        items[-1] += b"]}\n"
        return web.Response(body=b",".join(items), content_type=JSON)

    def _items(self, objects: Sequence[Stored]) -> list[bytes]:
        """Return objects as they stand in a list: built-in ones without apiVersion and kind."""
        bodies = [encoded(self.kind, stored) for stored in objects]
        if self.kind.custom is not None:
            return bodies
        head = orjson.dumps({"apiVersion": self.kind.api_version, "kind": self.kind.kind})
        after = len(head)
        return [b"{" + body[after:] for body in bodies]

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
