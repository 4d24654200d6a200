"""`GET /api/object/WHAT/KIND/NAMESPACE/NAME`: YAML, events or logs, read with the viewer's rights.

The mirror keeps figures, and no objects. What a user requests is read for them alone and kept
nowhere: with the kubeconfig that this server runs with on their own machine, in the cluster with
the token that they logged in with. The API server judges each read as theirs. Every answer is
bounded: 256 KiB of text, 200 lines of a log, 100 events.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import msgspec
import yaml

from kubeworld.units.clock import Clock
from kubeworld.units.untrusted import Form, cut
from reprieve.answers.kinds import asked_of
from reprieve.kube.credentials import Connection, Headers
from reprieve.kube.errors import ApiError, Forbidden, Unauthorized
from reprieve.kube.errors import NotFound as Missing
from reprieve.kube.resource import PODS
from reprieve.kube.transport import HttpWire, Request, Transport
from reprieve.units.counts import counted
from reprieve.units.errors import ReprieveError, UsageError
from reprieve.web.server.door import Visit
from reprieve.web.tables import NotFound
from reprieve.whatif.copy.wire import ReadingWire

__all__ = ["Objects", "Reads", "as_who_asks", "with_own_rights"]

#: Gives what reads with the rights of the user.
Reads = Callable[[Visit], AbstractAsyncContextManager[Transport]]

WHATS: Final = ("yaml", "events", "logs")
_NAME: Final = Form(r"[a-z0-9](?:[-a-z0-9.]*+)", 253)
_AT_ONCE: Final = 4
_WAITING: Final = 32
_LONGEST: Final = 256 * 1024
_LINES: Final = "200"
_MOST_EVENTS: Final = 100
_CALMED: Final = ("managedFields",)


class Objects:
    """Reads objects, their events and their logs.

    Args:
        reads: for each question, what reads with the rights of the user.
    """

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    async def ask(self, what: str, kind: str, namespace: str, name: str, visit: Visit) -> bytes:
        """Return `{"text": ...}` as JSON.

        Raises:
            NotFound: there is no such object, or the viewer may not know that there is.
            UsageError: there is no such kind, or it has no logs.
            ReprieveError: it cannot be read; the message states why.
        """
        if what not in WHATS or not all(_NAME.fullmatch(each) for each in (kind, namespace, name)):
            raise UsageError("accepted: /api/object/yaml|events|logs/KIND/NAMESPACE/NAME")
        missing = NotFound(f"no {kind} {namespace}/{name}")
        if not visit.viewer.sees(namespace):
            raise missing
        resource = asked_of(f"{kind}/{name}").resources[0]
        if what == "logs" and resource != PODS:
            raise UsageError("logs are of pods")
        if self._waiting >= _WAITING:
            raise ReprieveError("many objects are being read; try again in a minute")
        self._waiting += 1
        try:
            async with self._turns, self._reads(visit) as transport:
                match what:
                    case "yaml":
                        text = await _yaml(transport, resource.path(namespace, name))
                    case "events":
                        text = await _events(transport, resource.kind, namespace, name)
                    case _:
                        text = await _logs(transport, namespace, name)
        except Missing:
            raise missing from None
        except Forbidden as error:
            raise ReprieveError(f"you may not read that: {error.message}") from None
        except Unauthorized:
            raise ReprieveError(
                "it is read with your own token, which the API server does not accept: it was made "
                "for this page alone, or has ended. Log out, and log in with one for both"
            ) from None
        except ApiError as error:
            raise ReprieveError(f"the API server does not give it: {error.message}") from None
        finally:
            self._waiting -= 1
        return msgspec.json.encode({"text": cut(text, _LONGEST)})


def with_own_rights(transport: Transport) -> Reads:
    """Return what reads with the rights that this server has: its user's."""

    @asynccontextmanager
    async def reads(visit: Visit) -> AsyncIterator[Transport]:
        yield transport

    return reads


def as_who_asks(connection: Connection, clock: Clock) -> Reads:
    """Return what reads with the token of the user, at the API server of a connection."""

    @asynccontextmanager
    async def reads(visit: Visit) -> AsyncIterator[Transport]:
        theirs = replace(connection, headers=Headers(lambda: f"Bearer {visit.token}"))
        transport = Transport(ReadingWire(HttpWire(theirs, limit=2)), clock)
        try:
            yield transport
        finally:
            await transport.close()

    return reads


async def _read(transport: Transport, path: str, **query: str) -> Any:
    body = await transport.request(Request("GET", path, query=query))
    return msgspec.json.decode(body)


async def _yaml(transport: Transport, path: str) -> str:
    found = await _read(transport, path)
    metadata = found.get("metadata")
    if isinstance(metadata, dict):
        for name in _CALMED:
            metadata.pop(name, None)
    return yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=120)


async def _events(transport: Transport, kind: str, namespace: str, name: str) -> str:
    """Return the events about an object, a line each, the newest last."""
    selector = f"involvedObject.name={name},involvedObject.kind={kind}"
    path = f"/api/v1/namespaces/{namespace}/events"
    found = await _read(transport, path, fieldSelector=selector, limit="500")
    items = [each for each in found.get("items") or () if isinstance(each, dict)]
    lines = sorted(_event(each) for each in items)[-_MOST_EVENTS:]
    return "\n".join(lines) or "There are no events about it."


def _event(event: Mapping[str, Any]) -> str:
    at = event.get("lastTimestamp") or event.get("eventTime") or ""
    count = event.get("count") or 1
    times = f" ({counted(count, 'time')})" if isinstance(count, int) and count > 1 else ""
    said = (at, event.get("type") or "", event.get("reason") or "", event.get("message") or "")
    return "  ".join(map(str, said)) + times


async def _logs(transport: Transport, namespace: str, name: str) -> str:
    """Return the last lines of each container of a pod."""
    path = PODS.path(namespace, name)
    pod = await _read(transport, path)
    containers = [each["name"] for each in pod["spec"]["containers"]]
    parts = []
    for container in containers[:8]:
        query = {"container": container, "tailLines": _LINES, "limitBytes": str(_LONGEST)}
        request = Request("GET", f"{path}/log", query=query, accept="*/*")
        try:
            text = (await transport.request(request)).decode(errors="replace")
        except (Forbidden, Unauthorized):
            raise
        except ApiError as error:
            text = f"no log: {error.message}"
        parts.append(f"--- {container}\n{text}" if len(containers) > 1 else text)
    return "\n".join(parts) or "Its log is empty."
