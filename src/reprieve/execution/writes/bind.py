"""Bind one pod to one node, once, whatever becomes of the answer.

A call that failed may have had an effect, so the pod is read again before the next try on the same
node: bound there is done; bound elsewhere, deleted or replaced is dropped. Nothing is ever unbound.
Source: specification 23, "Recommended".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from reprieve.execution.fence import Fence
from reprieve.kube.bodies import NO_ANNOTATIONS, Json
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError, NotFound
from reprieve.kube.resource import PODS
from reprieve.kube.retry import UNSETTLED, retried
from reprieve.kube.writes import Priority
from reprieve.units.ids import Uid

__all__ = ["Binding", "Bound", "bind"]


class Bound(StrEnum):
    """What became of the pod."""

    HERE = "Here"
    ELSEWHERE = "Elsewhere"  # another client bound it
    GONE = "Gone"  # deleted, being deleted, or another pod under its name
    FAILED = "Failed"
    CHOSEN = "Taken"  # not tried: another scheduler used capacity of the node meanwhile


@dataclass(frozen=True, slots=True)
class Binding:
    """The result; `detail` is the error's text where it failed."""

    bound: Bound
    detail: str = ""


async def bind(
    client: Client,
    fence: Fence,
    namespace: str,
    name: str,
    uid: Uid,
    node: str,
    annotations: Mapping[str, str] = NO_ANNOTATIONS,
) -> Binding:
    """Bind the pod to the node; it gets the annotations with it.

    Raises:
        Deposed: the fence is closed.
    """
    writer = client.at(Priority.EVICT, fence.check, timeout=fence.request_timeout)
    asked = False

    async def once() -> Binding:
        nonlocal asked
        known = await _now(client, namespace, name, uid, node) if asked else None
        if known is not None:
            return known
        asked = True
        await writer.bind(namespace, name, node, uid=uid, annotations=annotations)
        return Binding(Bound.HERE)

    try:
        return await retried(once, client.transport.pause, (NotFound, *UNSETTLED))
    except ApiError as error:
        return Binding(Bound.FAILED, str(error))


async def _now(client: Client, namespace: str, name: str, uid: Uid, node: str) -> Binding | None:
    """Return what is settled about the pod by now, None when it still waits."""
    try:
        pod: Json = await client.get(PODS, namespace, name, dict)
    except NotFound:
        return Binding(Bound.GONE)
    metadata = pod["metadata"]
    if metadata["uid"] != uid or metadata.get("deletionTimestamp"):
        return Binding(Bound.GONE)
    where = pod["spec"].get("nodeName")
    if not where:
        return None
    return Binding(Bound.HERE if where == node else Bound.ELSEWHERE)
