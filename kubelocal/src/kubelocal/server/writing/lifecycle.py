"""Namespaces and CustomResourceDefinitions: deleted when the last thing in them is.

A namespace being deleted refuses new objects, has its content deleted, and disappears with the
last object. A CRD being deleted does the same with the objects of its kind. In a real cluster
controllers do both; here the server does, since nothing works without it.
"""

from __future__ import annotations

from typing import Any, Final

from kubelocal.server.errors import StatusError, forbidden, not_found
from kubelocal.server.state import State
from kubelocal.server.types.kinds import Kind
from kubelocal.server.writing.options import DeleteOptions, Propagation

__all__ = [
    "BUILT_IN_NAMESPACES",
    "before_deletion",
    "check_deletable",
    "check_namespace",
    "deletion_marked",
    "removed",
    "resume",
]

BUILT_IN_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
_NAMESPACES: Final = "namespaces"
_DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"


def check_namespace(api: State, kind: Kind, namespace: str, name: str) -> None:
    """Refuse a create in a namespace that is missing (404) or being deleted (403)."""
    if not kind.namespaced:
        return
    stored = api.store.get(_NAMESPACES, "", namespace)
    if stored is None:
        namespaces = api.registry.find("", "v1", _NAMESPACES)
        assert namespaces is not None
        raise not_found(namespaces, namespace)
    if stored.fields.get("status.phase") == "Terminating":
        error = forbidden(
            kind,
            name,
            f"unable to create new content in namespace {namespace} because it is being terminated",
        )
        assert error.details is not None
        error.details["causes"] = [
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
        ]
        raise error


def check_deletable(kind: Kind, name: str) -> None:
    """Refuse to delete the namespaces and classes that a cluster cannot be without."""
    if kind.resource == "priorityclasses.scheduling.k8s.io" and name.startswith("system-"):
        raise forbidden(kind, name, "this is a system priority class and cannot be deleted")
    if kind.resource == _NAMESPACES and name in ("default", "kube-system", "kube-public"):
        raise forbidden(kind, name, "this namespace may not be deleted")


def before_deletion(kind: Kind, obj: dict[str, Any]) -> None:
    """Keep a definition until its objects are deleted."""
    if kind.resource == _DEFINITIONS and "deletionTimestamp" not in obj["metadata"]:
        finalizers = obj["metadata"].setdefault("finalizers", [])
        if _CLEANUP not in finalizers:
            finalizers.append(_CLEANUP)


def deletion_marked(api: State, kind: Kind, obj: dict[str, Any]) -> None:
    """Start to empty a namespace or a definition that has just been marked."""
    if kind.resource == _NAMESPACES and api.controllers:
        namespace = obj["metadata"]["name"]
        _drop_unserved(api, namespace)
        for inner in _distinct(api):
            if inner.namespaced:
                _delete_all(api, inner, namespace)
        _finish_namespace(api, namespace)
    elif kind.resource == _DEFINITIONS:
        for inner in _distinct(api):
            if inner.resource == obj["metadata"]["name"]:
                _delete_all(api, inner, None)
        _finish_definition(api, obj["metadata"]["name"])


def removed(api: State, kind: Kind, obj: dict[str, Any]) -> None:
    """Finish what only waited for this object."""
    namespace = obj["metadata"].get("namespace", "")
    if namespace:
        _finish_namespace(api, namespace)
    if kind.custom is not None:
        _finish_definition(api, kind.resource)


def resume(api: State) -> None:
    """Continue with deletions that a restart interrupted."""
    for resource in (_NAMESPACES, _DEFINITIONS):
        for stored in list(api.store.range(resource, None)):
            obj = stored.decode()
            if "deletionTimestamp" in obj["metadata"]:
                kind = api.registry.by_kind(obj["apiVersion"], obj["kind"])
                assert kind is not None
                deletion_marked(api, kind, obj)


def _distinct(api: State) -> list[Kind]:
    return [kind for kind in api.registry.all() if "delete" in kind.verbs]


def _drop_unserved(api: State, namespace: str) -> None:
    """Remove what a feature gate that has been switched off left behind; no other could."""
    for resource in api.store.resources():
        plural, _, group = resource.partition(".")
        if api.registry.stored(group, plural) is None:
            for stored in list(api.store.range(resource, namespace)):
                api.store.remove(resource, stored.decode())


def _delete_all(api: State, kind: Kind, namespace: str | None) -> None:
    for stored in list(api.store.range(kind.resource, namespace)):
        # One object that cannot be deleted must not keep the others.
        try:
            api.delete_now(
                kind,
                stored.namespace,
                stored.name,
                DeleteOptions(propagation=Propagation.BACKGROUND),
            )
        except StatusError:
            continue


def _finish_namespace(api: State, namespace: str) -> None:
    stored = api.store.get(_NAMESPACES, "", namespace)
    if (
        not api.controllers
        or stored is None
        or stored.fields.get("status.phase") != "Terminating"
        or api.store.objects_in(namespace)
    ):
        return
    obj = stored.decode()
    obj.get("spec", {}).pop("finalizers", None)
    if obj["metadata"].get("finalizers"):
        api.store.put(_NAMESPACES, obj)
    else:
        api.store.remove(_NAMESPACES, obj)


def _finish_definition(api: State, name: str) -> None:
    stored = api.store.get(_DEFINITIONS, "", name)
    if stored is None or api.store.count(name):
        return
    obj = stored.decode()
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata:
        return
    metadata["finalizers"] = [one for one in metadata.get("finalizers", ()) if one != _CLEANUP]
    if metadata["finalizers"]:
        api.store.put(_DEFINITIONS, obj)
    else:
        api.registry.remove(name)
        api.store.remove(_DEFINITIONS, obj)
