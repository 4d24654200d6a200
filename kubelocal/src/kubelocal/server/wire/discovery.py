"""Discovery: which groups, versions and resources there are, in the old and the aggregated form.

Source: documents of a 1.37 server. kubectl requests the aggregated form with two requests; other
clients walk `/api`, `/apis`, `/apis/GROUP` and `/apis/GROUP/VERSION`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from kubelocal.server.types.kinds import Kind
from kubelocal.server.types.registry import Registry
from kubelocal.server.types.version_ranks import version_rank

__all__ = ["SUBRESOURCES", "aggregated", "legacy"]

SUBRESOURCES: Final[Mapping[str, tuple[str, str, str, tuple[str, ...]]]] = {
    "attach": ("", "", "PodAttachOptions", ("create", "get")),
    "binding": ("", "", "Binding", ("create",)),
    "ephemeralcontainers": ("", "", "", ("get", "patch", "update")),
    "eviction": ("policy", "v1", "Eviction", ("create",)),
    "exec": ("", "", "PodExecOptions", ("create", "get")),
    "finalize": ("", "", "", ("update",)),
    "log": ("", "", "", ("get",)),
    "portforward": ("", "", "PodPortForwardOptions", ("create", "get")),
    "proxy": ("", "", "ProxyOptions", ("create", "delete", "get", "patch", "update")),
    "resize": ("", "", "", ("get", "patch", "update")),
    "scale": ("autoscaling", "v1", "Scale", ("get", "patch", "update")),
    "status": ("", "", "", ("get", "patch", "update")),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ("create",)),
}
"""Group, version and kind (empty: those of the resource) and verbs of each subresource."""

_CUSTOM_VERBS: Final = (
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
)


def legacy(registry: Registry, path: str, address: str = "") -> dict[str, Any] | None:
    """Return the document at `/api`, `/api/v1`, `/apis`, `/apis/GROUP[/VERSION]`, or None.

    `address`: host and port at which clients reach the server.
    """
    match [part for part in path.split("/") if part]:
        case ["api"]:
            reachable = {"clientCIDR": "0.0.0.0/0", "serverAddress": address}
            return {
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [reachable],
            }
        case ["api", "v1"]:
            return _resource_list(registry, "", "v1")
        case ["apis"]:
            groups = [_group(name, versions) for name, versions in _groups(registry).items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", name]:
            versions = _groups(registry).get(name)
            if versions is None:
                return None
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}
        case ["apis", name, version]:
            return _resource_list(registry, name, version)
    return None


def aggregated(registry: Registry, core: bool) -> bytes:
    """Return the APIGroupDiscoveryList of `/api` (`core`) or of `/apis`."""
    groups = {"": ["v1"]} if core else _groups(registry)
    items = []
    for name, versions in groups.items():
        entries = [
            {
                "version": version,
                "resources": [_aggregated(kind) for kind in _kinds(registry, name, version)],
                "freshness": "Current",
            }
            for version in versions
        ]
        items.append({"metadata": {"name": name} if name else {}, "versions": entries})
    return orjson.dumps(
        {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": items,
        }
    )


def _groups(registry: Registry) -> dict[str, list[str]]:
    """Return the versions of each named group, most stable and newest first."""
    groups: dict[str, set[str]] = {}
    for kind in registry.all():
        if kind.group:
            groups.setdefault(kind.group, set()).add(kind.version)
    return {
        name: sorted(versions, key=version_rank, reverse=True) for name, versions in groups.items()
    }


def _group(name: str, versions: Sequence[str]) -> dict[str, Any]:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _kinds(registry: Registry, group: str, version: str) -> list[Kind]:
    return [kind for kind in registry.all() if (kind.group, kind.version) == (group, version)]


def _verbs(kind: Kind) -> list[str]:
    return list(_CUSTOM_VERBS if kind.custom is not None else kind.verbs)


def _names(kind: Kind) -> dict[str, Any]:
    names: dict[str, Any] = {}
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    if kind.categories:
        names["categories"] = list(kind.categories)
    return names


def _subresources(kind: Kind) -> list[str]:
    # The real server names a custom kind's status before its scale, a built-in kind's by alphabet.
    return sorted(kind.subresources, reverse=kind.custom is not None)


def _subresource(kind: Kind, name: str) -> tuple[str, str, str, tuple[str, ...]]:
    group, version, other, verbs = SUBRESOURCES[name]
    return group, version, f"{kind.kind}{other}" if name == "proxy" else other, verbs


def _aggregated(kind: Kind) -> dict[str, Any]:
    own = (
        {"group": kind.group, "version": kind.version, "kind": kind.kind}
        if kind.custom is not None
        else {"group": "", "version": "", "kind": kind.kind}
    )
    entry: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": own,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": _verbs(kind),
        **_names(kind),
    }
    if kind.subresources:
        entry["subresources"] = []
        for name in _subresources(kind):
            group, version, other, verbs = _subresource(kind, name)
            response = {"group": group, "version": version, "kind": other} if other else own
            entry["subresources"].append(
                {"subresource": name, "responseKind": response, "verbs": list(verbs)}
            )
    return entry


def _resource_list(registry: Registry, group: str, version: str) -> dict[str, Any] | None:
    kinds = _kinds(registry, group, version)
    if not kinds:
        return None
    resources = []
    for kind in kinds:
        entry: dict[str, Any] = {
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": _verbs(kind),
            **_names(kind),
        }
        if "watch" in kind.verbs:
            entry["storageVersionHash"] = _storage_hash(kind)
        resources.append(entry)
        for name in _subresources(kind):
            own_group, own_version, other, verbs = _subresource(kind, name)
            entry = {
                "name": f"{kind.plural}/{name}",
                "singularName": "",
                "namespaced": kind.namespaced,
            }
            if own_group:
                entry |= {"group": own_group, "version": own_version}
            resources.append({**entry, "kind": other or kind.kind, "verbs": list(verbs)})
    document: dict[str, Any] = {"kind": "APIResourceList"}
    if group:
        # The core group's list alone does not state its version.
        document["apiVersion"] = "v1"
    document["groupVersion"] = f"{group}/{version}" if group else version
    return {**document, "resources": resources}


def _storage_hash(kind: Kind) -> str:
    text = f"{kind.group}/{kind.version}/{kind.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()
