"""Whether the API server would take the pods that jobs describe, which it sees once they are made.

A job with a pod template that no admission lets pass is stored, and never has a pod. So

1. a PriorityClass or RuntimeClass that a template names has to be in the cluster, or in the same
   submission: the plugins Priority and RuntimeClass refuse pods that name another one
2. with an API server, one pod of each template is created in a dry run, so that quotas of the
   namespace, limits, policies and webhooks answer themselves. Who may not create pods does not
   know; so does who is told that a pod is not valid, since the controllers of some kinds complete
   their templates first.

Source: the API server's admission plugins; the API's `dryRun=All`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from reprieve.jobs.paths import Json, first, values
from reprieve.jobs.pod_sets import found_pod_sets
from reprieve.kube.errors import ApiError, Call, Forbidden
from reprieve.kube.reader import Reader
from reprieve.kube.resource import PODS, Resource
from reprieve.kube.transport import Request
from reprieve.units.errors import ReprieveError, UsageError
from reprieve.whatif.pod_templates import PRIORITIES, RUNTIME_CLASSES
from reprieve.whatif.snapshot import Snapshot
from reprieve.whatif.submission import Document, Submitted
from reprieve.whatif.unjudged import Kinds

__all__ = ["check_classes", "dry_run_pods"]

#: Every API server makes these itself, where nobody may list them, too.
_OWN_CLASSES: Final = frozenset({"system-cluster-critical", "system-node-critical"})
_MOST_TEMPLATES: Final = 20
_MOST_NAMED: Final = 8
_NO_RIGHT: Final = "cannot create resource"
_USED_UP: Final = "exceeded quota"
_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_CLASSES: Final = ((PRIORITIES, "priorityClassName"), (RUNTIME_CLASSES, "runtimeClassName"))


def check_classes(snapshot: Snapshot, submitted: Sequence[Submitted], kinds: Kinds) -> None:
    """Refuse pods and templates that name a class which is not there, as the API server does.

    Raises:
        UsageError: says which, and what there is.
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


async def dry_run_pods(client: Reader, submitted: Sequence[Submitted], kinds: Kinds) -> None:
    """Create one pod of each template in a dry run; nothing is stored.

    Raises:
        ReprieveError: the API server would refuse the pods of one; it says why.
    """
    asked: set[bytes] = set()
    for each in submitted:
        if not each.judged or (each.resource.group, each.resource.plural) == ("", "pods"):
            continue
        namespace = str(each.object["metadata"].get("namespace", ""))
        for template in _templates(each, kinds):
            body = msgspec.json.encode(_pod(each, template))
            if body in asked or len(asked) >= _MOST_TEMPLATES:
                continue
            asked.add(body)
            await _dry_run(client, each, namespace, body)


async def _dry_run(client: Reader, submitted: Submitted, namespace: str, body: bytes) -> None:
    query = {"dryRun": "All", "fieldManager": "reprieve"}
    request = Request("POST", PODS.path(namespace), query, body)
    try:
        await client.transport.request(request, Call.on("create", PODS, namespace, ""))
    except Forbidden as refusal:
        labels = submitted.object["metadata"].get("labels") or {}
        if _NO_RIGHT in refusal.message or (_USED_UP in refusal.message and labels.get(_QUEUE)):
            return
        title = Document(submitted.object, submitted.place).title
        raise ReprieveError(
            f"{_placed(submitted)}the API server refuses the pods of {title}: {refusal.message}"
        ) from None
    except ApiError:
        pass


def _pod(submitted: Submitted, template: Json) -> Json:
    given = template.get("metadata") or {}
    name = str(submitted.object["metadata"].get("name") or "pod")
    metadata = {part: given[part] for part in ("labels", "annotations") if given.get(part)}
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
