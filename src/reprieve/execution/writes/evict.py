"""Evict one root owner: delete it, scale it to zero or suspend it, never twice and never another.

The only place that changes objects of other people. Each call reads the root first and sends the
write with preconditions on uid and resourceVersion, so that a root that was created again under the
same name is left alone and a write that was delayed past a hand-over fails. Who is
changed all the time is written by uid alone (`contest`). Source: the design's
"Intent log and executor", step 5; the idle plane's specification, section 11 and hazard H3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from reprieve.api.reprieve import FORMER_REPLICAS, Action, ObjectRef, Victim
from reprieve.execution.fence import Fence
from reprieve.execution.writes.contest import Contest
from reprieve.execution.writes.rights import permitted
from reprieve.jobs.table import BUILT_IN
from reprieve.kube.bodies import Json, Propagation
from reprieve.kube.client import Client
from reprieve.kube.discovery import NotServed, RestMapper
from reprieve.kube.errors import (
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    ServerError,
)
from reprieve.kube.resource import Resource
from reprieve.kube.retry import is_silent, retried
from reprieve.kube.writes import Priority

__all__ = [
    "Eviction",
    "Result",
    "evict",
    "obstacle",
]

#: Where the suspend field of a kind stands, for kinds that have one: (group, kind) -> path.
SUSPEND_FIELDS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    # A CronJob makes Jobs and is no job that is queued.
    ("batch", "CronJob"): ("spec", "suspend"),
    **{
        (kind.group, kind.kind): tuple(kind.suspend.split(".")) for kind in BUILT_IN if kind.suspend
    },
}
#: Verbs and subresources of the root's kind that each action writes.
_NEEDED: Final[Mapping[Action, tuple[tuple[str, str], ...]]] = {
    Action.DELETE: (("delete", ""),),
    Action.SUSPEND: (("patch", ""),),
    Action.SCALE_TO_ZERO: (("patch", ""), ("patch", "scale")),
}


class Result(StrEnum):
    """What became of the root."""

    EVICTED = "Evicted"
    GONE = "Gone"  # it was not there any more, or on its way out
    REPLACED = "Replaced"  # another object stands under its name
    FORBIDDEN = "Forbidden"
    REFUSED = "Refused"  # the kind does not support the action
    FAILED = "Failed"  # anything else: to be tried again


@dataclass(frozen=True, slots=True)
class Eviction:
    """The result and, for people, why; `rule`: the right to add where one is missing.

    `away`: of one that has failed, the API server had no answer, which states nothing of the root.
    `failure`: why it has failed.
    """

    result: Result
    detail: str = ""
    rule: str = ""
    away: bool = False
    failure: ApiError | None = None

    @property
    def over(self) -> bool:
        """Whether the victim's root is out of the way."""
        return self.result in (Result.EVICTED, Result.GONE, Result.REPLACED)


async def evict(
    client: Client, mapper: RestMapper, fence: Fence, victim: Victim, *, by_name: bool = False
) -> Eviction:
    """Carry out the victim's action on its root.

    `by_name`: delete whatever stands under the root's name, as the reference does (literal switch
    `deleteWithoutUid`).

    Raises:
        Deposed: the fence is closed.
    """
    try:
        resource = await mapper.resource_for(victim.root.api_version, victim.root.kind)
    except (NotFound, NotServed):
        return Eviction(Result.GONE)
    except ApiError as failure:
        return Eviction(Result.FAILED, str(failure), away=is_silent(failure))
    try:
        return await _evict(client, resource, fence, victim, by_name)
    except NotFound as missing:
        return await _missing(client, resource, victim, missing)
    except Forbidden as refusal:
        return Eviction(Result.FORBIDDEN, str(refusal), _rule(resource, victim.action))
    except ApiError as failure:
        away = is_silent(failure)
        return Eviction(Result.FAILED, str(failure), away=away, failure=failure)


async def _missing(
    client: Client, resource: Resource, victim: Victim, missing: NotFound
) -> Eviction:
    """Return what a 404 means: a root that can be read is not deleted."""
    if missing.call is not None and missing.call.verb == "get":
        return Eviction(Result.GONE)
    root = victim.root
    namespace = root.namespace if resource.namespaced else ""
    try:
        found: Json = await client.get(resource, namespace, root.name, dict)
    except NotFound:
        return Eviction(Result.GONE)
    except ApiError as failure:
        return Eviction(Result.FAILED, str(failure), away=is_silent(failure), failure=failure)
    if found["metadata"]["uid"] != root.uid:
        return Eviction(Result.REPLACED, f"{root.kind}/{root.name} now has another uid")
    text = f"{missing.message}, though it can be read"
    denied = ServerError(text, code=missing.code, call=missing.call)
    return Eviction(Result.FAILED, str(denied), away=True, failure=denied)


def _rule(resource: Resource, action: Action) -> str:
    """Return the rule of a role that the action needs, as a manifest has it."""
    plurals = [resource.plural, f"{resource.plural}/scale"]
    named = plurals if action is Action.SCALE_TO_ZERO else plurals[:1]
    verbs = ["get", "delete" if action is Action.DELETE else "patch"]
    rule = {"apiGroups": [resource.group], "resources": named, "verbs": verbs}
    return f"{{{', '.join(f'{key}: {json.dumps(value)}' for key, value in rule.items())}}}"


async def obstacle(
    client: Client, mapper: RestMapper, victim: Victim, *, ask: bool
) -> Eviction | None:
    """Return why the action cannot work on this root, None when nothing is known against it.

    Nothing is changed. With `ask` the API server is queried whether a deletion is permitted: in a
    set of several, one that must stay would make the eviction of the others pointless. The rights
    that the other actions need are always queried, as operators often lack them.
    """
    root = victim.root
    try:
        resource = await mapper.resource_for(root.api_version, root.kind)
        match victim.action:
            case Action.SUSPEND if _suspend_path(root) is None:
                return Eviction(Result.REFUSED, f"{root.kind} has no suspend field")
            case Action.SCALE_TO_ZERO:
                await _scale(client, resource, root)
            case _:
                pass
        if ask or victim.action is not Action.DELETE:
            for verb, subresource in _NEEDED[victim.action]:
                if not await permitted(
                    client,
                    resource,
                    verb,
                    subresource=subresource,
                    namespace=root.namespace,
                    name=root.name,
                ):
                    name = "/".join(filter(None, (resource.plural, subresource)))
                    right = f"{verb} on {'.'.join(filter(None, (name, resource.group)))}"
                    rule = _rule(resource, victim.action)
                    return Eviction(Result.FORBIDDEN, f"{right} is missing", rule)
    except NotFound:
        return Eviction(Result.REFUSED, f"{root.kind}/{root.name} has no scale subresource")
    except NotServed as missing:
        return Eviction(Result.REFUSED, str(missing))
    except Forbidden as refusal:
        return Eviction(Result.FORBIDDEN, str(refusal))
    except ApiError as failure:
        return Eviction(Result.FAILED, str(failure))
    return None


async def _scale(client: Client, resource: Resource, root: ObjectRef) -> Json:
    namespace = root.namespace if resource.namespaced else ""
    return await client.get_scale(resource, namespace, root.name)


async def _evict(
    client: Client, resource: Resource, fence: Fence, victim: Victim, by_name: bool
) -> Eviction:
    root = victim.root
    namespace = root.namespace if resource.namespaced else ""
    writer = client.at(Priority.EVICT, fence.check, timeout=fence.request_timeout)

    contest = Contest()

    async def once() -> Eviction:
        found: Json = await client.get(resource, namespace, root.name, dict)
        metadata = found["metadata"]
        if contest.lost:
            metadata = found["metadata"] = {**metadata, "resourceVersion": ""}
        if metadata["uid"] != root.uid and not by_name:
            return Eviction(Result.REPLACED, f"{root.kind}/{root.name} now has another uid")
        if metadata.get("deletionTimestamp"):
            return Eviction(Result.GONE, "already being deleted")
        match victim.action:
            case Action.DELETE:
                await writer.delete(
                    resource,
                    namespace,
                    root.name,
                    uid=metadata["uid"],
                    resource_version=metadata["resourceVersion"],
                    propagation=Propagation.BACKGROUND,
                )
                return Eviction(Result.EVICTED)
            case Action.SUSPEND:
                return await _suspend(writer, resource, found, root)
            case Action.SCALE_TO_ZERO:
                return await _scale_to_zero(writer, resource, found, root)

    try:
        return await retried(contest.of(once), client.transport.pause, (Conflict,))
    except Conflict as answer:
        return Eviction(Result.FAILED, str(answer))


async def _suspend(writer: Client, resource: Resource, found: Json, root: ObjectRef) -> Eviction:
    path = _suspend_path(root)
    if path is None:
        return Eviction(Result.REFUSED, f"{root.kind} has no suspend field")
    if _at(found, path) is True:
        return Eviction(Result.GONE, "already suspended")
    *outer, last = path
    patch: Json = {last: True}
    for key in reversed(outer):
        patch = {key: patch}
    await _patch(writer, resource, found, patch)
    return Eviction(Result.EVICTED)


async def _scale_to_zero(
    writer: Client, resource: Resource, found: Json, root: ObjectRef
) -> Eviction:
    try:
        scale = await _scale(writer, resource, root)
    except NotFound:
        return Eviction(Result.REFUSED, f"{root.kind} has no scale subresource")
    replicas = scale.get("spec", {}).get("replicas", 0)
    if replicas == 0:
        return Eviction(Result.GONE, "already scaled to zero")
    if (found["metadata"].get("annotations") or {}).get(FORMER_REPLICAS) != str(replicas):
        # Kept first: a crash in between costs an annotation, not the number.
        patch = {"metadata": {"annotations": {FORMER_REPLICAS: str(replicas)}}}
        version = found["metadata"]["resourceVersion"]
        found = await _patch(writer, resource, found, patch)
        if not version:
            found["metadata"]["resourceVersion"] = ""
    await writer.patch_scale(
        resource,
        found["metadata"].get("namespace", ""),
        root.name,
        0,
        resource_version=found["metadata"]["resourceVersion"],
    )
    return Eviction(Result.EVICTED)


async def _patch(writer: Client, resource: Resource, found: Json, patch: Json) -> Json:
    metadata = found["metadata"]
    preconditions = {"uid": metadata["uid"]}
    if metadata["resourceVersion"]:
        preconditions["resourceVersion"] = metadata["resourceVersion"]
    body = {**patch, "metadata": {**patch.get("metadata", {}), **preconditions}}
    patched: Json = await writer.patch(
        resource, metadata.get("namespace", ""), metadata["name"], body, dict
    )
    return patched


def _suspend_path(root: ObjectRef) -> tuple[str, ...] | None:
    group = root.api_version.rpartition("/")[0]
    return SUSPEND_FIELDS.get((group, root.kind))


def _at(value: object, path: tuple[str, ...]) -> object:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
