"""What the operator may do, checked at the API server before it matters."""

from __future__ import annotations

from typing import Final

from reprieve.kube.bodies import Json
from reprieve.kube.client import Client
from reprieve.kube.resource import Resource
from reprieve.kube.retry import AWAY, retried

__all__ = ["SELF_SUBJECT_ACCESS_REVIEWS", "permitted"]

SELF_SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False
)


async def permitted(
    client: Client,
    resource: Resource,
    verb: str,
    *,
    subresource: str = "",
    namespace: str = "",
    name: str = "",
) -> bool:
    """Return whether the API server would allow this process to do it.

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
    # A review changes nothing, so the request may be repeated.
    review: Json = await retried(
        lambda: client.create(SELF_SUBJECT_ACCESS_REVIEWS, question, dict),
        client.transport.pause,
        AWAY,
    )
    return bool(review["status"]["allowed"])
