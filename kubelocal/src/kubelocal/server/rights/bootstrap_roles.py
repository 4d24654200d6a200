"""The roles that every cluster with access rules has: for people, for discovery, for everybody.

Source: the bootstrap policy of the RBAC authorizer, for the kinds that are served here. `admin`,
`edit` and `view` are aggregated, so that other roles add to them by their labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kubelocal.server.rights.identity import MASTERS

__all__ = ["bootstrap_objects"]

_GROUP: Final = "rbac.authorization.k8s.io"
_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "delete", "deletecollection", "patch", "update")
_EVERYBODY: Final = ("system:authenticated",)
_ANYBODY: Final = ("system:authenticated", "system:unauthenticated")

# group -> what people with the role `view` read, and with `edit` write.
_WORKLOADS: Final = {
    "": (
        "configmaps persistentvolumeclaims pods replicationcontrollers replicationcontrollers/scale"
        " serviceaccounts services"
    ),
    "apps": (
        "daemonsets deployments deployments/scale replicasets replicasets/scale statefulsets"
        " statefulsets/scale"
    ),
    "batch": "cronjobs jobs",
    "policy": "poddisruptionbudgets",
    "scheduling.k8s.io": "podgroups workloads",
}
_READ_ONLY: Final = {
    "": (
        "bindings events limitranges namespaces namespaces/status pods/log pods/status"
        " resourcequotas resourcequotas/status services/status"
    ),
    "apps": "daemonsets/status deployments/status replicasets/status statefulsets/status",
    "batch": "cronjobs/status jobs/status",
    "discovery.k8s.io": "endpointslices",
    "policy": "poddisruptionbudgets/status",
}
_EDITED: Final = {
    "": "pods/attach pods/exec pods/portforward secrets",
    "coordination.k8s.io": "leases",
}


def bootstrap_objects() -> Iterator[dict[str, Any]]:
    """Yield roles and bindings as they are stored."""
    yield _role("cluster-admin", [_rule(("*",), "*", "*"), _paths(("*",), "*")])
    yield from _people()
    yield _role(
        "system:basic-user",
        [
            _rule(("create",), "authorization.k8s.io", "selfsubjectaccessreviews"),
            _rule(("create",), "authorization.k8s.io", "selfsubjectrulesreviews"),
            _rule(("create",), "authentication.k8s.io", "selfsubjectreviews"),
        ],
    )
    health = "/healthz /livez /readyz /version /version/"
    discovery = f"/api /api/* /apis /apis/* /openapi /openapi/* {health}"
    yield _role("system:discovery", [_paths(("get",), discovery)])
    yield _role("system:public-info-viewer", [_paths(("get",), health)])
    yield _binding("cluster-admin", (MASTERS,))
    yield _binding("system:basic-user", _EVERYBODY)
    yield _binding("system:discovery", _EVERYBODY)
    yield _binding("system:public-info-viewer", _ANYBODY)


def _people() -> Iterator[dict[str, Any]]:
    for name, lower in (("view", ()), ("edit", ("view",)), ("admin", ("edit", "view"))):
        selectors = [{"matchLabels": {_label(one): "true"}} for one in (name, *lower)]
        yield {**_role(name, []), "aggregationRule": {"clusterRoleSelectors": selectors}}
    read = [_rule(_READ, group, words) for group, words in _WORKLOADS.items()]
    read += [_rule(_READ, group, words) for group, words in _READ_ONLY.items()]
    write = [_rule(_WRITE, group, words) for group, words in _WORKLOADS.items()]
    write += [_rule((*_READ, *_WRITE), group, words) for group, words in _EDITED.items()]
    write += [
        _rule(("create",), "", "pods/eviction serviceaccounts/token"),
        _rule(("impersonate",), "", "serviceaccounts"),
    ]
    own = [
        _rule((*_READ, *_WRITE), _GROUP, "roles rolebindings"),
        _rule(("create",), "authorization.k8s.io", "localsubjectaccessreviews"),
    ]
    for name, rules in (("view", read), ("edit", write), ("admin", own)):
        role = _role(f"system:aggregate-to-{name}", rules)
        role["metadata"]["labels"][_label(name)] = "true"
        yield role


def _label(name: str) -> str:
    return f"{_GROUP}/aggregate-to-{name}"


def _rule(verbs: Sequence[str], group: str, resources: str) -> dict[str, Any]:
    return {"verbs": list(verbs), "apiGroups": [group], "resources": resources.split()}


def _paths(verbs: Sequence[str], paths: str) -> dict[str, Any]:
    return {"verbs": list(verbs), "nonResourceURLs": paths.split()}


def _head(kind: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
    }


def _role(name: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    return {**_head("ClusterRole", name), "rules": rules}


def _binding(name: str, groups: Sequence[str]) -> dict[str, Any]:
    return {
        **_head("ClusterRoleBinding", name),
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": _GROUP, "kind": "Group", "name": one} for one in groups],
    }
