"""In-process ends of the wire: a scripted one, and a small collection of objects with versions."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from random import Random
from typing import Any

from kubeworld.units.clock import VirtualClock
from kubeworld.writes.merging import merge_patch
from reprieve.kube.client import Client
from reprieve.kube.resource import Resource
from reprieve.kube.transport import Request, Transport

END = object()


class FakeAnswer:
    """An answer whose body is bytes, or lines that a queue delivers until `END`."""

    def __init__(
        self,
        status: int = 200,
        body: Any = b"",
        headers: Mapping[str, str] | None = None,
        lines: asyncio.Queue[Any] | None = None,
    ) -> None:
        self.status = status
        self.headers: Mapping[str, str] = headers or {}
        self.closed = False
        self._body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._lines = lines

    async def read(self) -> bytes:
        return self._body

    async def lines(self) -> AsyncGenerator[bytes]:
        if self._lines is None:
            for line in self._body.splitlines():
                yield line
            return
        while True:
            line = await self._lines.get()
            if line is END:
                return
            if isinstance(line, BaseException):
                raise line
            yield line if isinstance(line, bytes) else json.dumps(line).encode()

    def close(self) -> None:
        self.closed = True


Handler = Callable[[Request], Awaitable[FakeAnswer] | FakeAnswer]


class FakeWire:
    """Hands each request to `handler` and keeps them all."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.requests: list[Request] = []
        self.rejections: list[bool] = []

    async def send(self, request: Request, stream: bool, rejected: bool) -> FakeAnswer:
        self.requests.append(request)
        self.rejections.append(rejected)
        answer = self.handler(request)
        return answer if isinstance(answer, FakeAnswer) else await answer

    async def close(self) -> None:
        pass


def scripted(*answers: FakeAnswer | Exception) -> FakeWire:
    """Return a wire that gives these answers one after the other."""
    left = list(answers)

    def answer(request: Request) -> FakeAnswer:
        result = left.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    return FakeWire(answer)


def client_over(wire: FakeWire, clock: VirtualClock | None = None, **rest: Any) -> Client:
    return Client(Transport(wire, clock or VirtualClock(), jitter=Random(7)), **rest)


def status(code: int, reason: str = "", message: str = "", **rest: Any) -> dict[str, Any]:
    return {"kind": "Status", "code": code, "reason": reason, "message": message, **rest}


def refusal(code: int, reason: str = "", message: str = "", **rest: Any) -> FakeAnswer:
    headers = rest.pop("headers", None)
    return FakeAnswer(code, status(code, reason, message, **rest), headers)


def pod(name: str, *, uid: str = "", version: int = 1, namespace: str = "work", **spec: Any) -> Any:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
        },
        "spec": spec,
    }


def list_body(
    items: Iterable[Any], version: int | str, token: str = "", **metadata: Any
) -> dict[str, Any]:
    return {
        "metadata": {"resourceVersion": str(version), "continue": token, **metadata},
        "items": list(items),
    }


class Collection:
    """One kind on a server: lists, watches that replay history, get, create, update, patch.

    `forget()` makes every version so far too old for a watch; `end_watches()` closes all of them.
    """

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.version = 10
        self.lists: list[Mapping[str, str]] = []
        self.watches: list[Mapping[str, str]] = []
        self.refuse: Callable[[Request], FakeAnswer | None] = lambda request: None
        self._history: list[tuple[int, dict[str, Any]]] = []
        self._oldest = 0
        self._open: list[asyncio.Queue[Any]] = []
        self._uids = itertools.count(1)

    def put(self, obj: dict[str, Any], kind: str = "") -> dict[str, Any]:
        """Store the object under the next version and tell the watches."""
        self.version += 1
        metadata = {"namespace": "", **obj["metadata"], "resourceVersion": str(self.version)}
        metadata.setdefault("uid", f"uid-{next(self._uids)}")
        stored = {**obj, "metadata": metadata}
        key = (metadata["namespace"], metadata["name"])
        event = kind or ("MODIFIED" if key in self.objects else "ADDED")
        self.objects[key] = stored
        self._tell({"type": event, "object": stored})
        return stored

    def remove(self, namespace: str, name: str) -> None:
        gone = self.objects.pop((namespace, name))
        self.version += 1
        gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
        self._tell({"type": "DELETED", "object": gone})

    def bookmark(self) -> None:
        obj = {"metadata": {"resourceVersion": str(self.version)}}
        for queue in self._open:
            queue.put_nowait({"type": "BOOKMARK", "object": obj})

    def forget(self) -> None:
        self._oldest = self.version + 1
        self.version += 1
        for queue in self._open:
            queue.put_nowait({"type": "ERROR", "object": status(410, "Expired", "too old")})

    def restart_history(self) -> None:
        """Forget what happened, and that anything did, as a restored backup does."""
        self._history.clear()
        self._oldest = 0

    def end_watches(self, cause: Exception | None = None) -> None:
        for queue in self._open:
            queue.put_nowait(cause or END)
        self._open = []

    def say(self, line: Any) -> None:
        """Send a raw line to every watch."""
        for queue in self._open:
            queue.put_nowait(line)

    def _tell(self, event: dict[str, Any]) -> None:
        self._history.append((self.version, event))
        for queue in self._open:
            queue.put_nowait(event)

    def handle(self, request: Request) -> FakeAnswer:
        refused = self.refuse(request)
        if refused is not None:
            return refused
        if request.query.get("watch"):
            return self._watch(request)
        name = request.path.rsplit(f"/{self.resource.plural}", 1)[1].strip("/").split("/")[0]
        if not name and request.method == "GET":
            return self._list(request)
        return self._object(request, name)

    def _list(self, request: Request) -> FakeAnswer:
        self.lists.append(request.query)
        return FakeAnswer(body=list_body(self.objects.values(), self.version))

    def _watch(self, request: Request) -> FakeAnswer:
        self.watches.append(request.query)
        since = int(request.query["resourceVersion"])
        queue: asyncio.Queue[Any] = asyncio.Queue()
        if since < self._oldest:
            queue.put_nowait({"type": "ERROR", "object": status(410, "Expired", "too old")})
            queue.put_nowait(END)
            return FakeAnswer(lines=queue)
        for version, event in self._history:
            if version > since:
                queue.put_nowait(event)
        self._open.append(queue)
        return FakeAnswer(lines=queue)

    def _object(self, request: Request, name: str) -> FakeAnswer:
        parts = request.path.split("/")
        namespace = parts[parts.index("namespaces") + 1] if "namespaces" in parts else ""
        held = self.objects.get((namespace, name))
        sent: dict[str, Any] = json.loads(request.body) if request.body else {}
        if request.method == "POST":
            key = (namespace, sent["metadata"]["name"])
            if key in self.objects:
                return refusal(409, "AlreadyExists", f"{key[1]} already exists")
            return FakeAnswer(201, self.put(sent))
        if held is None:
            return refusal(404, "NotFound", f"{name} not found")
        match request.method:
            case "GET":
                return FakeAnswer(body=held)
            case "PUT":
                version = sent["metadata"].get("resourceVersion")
                if version and version != held["metadata"]["resourceVersion"]:
                    return refusal(409, "Conflict", "the object has been modified")
                return FakeAnswer(body=self.put(sent))
            case "PATCH":
                return FakeAnswer(body=self.put(merge_patch(held, sent)))
        raise AssertionError(f"no answer for {request.method}")
