"""Admission webhooks: which are called for a request, what they get, and their answer.

Mutating ones run in order of their configurations' names and of the list in each, every one on
what the last has left, and once more if they want to and another one has changed the object after
them; validating ones see the end. Source: the API's admissionregistration/v1 and
the webhook plugins of k8s.io/apiserver; texts of those.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from kubelocal.server.admitting import outside
from kubelocal.server.admitting.callouts import CallFailed, call
from kubelocal.server.errors import StatusError, bad_request
from kubelocal.server.state import State
from kubelocal.server.types import conversion
from kubelocal.server.types.cel import condition_holds
from kubelocal.server.types.kinds import Kind
from kubelocal.server.writing.options import DeleteOptions, PatchType, WriteOptions
from kubelocal.server.writing.patches import patched
from kubelocal.store import Store
from kubeworld.objects.selectors import matches_labels

__all__ = ["Request", "change_of", "mutated", "validated", "validated_part"]

_GROUP: Final = "admissionregistration.k8s.io"
_MUTATING: Final = f"mutatingwebhookconfigurations.{_GROUP}"
_VALIDATING: Final = f"validatingwebhookconfigurations.{_GROUP}"
_DEFAULT_SECONDS: Final = 10
# Differs between two runs of one write, and is no webhook's business.
_VOLATILE: Final = ("uid", "creationTimestamp", "managedFields")


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be admitted. `operation`: CREATE, UPDATE or DELETE; `old` None for creates."""

    kind: Kind
    operation: str
    namespace: str
    name: str
    old: dict[str, Any] | None
    options: WriteOptions | DeleteOptions
    subresource: str = ""
    # apiVersion and kind of the object where they are not the kind's: Scale, Binding, Eviction.
    object_type: tuple[str, str] | None = None


def mutated(api: State, request: Request, obj: dict[str, Any]) -> dict[str, Any]:
    """Return `obj` as the mutating webhooks leave it; the same object if there are none.

    Raises:
        StatusError: a webhook refused, or could not be called and must be.
    """
    asked: list[Mapping[str, Any]] = []
    stale: list[Mapping[str, Any]] = []
    for hook in _hooks(api, _MUTATING, request):
        changed = _changed(api, hook, request, obj)
        if changed is not None:
            if changed != obj:
                stale = list(asked)
                obj = changed
            asked.append(hook)
    # Once more, those that have not seen what others made of the object after them.
    for hook in stale:
        if hook.get("reinvocationPolicy") == "IfNeeded":
            changed = _changed(api, hook, request, obj)
            obj = obj if changed is None else changed
    return obj


def _changed(
    api: State, hook: Mapping[str, Any], request: Request, obj: dict[str, Any]
) -> dict[str, Any] | None:
    """Return `obj` as one webhook leaves it, None if it was not called or had no answer."""
    as_kind = _asked_as(api, hook, request, obj)
    if as_kind is None:
        return None
    sent = _in_version(request.kind, as_kind, obj)
    answer = _answer(hook, as_kind, request, sent)
    if answer is None:
        return None
    if not answer.get("patch"):
        return obj
    try:
        patch = base64.b64decode(answer["patch"], validate=True)
        changed = patched(as_kind, sent, patch, PatchType.JSON)
    except (StatusError, binascii.Error, TypeError) as error:
        if _ignores(hook):
            return None
        raise _failed(hook["name"], str(error)) from None
    return _in_version(as_kind, request.kind, changed)


def validated(api: State, request: Request, obj: dict[str, Any] | None) -> None:
    """Query the validating webhooks; `obj` is None for deletes.

    Raises:
        StatusError: a webhook refused, or could not be called and must be.
    """
    for hook in _hooks(api, _VALIDATING, request):
        as_kind = _asked_as(api, hook, request, obj)
        if as_kind is not None:
            sent = None if obj is None else _in_version(request.kind, as_kind, obj)
            _answer(hook, as_kind, request, sent)


def change_of(kind: Kind, old: dict[str, Any], options: WriteOptions, subresource: str) -> Request:
    """Return the request that changes `old`."""
    metadata = old["metadata"]
    scale = ("autoscaling/v1", "Scale") if subresource == "scale" else None
    place = metadata.get("namespace", ""), metadata["name"]
    return Request(kind, "UPDATE", *place, old, options, subresource, scale)


def validated_part(
    api: State, namespace: str, name: str, subresource: str, obj: dict[str, Any]
) -> None:
    """Query the validating webhooks about a Binding or Eviction of a pod.

    Raises:
        StatusError: as `validated`.
    """
    pods = api.registry.find("", "v1", "pods")
    assert pods is not None
    kind = {"binding": ("v1", "Binding"), "eviction": ("policy/v1", "Eviction")}[subresource]
    options = WriteOptions()
    request = Request(pods, "CREATE", namespace, name, None, options, subresource, kind)
    validated(api, request, obj)


def _hooks(api: State, resource: str, request: Request) -> Iterator[Mapping[str, Any]]:
    """Yield the stored webhooks for a resource, none for requests about such configurations."""
    if request.kind.group != _GROUP and api.store.count(resource):
        for stored in api.store.range(resource, None):
            for hook, plurals in _decoded(stored.body):
                if not plurals.isdisjoint(("*", request.kind.plural)):
                    yield hook


@functools.lru_cache(maxsize=16)
def _decoded(body: bytes) -> tuple[tuple[Mapping[str, Any], frozenset[str]], ...]:
    """Return the webhooks of a configuration, each with the resources that it is for.

    Cached, since reading a configuration with many certificates costs a millisecond at every write.
    """
    hooks = orjson.loads(body).get("webhooks") or ()
    return tuple(
        (
            hook,
            frozenset(
                str(name).partition("/")[0]
                for rule in hook.get("rules") or ()
                for name in rule.get("resources") or ()
            ),
        )
        for hook in hooks
    )


def _asked_as(
    api: State, hook: Mapping[str, Any], request: Request, obj: dict[str, Any] | None
) -> Kind | None:
    """Return the version in which a webhook is to be called, None if it is not to be."""
    as_kind = _version(api, hook, request)
    if as_kind is None or not _in_namespaces(api, hook, request, obj):
        return None
    labels = [_labels(one) for one in (obj, request.old) if one is not None]
    selector = hook.get("objectSelector")
    if selector and not any(matches_labels(selector, one) for one in labels):
        return None
    return as_kind if _conditions_hold(hook, request, obj) else None


def _version(api: State, hook: Mapping[str, Any], request: Request) -> Kind | None:
    kind = request.kind
    candidates = [kind]
    if hook.get("matchPolicy") != "Exact":
        candidates += [
            one
            for one in api.registry.all()
            if (one.group, one.plural) == (kind.group, kind.plural) and one is not kind
        ]
    rules = hook.get("rules") or ()
    return next((one for one in candidates if any(_rule(r, one, request) for r in rules)), None)


def _rule(rule: Mapping[str, Any], kind: Kind, request: Request) -> bool:
    scope = rule.get("scope") or "*"
    return (
        _has(rule.get("operations"), request.operation)
        and _has(rule.get("apiGroups"), kind.group)
        and _has(rule.get("apiVersions"), kind.version)
        and scope in ("*", "Namespaced" if kind.namespaced else "Cluster")
        and any(
            _resource(one, kind.plural, request.subresource) for one in rule.get("resources") or ()
        )
    )


def _has(words: Any, word: str) -> bool:
    return bool(words) and ("*" in words or word in words)


def _resource(pattern: str, plural: str, subresource: str) -> bool:
    wanted, _, inner = pattern.partition("/")
    return wanted in ("*", plural) and (inner in ("*", subresource))


def _in_namespaces(
    api: State, hook: Mapping[str, Any], request: Request, obj: dict[str, Any] | None
) -> bool:
    selector = hook.get("namespaceSelector")
    if not selector:
        return True
    if request.kind.resource == "namespaces":
        return matches_labels(selector, _labels(obj or request.old or {}))
    if not request.kind.namespaced:
        return True
    namespace = api.store.get("namespaces", "", request.namespace)
    return namespace is not None and matches_labels(selector, namespace.labels)


def _labels(obj: Mapping[str, Any]) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get("labels") or {}


def _conditions_hold(hook: Mapping[str, Any], request: Request, obj: dict[str, Any] | None) -> bool:
    conditions = hook.get("matchConditions") or ()
    if not conditions:
        return True
    about = {"operation": request.operation, "name": request.name, "namespace": request.namespace}
    values = {"object": obj, "oldObject": request.old, "request": about}
    try:
        return all(condition_holds(one["expression"], values) for one in conditions)
    except ValueError as error:
        if _ignores(hook):
            return False
        raise _failed(hook["name"], str(error)) from None


def _answer(
    hook: Mapping[str, Any], kind: Kind, request: Request, obj: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Return the webhook's answer, None for one that could not be called and need not be."""
    if request.options.dry_run and hook.get("sideEffects") in ("Some", "Unknown", None):
        raise bad_request(f'admission webhook "{hook["name"]}" does not support dry run')
    review = _review(kind, request, obj)
    question = ("admission", hook["name"], orjson.dumps(hook["clientConfig"]), _digest(review))
    seconds = hook.get("timeoutSeconds") or _DEFAULT_SECONDS

    async def fetch(store: Store) -> dict[str, Any] | CallFailed:
        try:
            return await call(store, hook["clientConfig"], review, seconds)
        except CallFailed as failure:
            return failure

    answer = outside.ask(question, fetch)
    if isinstance(answer, CallFailed):
        if _ignores(hook):
            return None
        raise _failed(hook["name"], f"failed to call webhook: {answer}")
    if isinstance(request.options, WriteOptions):
        request.options.warnings.extend(map(str, answer.get("warnings") or ()))
    if not answer.get("allowed"):
        raise _denied(hook["name"], answer.get("status"))
    return answer


def _review(kind: Kind, request: Request, obj: dict[str, Any] | None) -> dict[str, Any]:
    user = outside.acting.get()
    old = request.old
    if old is not None and kind is not request.kind:
        old = _in_version(request.kind, kind, old)
    options = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
    asked: dict[str, Any] = {
        "uid": str(uuid.uuid4()),
        "kind": _kind(kind, request.object_type),
        "resource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
        "requestKind": _kind(request.kind, request.object_type),
        "requestResource": {
            "group": kind.group,
            "version": request.kind.version,
            "resource": kind.plural,
        },
        "name": request.name,
        "operation": request.operation,
        "userInfo": {"username": user.name, "groups": list(user.groups)},
        "object": obj,
        "oldObject": old,
        "dryRun": request.options.dry_run,
        "options": {"kind": options[request.operation], "apiVersion": "meta.k8s.io/v1"},
    }
    if request.namespace:
        asked["namespace"] = request.namespace
    if request.subresource:
        asked["subResource"] = asked["requestSubResource"] = request.subresource
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": asked}


def _kind(kind: Kind, other: tuple[str, str] | None) -> dict[str, str]:
    if other is None:
        return {"group": kind.group, "version": kind.version, "kind": kind.kind}
    group, _, version = other[0].rpartition("/")
    return {"group": group, "version": version, "kind": other[1]}


def _digest(review: dict[str, Any]) -> bytes:
    asked = {key: value for key, value in review["request"].items() if key != "uid"}
    obj = asked["object"]
    if obj is not None:
        metadata = obj.get("metadata") or {}
        kept = {key: value for key, value in metadata.items() if key not in _VOLATILE}
        asked["object"] = {**obj, "metadata": kept}
    return hashlib.sha256(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)).digest()


def _in_version(kind: Kind, other: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of `obj`, which is of version `kind`, in version `other`."""
    copy: dict[str, Any] = orjson.loads(orjson.dumps(obj))
    return copy if kind is other else conversion.in_version(other, copy)


def _ignores(hook: Mapping[str, Any]) -> bool:
    return hook.get("failurePolicy") == "Ignore"


def _failed(name: str, why: str) -> StatusError:
    text = f'failed calling webhook "{name}": {why}'
    details = {"causes": [{"message": text}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {text}", details)


def _denied(name: str, status: Any) -> StatusError:
    status = status if isinstance(status, dict) else {}
    why = status.get("message") or status.get("reason")
    suffix = f": {why}" if why else " without explanation"
    code = status.get("code")
    return StatusError(
        max(code, 400) if type(code) is int else 400,
        str(status.get("reason") or ""),
        f'admission webhook "{name}" denied the request{suffix}',
        status.get("details"),
    )
