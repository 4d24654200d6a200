"""Writes to others' objects that say what a scheduler found: statuses of pods and pod groups.

Nobody is evicted or moved by them. The client is one whose writes are fenced. Source: specification
of the scheduling plane, section 12.
"""

from __future__ import annotations

from typing import TypeVar

from reprieve.kube.bodies import Json, PatchType
from reprieve.kube.client import Client
from reprieve.kube.resource import Resource

__all__ = ["patch_group_phase", "patch_scheduling_status"]

T = TypeVar("T")


async def patch_scheduling_status(
    client: Client, resource: Resource, namespace: str, name: str, uid: str, status: Json
) -> Json:
    """Merge conditions and the nominated node into the status of a pod or PodGroup of this uid.

    Raises:
        ApiError: the API server refused; `NotFound` and `Conflict` where it is another object now.
    """
    answer: Json = await client.patch(
        resource,
        namespace,
        name,
        {"metadata": {"uid": uid}, "status": status},
        dict,
        patch_type=PatchType.STRATEGIC,
        subresource="status",
        retry=True,
    )
    return answer


async def patch_group_phase(
    client: Client,
    resource: Resource,
    namespace: str,
    name: str,
    status: Json,
    wire: type[T],
    *,
    subresource: bool,
) -> T:
    """Write what changed in the status of a pod group of Koordinator or scheduler-plugins.

    Raises:
        ApiError: the API server refused.
    """
    return await client.patch(
        resource,
        namespace,
        name,
        {"status": status},
        wire,
        subresource="status" if subresource else "",
    )
