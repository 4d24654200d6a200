"""One object, several served versions: how it is kept and how each version sees it.

Custom kinds convert by name only (strategy None) or by their webhook, which is called with a
ConversionReview and may change everything but most of the metadata. Built-in kinds with different
fields are Event, where `events.k8s.io/v1` and `v1` are two views of the same objects, kept as `v1`,
and the pod groups and workloads of `scheduling_versions`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from kubelocal.server.admitting import outside
from kubelocal.server.admitting.callouts import CallFailed, call
from kubelocal.server.errors import StatusError
from kubelocal.server.types.kinds import Kind
from kubelocal.server.types.registry import Registry
from kubelocal.server.types.scheduling_versions import as_newer, as_older, is_older
from kubelocal.store import Store, Stored

__all__ = [
    "answered",
    "asks",
    "from_storage",
    "in_version",
    "kept_head",
    "read_as",
    "shelf",
    "to_storage",
]

_SECONDS: Final = 30
_MOST_BYTES: Final = 2**20
# The parts of the metadata that a webhook is given, and may change.
_CONVERTED: Final = ("name", "namespace", "labels", "annotations")

# events.k8s.io/v1 -> v1
_EVENT_FIELDS: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_EVENT_FIELDS_BACK: Final = {core: new for new, core in _EVENT_FIELDS.items()}


def shelf(kind: Kind) -> str:
    """Return the name under which the store keeps objects of `kind`, whatever the version."""
    return "events" if _is_new_event(kind) else kind.resource


def to_storage(registry: Registry, store: Store, kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    """Return `obj` of version `kind` as it is kept, apiVersion and kind first.

    What the version has no fields for stays as it is kept now.
    """
    if _is_new_event(kind):
        return {"apiVersion": "v1", "kind": "Event", **_renamed(obj, _EVENT_FIELDS)}
    stored = kind if kind.stored else registry.stored(kind.group, kind.plural) or kind
    if stored is not kind and _webhook(stored) is not None:
        return in_version(stored, {**obj, **_head(kind)})
    if is_older(kind):
        metadata = obj["metadata"]
        kept = store.get(kind.resource, metadata.get("namespace", ""), metadata["name"])
        obj = as_newer(obj, None if kept is None else kept.decode())
    return {**_head(stored), **obj, **_head(stored)}


def from_storage(kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    """Return a kept object in version `kind`."""
    if _is_new_event(kind):
        renamed = _renamed(obj, _EVENT_FIELDS_BACK)
        # Only v1 shows these where they are empty.
        empty = [
            name
            for name in ("reportingController", "reportingInstance")
            if not renamed.get(name, True)
        ]
        return _head(kind) | {name: value for name, value in renamed.items() if name not in empty}
    return in_version(kind, obj)


def in_version(kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    """Return `obj`, whose apiVersion states what it is, in version `kind`.

    Raises:
        StatusError: 500, the conversion webhook failed.
    """
    if obj.get("apiVersion") == kind.api_version:
        return obj
    webhook = _webhook(kind)
    if webhook is None:
        if is_older(kind):
            obj = as_older(obj)
        elif obj["apiVersion"] == "scheduling.k8s.io/v1alpha2":
            obj = as_newer(obj, None)
        return {**obj, **_head(kind)}
    metadata = {key: value for key, value in obj["metadata"].items() if key in _CONVERTED}
    digest = hashlib.sha256(orjson.dumps({**obj, "metadata": metadata})).digest()

    async def fetch(store: Store) -> dict[str, Any]:
        (converted,) = await _converted(store, kind, webhook, [obj])
        return converted

    answer: dict[str, Any] = outside.ask(("conversion", kind.api_version, digest), fetch)
    # A copy: answers to a query made twice in one write must not share what the write changes.
    return _with_metadata(obj, orjson.loads(orjson.dumps(answer)))


def answered(kind: Kind, obj: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a write of `obj`, now that it is kept and nothing is called."""
    if _webhook(kind) is None or kept["apiVersion"] == kind.api_version:
        return from_storage(kind, kept)
    return {**obj, "metadata": kept["metadata"]}


async def read_as(store: Store, kind: Kind, found: Sequence[Stored]) -> list[Stored]:
    """Return kept objects with bodies in version `kind`, if that needs a webhook.

    Raises:
        StatusError: 500, the conversion webhook failed.
    """
    webhook = _webhook(kind)
    others = [] if webhook is None else [one for one in found if not is_kept_as(kind, one.body)]
    if webhook is None or not others:
        return list(found)
    objects = [one.decode() for one in others]
    answers: list[dict[str, Any]] = []
    for part in _parts(others):
        answers += await _converted(store, kind, webhook, objects[part])
    bodies = {
        id(one): orjson.dumps(_with_metadata(obj, answer))
        for one, obj, answer in zip(others, objects, answers, strict=True)
    }
    return [dataclasses.replace(one, body=bodies.get(id(one), one.body)) for one in found]


def asks(kind: Kind) -> bool:
    """Return whether other versions of `kind` are converted by a webhook."""
    return _webhook(kind) is not None


def _webhook(kind: Kind) -> Mapping[str, Any] | None:
    return None if kind.custom is None else kind.custom.conversion


def _parts(found: Sequence[Stored]) -> Iterator[slice]:
    """Yield parts of at most `_MOST_BYTES`, or one object: webhooks have a limit of size."""
    start, size = 0, 0
    for index, one in enumerate(found):
        if index > start and size + len(one.body) > _MOST_BYTES:
            yield slice(start, index)
            start, size = index, 0
        size += len(one.body)
    yield slice(start, len(found))


async def _converted(
    store: Store, kind: Kind, webhook: Mapping[str, Any], objects: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    review = {
        "kind": "ConversionReview",
        "apiVersion": "apiextensions.k8s.io/v1",
        "request": {
            "uid": str(uuid.uuid4()),
            "desiredAPIVersion": kind.api_version,
            "objects": objects,
        },
    }
    try:
        answer = await call(store, webhook["clientConfig"], review, _SECONDS)
        converted = answer.get("convertedObjects") or []
        result = answer.get("result") or {}
        if result.get("status") != "Success":
            raise CallFailed(str(result.get("message") or "no reason given"))
        if len(converted) != len(objects):
            raise CallFailed(f"webhook returned {len(converted)} objects, expected {len(objects)}")
        for one in converted:
            if not isinstance(one, dict) or one.get("apiVersion") != kind.api_version:
                raise CallFailed(f"webhook returned an object that is not {kind.api_version}")
    except CallFailed as failure:
        was = objects[0].get("apiVersion")
        raise StatusError(
            500, "", f"conversion webhook for {was}, Kind={kind.kind} failed: {failure}"
        ) from None
    return converted


def _with_metadata(obj: Mapping[str, Any], converted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the converted object with its own metadata but for labels and annotations."""
    given = converted.get("metadata") or {}
    metadata = {
        key: value for key, value in obj["metadata"].items() if key not in ("labels", "annotations")
    }
    metadata |= {key: given[key] for key in ("labels", "annotations") if given.get(key)}
    head = {name: converted[name] for name in ("apiVersion", "kind")}
    return {**head, **converted, "metadata": metadata}


def is_kept_as(kind: Kind, body: bytes) -> bool:
    """Return whether the kept bytes already are version `kind`."""
    return body.startswith(kept_head(kind))


def kept_head(kind: Kind) -> bytes:
    """Return how kept bytes begin that are of version `kind`."""
    return b'{"apiVersion":"%b","kind":"%b"' % (kind.api_version.encode(), kind.kind.encode())


def _head(kind: Kind) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind}


def _is_new_event(kind: Kind) -> bool:
    return kind.plural == "events" and kind.group == "events.k8s.io"


def _renamed(obj: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {
        names.get(key, key): value
        for key, value in obj.items()
        if key not in ("apiVersion", "kind")
    }
