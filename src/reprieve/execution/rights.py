"""What the operator may do, asked of the API server before it matters."""

from __future__ import annotations

from typing import Final

from reprieve.kube.bodies import Json
from reprieve.kube.client import Client
from reprieve.kube.errors import ServerError, TooManyRequests
from reprieve.kube.resource import Resource

__all__ = ["SELF_SUBJECT_ACCESS_REVIEWS", "permitted"]

SELF_SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False
)
_ATTEMPTS: Final = 5


async def permitted(
    client: Client,
    resource: Resource,
    verb: str,
    *,
    subresource: str = "",
    namespace: str = "",
    name: str = "",
) -> bool:
    """Return whether the API server would let this process do it.

    Raises:
        ApiError: the question was not answered.
    """
    attributes = {
        "verb": verb,
        "group": resource.group,
        "resource": resource.plural,
        "subresource": subresource,
        "namespace": namespace,
        "name": name,
    }
    question = {"spec": {"resourceAttributes": attributes}}
    for attempt in range(_ATTEMPTS):
        try:
            review: Json = await client.create(SELF_SUBJECT_ACCESS_REVIEWS, question, dict)
        except (ServerError, TooManyRequests):
            if attempt == _ATTEMPTS - 1:
                raise
            # A question changes nothing, so it may be asked again.
            await client.transport.pause(attempt)
        else:
            return bool(review["status"]["allowed"])
    raise AssertionError("the last attempt returns or raises")
