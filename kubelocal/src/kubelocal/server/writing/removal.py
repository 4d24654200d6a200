"""The synchronous step of a delete: preconditions, webhooks, marks, the end of what is finished.

Source: the generic registry of k8s.io/apiserver.
"""

from __future__ import annotations

from typing import Any

from kubelocal.server.admitting import quotas, webhooks
from kubelocal.server.errors import precondition_failed
from kubelocal.server.state import State
from kubelocal.server.types import conversion, definitions
from kubelocal.server.types.kinds import Kind
from kubelocal.server.writing import lifecycle
from kubelocal.server.writing.deletion import is_finished, marked
from kubelocal.server.writing.options import DeleteOptions

__all__ = ["delete", "remove"]


def delete(
    api: State,
    kind: Kind,
    namespace: str,
    name: str,
    options: DeleteOptions,
    *,
    asking: bool = True,
) -> dict[str, Any]:
    """Delete: the object as it is now if something keeps it, else a Status of success.

    `asking`: the validating webhooks are called; deletions by the server itself call none.

    Raises:
        StatusError: 403, 404 or 409.
    """
    obj = api.read(kind, namespace, name)
    metadata = obj["metadata"]
    if options.uid is not None and options.uid != metadata["uid"]:
        raise precondition_failed(kind, name, "UID", options.uid, metadata["uid"])
    version = options.resource_version
    if version is not None and version != metadata["resourceVersion"]:
        raise precondition_failed(
            kind, name, "ResourceVersion", version, metadata["resourceVersion"]
        )
    lifecycle.check_deletable(kind, name)
    if asking:
        request = webhooks.Request(kind, "DELETE", namespace, name, obj, options)
        webhooks.validated(api, request, None)
    lifecycle.before_deletion(kind, obj)
    before, obj = obj, marked(kind, obj, options, api.clock.wall())
    changed = obj is not before
    finished = is_finished(kind, obj)
    if options.dry_run:
        return _success(kind, metadata) if finished else obj
    kept = conversion.to_storage(api.registry, api.store, kind, obj)
    if finished:
        if changed and kind.resource == "pods":
            # Watchers are shown the deletion of a pod before its end, even without grace.
            api.store.put("pods", kept)
        remove(api, kind, kept)
        return _success(kind, metadata)
    if changed:
        api.store.put(conversion.shelf(kind), kept)
    lifecycle.deletion_marked(api, kind, kept)
    return conversion.answered(kind, obj, kept)


def remove(api: State, kind: Kind, kept: dict[str, Any]) -> None:
    """Remove an object from the store, with what follows from that."""
    api.store.remove(conversion.shelf(kind), kept)
    definitions.removed(api, kind, kept)
    quotas.written(api, kind, None, kept)
    lifecycle.removed(api, kind, kept)


def _success(kind: Kind, metadata: dict[str, Any]) -> dict[str, Any]:
    details = {"name": metadata["name"], "group": kind.group, "kind": kind.plural}
    if not kind.group:
        del details["group"]
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {**details, "uid": metadata["uid"]},
    }
