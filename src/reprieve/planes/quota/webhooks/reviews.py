"""Reviews that the API server sends, and their answers: admission and conversion.

A `Hook` is one webhook as it is registered, with a `judge` that decides about one object; the table
`kueue_hooks` has those of Kueue's own kinds, under the reference's names and paths. Objects that
are being deleted are left alone. A review that cannot be read is answered with what is wrong, never
with a traceback, and an object on which a judge fails is allowed with a warning: this process must
not be what keeps a cluster from working.

Before anything is decoded the brackets and commas of a body are counted, since a decoder holds the
interpreter until it is done; afterwards no value may be nested deeper than `_DEEPEST`, so that code
that walks it needs no check.

Source: specification of the quota plane, sections 1.5 and 12; the API's AdmissionReview and
ConversionReview; the threat model in `docs/security.md`.
"""

from __future__ import annotations

import base64
import copy
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from reprieve.api import kueue_validation as rules
from reprieve.api.field_errors import aggregate
from reprieve.api.kueue import GROUP, RESOURCE_IN_USE
from reprieve.api.kueue_conversion import TooManyDomains, UnknownVersion, bound_conversions, convert

__all__ = [
    "Asked",
    "Hook",
    "Json",
    "Judge",
    "MalformedReview",
    "Verdict",
    "admission_review",
    "conversion_review",
    "json_patch",
    "kueue_hooks",
]

log: Final = logging.getLogger(__name__)

Json = dict[str, Any]

CREATE: Final = ("CREATE",)
UPDATE: Final = ("UPDATE",)
CREATE_AND_UPDATE: Final = (*CREATE, *UPDATE)
FORBIDDEN: Final = 403
# Of one review. What fills a body in full has some 200,000 brackets and 300,000 commas.
_MOST_VALUES: Final = 800_000
_DEEPEST: Final = 100
_LONGEST_REPORTED: Final = 200


class MalformedReview(ValueError):
    """The body of a request is no review."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question: may `obj` be written? `old` is what it replaces; both are the caller's."""

    operation: str
    namespace: str
    obj: Json
    old: Json | None = None
    subresource: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong (nothing: allowed), what the user is warned of, and the changed object."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    changed: Json | None = None


Judge = Callable[[Asked], Verdict]


@dataclass(frozen=True, slots=True)
class Hook:
    """One webhook: `name` as registered, `resources` in the plural with `/status` and the like."""

    name: str
    path: str
    group: str
    version: str
    resources: tuple[str, ...]
    judge: Judge
    mutating: bool = False
    operations: tuple[str, ...] = CREATE_AND_UPDATE
    failure_policy: str = "Fail"
    namespace_selector: Mapping[str, Any] | None = None


def admission_review(body: bytes, judge: Judge) -> Json:
    """Return the answer to an AdmissionReview.

    Raises:
        MalformedReview: the body is none.
    """
    review = _review(body, "AdmissionReview")
    request = review["request"]
    obj, old = _object(request, "object"), _object(request, "oldObject")
    response: Json = {"uid": request.get("uid", ""), "allowed": True}
    if obj is not None and not (obj.get("metadata") or {}).get("deletionTimestamp"):
        user = request.get("userInfo")
        asked = Asked(
            operation=str(request.get("operation", "")),
            namespace=str(request.get("namespace") or ""),
            obj=obj,
            old=old,
            subresource=str(request.get("subResource") or ""),
            user=str(user.get("username", "")) if isinstance(user, dict) else "",
        )
        response |= _answer(asked, _judged(judge, asked))
    return {**_head(review), "response": response}


def conversion_review(body: bytes) -> Json:
    """Return the answer to a ConversionReview: all objects in their order, or what is wrong.

    Raises:
        MalformedReview: the body is none.
    """
    review = _review(body, "ConversionReview")
    request = review["request"]
    response: Json = {"uid": request.get("uid", ""), "convertedObjects": []}
    try:
        version = str(request.get("desiredAPIVersion", ""))
        bound_conversions(request["objects"], version)
        response["convertedObjects"] = [convert(one, version) for one in request["objects"]]
        response["result"] = {"status": "Success"}
    except (UnknownVersion, TooManyDomains, KeyError, TypeError, AttributeError) as error:
        response["convertedObjects"] = []
        response["result"] = {"status": "Failure", "message": str(error)[:_LONGEST_REPORTED]}
    return {**_head(review), "response": response}


def json_patch(before: Any, after: Any, path: str = "") -> Iterator[Json]:
    """Yield the operations that make `after` of `before`; lists are replaced whole."""
    if before == after and type(before) is type(after):
        return
    if not isinstance(before, dict) or not isinstance(after, dict):
        yield {"op": "replace", "path": path, "value": after}
        return
    for key in before:
        here = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        if key not in after:
            yield {"op": "remove", "path": here}
        else:
            yield from json_patch(before[key], after[key], here)
    for key, value in after.items():
        if key not in before:
            here = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            yield {"op": "add", "path": here, "value": value}


def kueue_hooks(*, partial_admission: bool = True, slice_sizes: bool = True) -> tuple[Hook, ...]:
    """Return the webhooks of Kueue's own kinds.

    Args:
        partial_admission: of the gate of that name; off removes minCount from new workloads.
        slice_sizes: whether the sizes of slices in Workloads are checked.
    """

    def own(resources: str, kind: str, judge: Judge) -> Hook:
        listed = tuple(resources.split())
        path = f"/validate-kueue-x-k8s-io-v1beta2-{kind}"
        return Hook(f"v{kind}.kb.io", path, GROUP, "v1beta2", listed, judge)

    def changing(resources: str, kind: str, judge: Judge) -> Hook:
        path = f"/mutate-kueue-x-k8s-io-v1beta2-{kind}"
        name = f"m{kind}.kb.io"
        return Hook(name, path, GROUP, "v1beta2", (resources,), judge, True, CREATE)

    found = [
        changing("clusterqueues", "clusterqueue", _held_while_in_use),
        changing("resourceflavors", "resourceflavor", _held_while_in_use),
        own("clusterqueues", "clusterqueue", _reported(rules.cluster_queue_errors)),
        own("cohorts", "cohort", _reported(rules.cohort_errors)),
        own("resourceflavors", "resourceflavor", _reported(rules.resource_flavor_errors)),
        own("workloads workloads/status", "workload", _workload(slice_sizes)),
    ]
    if not partial_admission:
        found.append(changing("workloads", "workload", _without_min_count))
    return tuple(found)


def _held_while_in_use(asked: Asked) -> Verdict:
    finalizers = (asked.obj.get("metadata") or {}).get("finalizers") or []
    if RESOURCE_IN_USE in finalizers:
        return Verdict()
    changed = copy.deepcopy(asked.obj)
    changed.setdefault("metadata", {})["finalizers"] = [*finalizers, RESOURCE_IN_USE]
    return Verdict(changed=changed)


def _without_min_count(asked: Asked) -> Verdict:
    changed = copy.deepcopy(asked.obj)
    for pod_set in (changed.get("spec") or {}).get("podSets") or ():
        pod_set.pop("minCount", None)
    return Verdict(changed=changed)


def _reported(errors: Callable[[Mapping[str, Any]], Iterator[str]]) -> Judge:
    return lambda asked: Verdict(tuple(errors(asked.obj)))


def _workload(slice_sizes: bool) -> Judge:
    def judge(asked: Asked) -> Verdict:
        obj, old = asked.obj, asked.old
        if old is not None:
            return Verdict(tuple(rules.workload_update_errors(obj, old, slice_sizes=slice_sizes)))
        sizes = rules.slice_errors(obj) if slice_sizes else ()
        return Verdict((*rules.workload_errors(obj), *sizes))

    return judge


def _judged(judge: Judge, asked: Asked) -> Verdict:
    try:
        return judge(asked)
    except Exception as error:  # whatever it is, it is ours and not the user's
        name = (asked.obj.get("metadata") or {}).get("name", "")
        log.exception("a webhook failed on %s %s/%s", asked.operation, asked.namespace, name)
        reported = f"reprieve could not check this object: {error!r}"
        return Verdict(warnings=(reported[:_LONGEST_REPORTED],))


def _answer(asked: Asked, verdict: Verdict) -> Json:
    found: Json = {"warnings": list(verdict.warnings)} if verdict.warnings else {}
    if verdict.errors:
        message = aggregate(verdict.errors)
        status = {"code": FORBIDDEN, "reason": "Forbidden", "message": message}
        return {**found, "allowed": False, "status": status}
    if verdict.changed is not None:
        operations = list(json_patch(asked.obj, verdict.changed))
        if operations:
            patch = base64.b64encode(orjson.dumps(operations)).decode()
            found |= {"patchType": "JSONPatch", "patch": patch}
    return found


def _object(request: Json, name: str) -> Json | None:
    """Return an object of an AdmissionReview; None where the operation has none."""
    found = request.get(name)
    if found is None:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("metadata") or {}, dict):
        raise MalformedReview(f"the {name} of the AdmissionReview is no object of Kubernetes")
    return found


def _review(body: bytes, kind: str) -> Json:
    if sum(body.count(mark) for mark in (b"{", b"[", b",")) > _MOST_VALUES:
        raise MalformedReview(f"too many values; accepted: {_MOST_VALUES}")
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedReview(f"not JSON: {error}") from None
    if not isinstance(review, dict) or review.get("kind") != kind:
        raise MalformedReview(f"not a review; accepted: {kind} v1")
    if not isinstance(review.get("request"), dict):
        raise MalformedReview(f"the {kind} has no request")
    if _is_deeper(review, _DEEPEST):
        raise MalformedReview(f"nested too deeply; accepted: {_DEEPEST} levels")
    return review


def _is_deeper(value: Any, most: int) -> bool:
    """Return whether lists and objects are nested deeper than `most`, level by level."""
    level = [value]
    for _ in range(most):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True


def _head(review: Json) -> Json:
    return {"apiVersion": review.get("apiVersion"), "kind": review["kind"]}
