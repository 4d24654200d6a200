"""The finalizer that keeps an object of the quota plane's administrators while it is in use.

Source: specification of the quota plane, section 12.
"""

from __future__ import annotations

from reprieve.kube.bodies import Json
from reprieve.kube.client import Client
from reprieve.kube.resource import Resource

__all__ = ["toggle_finalizer"]


async def toggle_finalizer(
    client: Client, resource: Resource, name: str, uid: str, finalizer: str
) -> None:
    """Set the finalizer on an object of this uid that stays, and remove it from a deleted one.

    Raises:
        ApiError: the API server refused; `NotFound` where there is none of that name.
    """

    def change(current: Json) -> Json | None:
        metadata = current["metadata"]
        finalizers = metadata.get("finalizers") or []
        goes = "deletionTimestamp" in metadata
        if metadata["uid"] != uid or goes != (finalizer in finalizers):
            return None
        others: list[str] = [each for each in finalizers if each != finalizer]
        metadata["finalizers"] = others if goes else [*others, finalizer]
        return current

    await client.modify(resource, "", name, change)
