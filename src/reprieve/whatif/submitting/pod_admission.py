"""Whether the API server would accept the pods that jobs describe, before they are made.

A job with a pod template that admission never accepts is stored, and never has a pod. So

1. a PriorityClass or RuntimeClass that a template names has to be in the cluster, or in the same
   submission: the plugins Priority and RuntimeClass refuse pods that name another one
2. with an API server, one pod of each template is created in a dry run, as its controller's, so
   that quotas of the namespace, limits, policies and webhooks answer themselves
3. of those that it accepts, all pods of the submission are counted against what the quotas of the
   namespace have left (`pod_quotas`), where these may be listed

That ends a plan only where no pod can ever be made. A quota of the namespace that allows fewer pods
for now, or none, is reported beside the plan, and not at all for work that waits in a queue, as its
victims may free it. Nothing is learnt by who may not create pods, of a template
that names what the same submission creates, and where a pod is not valid, since the controllers of
some kinds complete their templates first.

Source: the API server's admission plugins; the API's `dryRun=All`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kubeworld.objects.owners import owner_reference
from kubeworld.objects.paths import Json, first, values
from kubeworld.units.quantities import InvalidQuantity, parse_milli
from reprieve.jobs.pod_sets import found_pod_sets
from reprieve.kube.decoding import decode_object
from reprieve.kube.errors import ApiError, Call, Forbidden
from reprieve.kube.reader import Reader
from reprieve.kube.resource import PODS, Resource
from reprieve.kube.transport import Request
from reprieve.units.errors import ReprieveError, UsageError
from reprieve.whatif.controllers.pod_templates import PRIORITIES, RUNTIME_CLASSES
from reprieve.whatif.snapshots.snapshot import Snapshot
from reprieve.whatif.submitting.pod_quotas import (
    RESOURCE_QUOTAS,
    Left,
    QuotaObject,
    Short,
    left_of,
    subtracted,
)
from reprieve.whatif.submitting.submission import Document, Submitted
from reprieve.whatif.submitting.unjudged import Kinds

__all__ = ["check_classes", "dry_run_pods"]

#: Every API server makes these itself, also where no client may list them.
_OWN_CLASSES: Final = frozenset({"system-cluster-critical", "system-node-critical"})
_ACCOUNTS: Final = ("", "ServiceAccount")
_MOST_TEMPLATES: Final = 20
_MOST_NAMED: Final = 8
_NO_RIGHT: Final = "cannot create resource"
_USED_UP: Final = "exceeded quota"
_DENIED: Final = "denied the request"  # as webhooks and policies state, whatever their code
_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_CLASSES: Final = ((PRIORITIES, "priorityClassName"), (RUNTIME_CLASSES, "runtimeClassName"))


def check_classes(snapshot: Snapshot, submitted: Sequence[Submitted], kinds: Kinds) -> None:
    """Refuse pods and templates that name a class which is not there, as the API server does.

    Raises:
        UsageError: states which, and what there is.
    """
    for resource, field in _CLASSES:
        listed = snapshot.kinds.get((resource.group, resource.plural))
        if listed is None or snapshot.refuses(resource):
            continue
        known = {name for _, name in listed.objects} | {
            str(each.object["metadata"].get("name"))
            for each in submitted
            if each.resource.kind == resource.kind
        }
        if resource == PRIORITIES:
            known |= _OWN_CLASSES
        for each in submitted:
            for template in _templates(each, kinds):
                name = first(template, f"spec.{field}")
                if name and name not in known:
                    raise UsageError(_missing(each, resource, str(name), known))


async def dry_run_pods(
    client: Reader, submitted: Sequence[Submitted], kinds: Kinds
) -> tuple[str, ...]:
    """Create one pod of each template in a dry run; nothing is stored.

    Return what keeps pods from being made for now, to be reported beside the plan.

    Raises:
        ReprieveError: the API server would never accept the pods of one; it states why.
    """
    asked: set[bytes] = set()
    reported: list[str] = []
    quotas: dict[str, list[Left]] = {}
    for each in submitted:
        if not each.judged or (each.resource.group, each.resource.plural) == ("", "pods"):
            continue
        namespace = str(each.object["metadata"].get("namespace", ""))
        for count, template in _counted_templates(each, kinds):
            body = msgspec.json.encode(_pod(each, template))
            if body in asked or len(asked) >= _MOST_TEMPLATES or _names_new(template, submitted):
                continue
            asked.add(body)
            tried = await _tried(client, namespace, body)
            if tried.refusal:
                reported += _judged(each, tried.refusal)
            elif tried.pod is not None and not _queued(each):
                if namespace not in quotas:
                    quotas[namespace] = await _quotas(client, namespace)
                short = subtracted(tried.pod, count, quotas[namespace])
                reported += [] if short is None else [_short_text(each, count, short)]
    return tuple(reported)


@dataclass(frozen=True, slots=True)
class _Tried:
    """What the API server states of a pod: why it refuses it, or the pod as it would store it."""

    refusal: str = ""
    pod: Json | None = None


async def _tried(client: Reader, namespace: str, body: bytes) -> _Tried:
    """Create a pod in a dry run; neither is known where the answer states nothing of the pod."""
    query = {"dryRun": "All", "fieldManager": "reprieve"}
    request = Request("POST", PODS.path(namespace), query, body)
    call = Call.on("create", PODS, namespace, "")
    try:
        stored = await client.transport.request(request, call)
        return _Tried(pod=decode_object(stored, dict, call))
    except ApiError as refusal:
        judged = isinstance(refusal, Forbidden) or _DENIED in refusal.message
        return _Tried(refusal.message if judged and _NO_RIGHT not in refusal.message else "")


async def _quotas(client: Reader, namespace: str) -> list[Left]:
    """Return the quotas of a namespace; none where they may not be listed."""
    try:
        page = await client.list(RESOURCE_QUOTAS, QuotaObject, namespace=namespace)
    except ApiError:
        return []
    return left_of(page.items)


def _short_text(submitted: Submitted, count: int, short: Short) -> str:
    title = Document(submitted.object, submitted.place).title
    made = f"{short.fits:,}" if short.fits else "none"
    text = (
        f"{title} gets {made} of its {count:,} pods for now: ResourceQuota {short.quota} has "
        f"{short.resource} left for no more"
    )
    if short.at_most < count:
        text += f", and grants it for {short.at_most:,} at most: request less, or have it raised"
    elif short.fits:
        text += f"; with {short.fits:,} at most it has all of them now"
    return text


def _queued(submitted: Submitted) -> bool:
    return bool((submitted.object["metadata"].get("labels") or {}).get(_QUEUE))


def _judged(submitted: Submitted, refusal: str) -> Iterator[str]:
    title = Document(submitted.object, submitted.place).title
    if _USED_UP not in refusal or not _fits(refusal):
        raise ReprieveError(
            f"{_placed(submitted)}the API server refuses the pods of {title}: {refusal}"
        )
    if not _queued(submitted):
        yield f"{title} gets no pods for now: {refusal}"


def _fits(message: str) -> bool:
    """Return whether a pod is within the limits of a quota that is used up, as its text states."""
    requested, _, rest = message.partition("requested: ")[2].partition(", used: ")
    limits = _amounts(rest.partition("limited: ")[2])
    try:
        return all(
            parse_milli(amount) <= parse_milli(limits[name])
            for name, amount in _amounts(requested).items()
        )
    except (InvalidQuantity, KeyError):
        return True


def _amounts(text: str) -> dict[str, str]:
    pairs = (each.partition("=") for each in text.split(","))
    return {name.strip(): amount for name, _, amount in pairs}


def _names_new(template: Json, submitted: Sequence[Submitted]) -> bool:
    """Return whether a template names what is created with it, which the server lacks."""
    new = {
        (each.resource.group, each.resource.kind, str(each.object["metadata"].get("name")))
        for each in submitted
    }
    named = [(*_ACCOUNTS, str(first(template, "spec.serviceAccountName")))]
    named += [
        (resource.group, resource.kind, str(first(template, f"spec.{field}")))
        for resource, field in _CLASSES
    ]
    return any(each in new for each in named)


def _pod(submitted: Submitted, template: Json) -> Json:
    """Return a pod as the controller of what is submitted would make it."""
    given, owner = template.get("metadata") or {}, submitted.object
    name = str(owner["metadata"].get("name") or "pod")
    metadata = {part: given[part] for part in ("labels", "annotations") if given.get(part)}
    if owner["metadata"].get("uid"):
        reference = owner_reference(owner)
        del reference["blockOwnerDeletion"]  # that requests a right of its own
        metadata["ownerReferences"] = [reference]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "generateName": f"{name[:50]}-"},
        "spec": {"restartPolicy": "Never", **(template.get("spec") or {})},
    }


def _templates(submitted: Submitted, kinds: Kinds) -> Iterator[Json]:
    """Yield the pod templates of a document: a pod is one itself."""
    resource, obj = submitted.resource, submitted.object
    kind = kinds.get((resource.group, resource.kind))
    if (resource.group, resource.kind) == ("", "Pod"):
        yield obj
        return
    paths: Iterable[str] = ()
    if (resource.group, resource.kind) == ("apps", "ReplicaSet"):
        paths = ("spec.template",)
    elif kind is not None and kind.passes_on is not None:
        paths = kind.passes_on.templates
    elif kind is not None:
        yield from (each.template for each in found_pod_sets(kind, obj) if each.count)
    for path in paths:
        yield from (each for each in values(obj, path) if isinstance(each, dict))


def _counted_templates(submitted: Submitted, kinds: Kinds) -> list[tuple[int, Json]]:
    """Return the pod templates of a document, with how many pods are made of each."""
    kind = kinds.get((submitted.resource.group, submitted.resource.kind))
    if kind is not None and kind.passes_on is None:
        found = found_pod_sets(kind, submitted.object)
        return [(each.count, each.template) for each in found if each.count]
    said = first(submitted.object, "spec.replicas")  # of Deployments and the like
    return [(said if isinstance(said, int) else 1, each) for each in _templates(submitted, kinds)]


def _missing(submitted: Submitted, resource: Resource, name: str, known: set[str]) -> str:
    title = Document(submitted.object, submitted.place).title
    there = sorted(known - _OWN_CLASSES)
    more = len(there) - _MOST_NAMED
    accepted = ", ".join(there[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    said = f"accepted: {accepted}" if there else "there is none"
    refused = "it" if submitted.resource.kind == "Pod" else "its pods"
    return (
        f"{_placed(submitted)}{title}: there is no {resource.kind} {name!r}, so that the API "
        f"server refuses {refused}; {said}"
    )


def _placed(submitted: Submitted) -> str:
    return f"{submitted.place}: " if submitted.place else ""
