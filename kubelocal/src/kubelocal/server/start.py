"""What a cluster has before the first write: namespaces and the system priority classes."""

from __future__ import annotations

import uuid
from typing import Any

from kubelocal.server.admitting.admission import SYSTEM_PRIORITY_CLASSES
from kubelocal.server.api import Api
from kubelocal.server.rights.bootstrap_roles import bootstrap_objects
from kubelocal.server.types import definitions
from kubelocal.server.writing import lifecycle
from kubeworld.units.instants import format_instant

__all__ = ["start_cluster"]


def start_cluster(api: Api, *, roles: bool = False) -> None:
    """Fill a new store, or adopt what an earlier process left; `roles`: also with roles."""
    definitions.install_stored(api)
    for name in lifecycle.BUILT_IN_NAMESPACES:
        _ensure(
            api,
            "namespaces",
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            },
        )
    for name, (value, description) in SYSTEM_PRIORITY_CLASSES.items():
        _ensure(
            api,
            "priorityclasses.scheduling.k8s.io",
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name, "generation": 1},
                "value": value,
                "description": description,
                "preemptionPolicy": "PreemptLowerPriority",
            },
        )
    if roles:
        for obj in bootstrap_objects():
            _ensure(api, f"{obj['kind'].lower()}s.rbac.authorization.k8s.io", obj)
    lifecycle.resume(api)


def _ensure(api: Api, resource: str, obj: dict[str, Any]) -> None:
    metadata = obj["metadata"]
    if api.store.get(resource, "", metadata["name"]) is None:
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = format_instant(api.clock.wall())
        api.store.put(resource, obj)
