"""How Reprieve's own objects are known, and which of its Deployments run the operator.

One rule for what uninstalls, what registers and what queries as the operator does. A Deployment
runs the operator if it has the chart's label and a container of it runs `reprieve run`; the page's
Deployment has the label, too, and runs `reprieve web`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from reprieve.kube.bodies import Json
from reprieve.kube.reader import Reader
from reprieve.kube.resource import Resource

__all__ = [
    "DEPLOYMENTS",
    "OURS",
    "OUR_SELECTOR",
    "PART_OF",
    "is_ours",
    "operator_container",
    "operator_deployments",
]

DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
PART_OF: Final = "app.kubernetes.io/part-of"
#: The labels of all objects of Reprieve.
OURS: Final[Mapping[str, str]] = MappingProxyType({PART_OF: "reprieve"})
OUR_SELECTOR: Final = f"{PART_OF}={OURS[PART_OF]}"


def is_ours(obj: Json) -> bool:
    """Return whether an object has the labels of Reprieve's own ones."""
    return OURS.items() <= (obj["metadata"].get("labels") or {}).items()


def operator_container(deployment: Json) -> Mapping[str, Any] | None:
    """Return the container of a Deployment that runs the operator; None if none does."""
    for container in deployment["spec"]["template"]["spec"].get("containers") or ():
        if (container.get("args") or [""])[0] == "run":
            return dict(container)
    return None


async def operator_deployments(reader: Reader, namespace: str = "") -> list[Json]:
    """Return the operator's Deployments of a namespace, of all if it is empty.

    Raises:
        ApiError: they may not be listed there, or cannot be.
    """
    found = await reader.list(DEPLOYMENTS, dict, namespace=namespace, label_selector=OUR_SELECTOR)
    return [each for each in found.items if operator_container(each) is not None]
