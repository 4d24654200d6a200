"""API objects as plain mappings, read both ways: from the mapping and from bytes."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from reprieve.api.scheduling import PodObject
from reprieve.engine.cluster.rows import PodClass, PodRow
from reprieve.intake.cluster.pod_classes import PodClasses, pod_class
from reprieve.intake.cluster.pods import pod_row

T = TypeVar("T")


def read(kind: type[T], manifest: dict[str, Any]) -> T:
    """The object, which must be the same from the mapping and from bytes."""
    converted = msgspec.convert(manifest, kind)
    assert msgspec.json.decode(msgspec.json.encode(manifest), type=kind) == converted
    return converted


def pod(
    *containers: dict[str, Any], init: list[dict[str, Any]] | None = None, **spec: Any
) -> dict[str, Any]:
    """A pod `default/p` with these containers; `metadata` and `status` may be given."""
    metadata = {"name": "p", "namespace": "default", "uid": "u", **spec.pop("metadata", {})}
    status = spec.pop("status", {})
    return {
        "metadata": metadata,
        "spec": {"containers": list(containers), "initContainers": init or [], **spec},
        "status": status,
    }


def container(
    name: str = "c", restart: Any = None, more: Any = None, **requests: Any
) -> dict[str, Any]:
    """A container with these requests (`gpu` is nvidia.com/gpu)."""
    if "gpu" in requests:
        requests["nvidia.com/gpu"] = requests.pop("gpu")
    made = {"name": name, "image": "i:1", "resources": {"requests": requests}, **(more or {})}
    return made if restart is None else {**made, "restartPolicy": restart}


# Pods of all tests that run in this process, as if one controller had made them.
_OF_ONE_CONTROLLER = PodClasses()


def row_of(manifest: dict[str, Any]) -> PodRow:
    """The row, which is the same with and without the memory of classes, whoever came before."""
    found = read(PodObject, manifest)
    assert _OF_ONE_CONTROLLER.of(found, "one") == pod_class(found)
    classes = PodClasses()
    row = pod_row(found)
    assert pod_row(found, classes) == row == pod_row(found, classes)
    return row


def class_of(manifest: dict[str, Any]) -> PodClass:
    """The class of a pod."""
    return row_of(manifest).pod_class
