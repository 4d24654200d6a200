"""The only way from `reprieve web` to the API server: it reads, and queries who may do what.

It carries GET, and POST of the two questions that change nothing: whose token this is (TokenReview)
and what a user may do (SubjectAccessReview). Everything else is refused before it is sent, so that
no fault in the page can change the cluster.
"""

from __future__ import annotations

from typing import Final

from reprieve.kube.transport import Answer, Request, Wire
from reprieve.whatif.copy.wire import WouldWrite

__all__ = ["ACCESS_REVIEWS", "TOKEN_REVIEWS", "ReviewingWire"]

TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class ReviewingWire:
    """A wire that carries reads and reviews."""

    def __init__(self, inner: Wire) -> None:
        self._inner = inner

    async def send(self, request: Request, stream: bool, rejected: bool) -> Answer:
        """Return the answer.

        Raises:
            WouldWrite: it is neither a read nor a review.
            Unreachable: no answer.
        """
        review = request.method == "POST" and request.path in (TOKEN_REVIEWS, ACCESS_REVIEWS)
        if request.method != "GET" and not review:
            raise WouldWrite(f"{request.method} {request.path}")
        return await self._inner.send(request, stream, rejected)

    async def close(self) -> None:
        await self._inner.close()
