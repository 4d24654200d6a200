"""The two ways to an API server: into the overlay, and, only to read, to the real one.

`OverlayWire` is what the planes of a what-if are given; none of their requests leaves the process.
`ReadingWire` is the only way to the real server: it carries GET, and POST where it changes nothing
(a dry run, or a question about one's own rights), and refuses everything else before it is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MILLISECOND
from kubeworld.units.instants import Nanos
from kubeworld.writes.refusals import Refused
from reprieve.kube.bodies import PatchType
from reprieve.kube.transport import Answer, Request, Wire
from reprieve.whatif.copy.list_pages import ListPages
from reprieve.whatif.copy.lists import discovered
from reprieve.whatif.copy.overlay import Overlay
from reprieve.whatif.snapshots.snapshot import KindKey

__all__ = ["Body", "OverlayWire", "ReadingWire", "WouldWrite"]

_NEW: Final = b'{"type":"ADDED"'
_APART: Final = MILLISECOND
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubject"


class WouldWrite(Exception):
    """A request that could change the real cluster; it was not sent."""


class ReadingWire:
    """A wire that carries only what changes nothing."""

    def __init__(self, inner: Wire) -> None:
        self._inner = inner

    async def send(self, request: Request, stream: bool, rejected: bool) -> Answer:
        """Return the answer.

        Raises:
            WouldWrite: it is no read, no dry run and no question.
            Unreachable: no answer.
        """
        harmless = request.method == "GET" or (
            request.method == "POST"
            and (request.query.get("dryRun") == "All" or request.path.startswith(_REVIEWS))
        )
        if not harmless:
            raise WouldWrite(f"{request.method} {request.path}")
        return await self._inner.send(request, stream, rejected)

    async def close(self) -> None:
        await self._inner.close()


@dataclass(slots=True)
class Body:
    """An answer that is there."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    async def read(self) -> bytes:
        return self.body

    async def lines(self) -> AsyncGenerator[bytes]:
        yield self.body

    def close(self) -> None:
        pass


class _Lines(Body):
    """The lines of a watch, as they come; it never ends by itself.

    New objects come one after the other, as controllers make them: what is made first is decided
    about first, whatever its uid. The changes of an object once it is there come before the next
    new one, as far as it was written before.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(b"")
        self.queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._clock = clock
        self._next = clock.monotonic()  # not before then does a new object come

    async def lines(self) -> AsyncGenerator[bytes]:
        while True:
            line = await self.queue.get()
            if line.startswith(_NEW):
                await self._clock.sleep(max(0, self._next - self._clock.monotonic()))
                self._next = Nanos(self._clock.monotonic() + _APART)
            yield line


@dataclass(frozen=True, slots=True)
class Target:
    """What a path is about."""

    kind: KindKey
    version: str
    namespace: str = ""
    name: str = ""
    part: str = ""


def target_of(path: str) -> Target | None:
    """Split a path; None where it is about no object."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    plural, name, part = (*rest, "", "")[:3]
    return Target((group, plural), version, namespace, name, part)


class OverlayWire:
    """Carries the requests of a plane into an overlay."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._lists = ListPages(overlay)
        self._served: set[tuple[str, str, str]] | None = None

    async def send(self, request: Request, stream: bool, rejected: bool) -> Answer:
        """Return the answer; a turn of the loop passes, as with a real server."""
        await asyncio.sleep(0)
        try:
            return self._answer(request)
        except Refused as refusal:
            status = {
                "kind": "Status",
                "code": refusal.code,
                "reason": refusal.reason,
                "message": refusal.message,
            }
            return Body(msgspec.json.encode(status), refusal.code)

    async def close(self) -> None:
        pass

    def _answer(self, request: Request) -> Answer:
        target = target_of(request.path)
        if target is None:
            return self._document(request.path)
        if request.method == "GET":
            return self._read(request, target)
        if request.path.startswith(_REVIEWS):
            return _json({"status": {"allowed": True}}, 201)
        body = msgspec.json.decode(request.body or b"{}")
        return self._write(request, target, body)

    def _document(self, path: str) -> Answer:
        found = self._overlay.snapshot.documents.get(path)
        if found is None:
            if path not in self._overlay.snapshot.documents:
                self._overlay.asked.add(path)
            raise Refused(404, "NotFound", f"{path} is not served")
        return Body(found)

    def _read(self, request: Request, target: Target) -> Answer:
        overlay = self._overlay
        resource = overlay.table(*target.kind)
        if not target.name:
            if resource is None or resource.version != target.version:
                # By name the planes list what their own settings are in, which are read apart.
                named = _name_of(request.query.get("fieldSelector", ""))
                if resource is None and not named and self._is_served(target):
                    overlay.unread.add(".".join(filter(None, reversed(target.kind))))
                raise Refused(404, "NotFound", "the server could not find the requested resource")
            if request.query.get("watch"):
                lines = _Lines(overlay.clock)
                since = int(request.query.get("resourceVersion") or 0)
                overlay.watch(target.kind, since, lines.queue.put_nowait)
                return lines
            limit = int(request.query.get("limit") or 0)
            if token := request.query.get("continue"):
                return Body(self._lists.next(token, limit))
            name = _name_of(request.query.get("fieldSelector", ""))
            return Body(self._lists.first(target.kind, target.namespace, name, limit))
        if resource is None:
            return self._single(request.path)
        found = overlay.get(resource, target.namespace, target.name)
        if found is None:
            raise Refused(404, "NotFound", f'{resource.qualified} "{target.name}" not found')
        if target.part == "scale":
            return _json({"metadata": found["metadata"], "spec": _replicas(found)})
        return _json(found)

    def _is_served(self, target: Target) -> bool:
        """Return whether the cluster of the snapshot serves a kind."""
        if self._served is None:
            found = discovered(self._overlay.snapshot.documents)
            self._served = {(each.group, each.version, each.plural) for each in found}
        group, plural = target.kind
        return (group, target.version, plural) in self._served

    def _single(self, path: str) -> Answer:
        """Answer for an object of a kind that was not listed."""
        known = self._overlay.snapshot.single
        if path not in known:
            self._overlay.asked.add(path)
        found = known.get(path)
        if found is None:
            raise Refused(404, "NotFound", f"{path} was not read")
        return Body(found)

    def _write(self, request: Request, target: Target, body: Any) -> Answer:
        overlay, key = self._overlay, (target.namespace, target.name)
        match request.method, target.part:
            case "POST", "":
                resource = overlay.table(*target.kind)
                if resource is None:
                    raise Refused(404, "NotFound", f"{request.path} is not served")
                return _json(overlay.create(resource, body), 201)
            case "POST", "binding":
                return _json(overlay.bind(key, body), 201)
            case "POST", "eviction":
                return _json(overlay.delete(target.kind, key, body.get("deleteOptions")), 201)
            case "PUT", part:
                return _json(overlay.replace(target.kind, key, body, part))
            case "PATCH", part:
                if request.content_type == PatchType.JSON.value:
                    raise Refused(415, "UnsupportedMediaType", "no JSON patches")
                strategic = request.content_type != PatchType.MERGE.value
                return _json(overlay.patch(target.kind, key, body, part, strategic=strategic))
            case "DELETE", "":
                return _json(overlay.delete(target.kind, key, body))
        raise Refused(405, "MethodNotAllowed", f"{request.method} {request.path}")


def _json(obj: Any, status: int = 200) -> Body:
    return Body(msgspec.json.encode(obj), status)


def _replicas(obj: Mapping[str, Any]) -> dict[str, Any]:
    return {"replicas": (obj.get("spec") or {}).get("replicas", 0)}


def _name_of(selector: str) -> str:
    if not selector:
        return ""
    field_name, _, value = selector.partition("=")
    if field_name != "metadata.name":
        raise Refused(400, "BadRequest", f"the overlay cannot select by {selector}")
    return value
