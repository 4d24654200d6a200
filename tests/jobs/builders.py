"""Small pods and jobs."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
PREFIX = "kueue.x-k8s.io/"
GATE = f"{PREFIX}admission"


def pod(
    name: str = "p",
    *,
    phase: str = "Pending",
    gated: bool = False,
    node: str = "",
    cpu: str = "1",
    leaving: str = "",
    age: int = 0,
    finalizer: bool = True,
    labels: Json | None = None,
    notes: Json | None = None,
    **spec: Any,
) -> Json:
    """Return a pod; labels and notes are given without their prefix, `age` in minutes."""
    metadata: Json = {
        "name": name,
        "namespace": "team",
        "uid": name,
        "creationTimestamp": f"2026-01-01T00:{59 - age:02}:00Z",
        "labels": {f"{PREFIX}{key}": value for key, value in (labels or {}).items()},
        "annotations": {f"{PREFIX}{key}": value for key, value in (notes or {}).items()},
        "finalizers": [f"{PREFIX}managed"] if finalizer else [],
    }
    if leaving:
        metadata["deletionTimestamp"] = leaving
    body: Json = {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        **({"schedulingGates": [{"name": GATE}]} if gated else {}),
        **({"nodeName": node} if node else {}),
        **spec,
    }
    return {"metadata": metadata, "spec": body, "status": {"phase": phase}}


def template(cpu: str = "1", **spec: Any) -> Json:
    """Return a pod template."""
    return {
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec}
    }
