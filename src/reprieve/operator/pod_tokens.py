"""Which pod asks: its projected service account token, reviewed for our audience (TokenReview).

A token counts only with the audience `reprieve.dev` and the uid of a pod. Answers are kept for a
while, and of those that let nobody in only a few, since whoever reaches the port can invent tokens.
At most a few questions are asked of the API server at once; who has to wait for long is told that
nobody knows. Source: the API's TokenReview; the threat model in `docs/security.md`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from typing import Any, Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.api.preemption_notice import NOTICE_AUDIENCE
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError
from reprieve.operator.metrics_access import TOKEN_REVIEWS

__all__ = ["PodTokens", "Undecided"]

log: Final = logging.getLogger(__name__)

_POD_UID: Final = "authentication.kubernetes.io/pod-uid"
_MOST_PODS: Final = 32_768
_MOST_STRANGERS: Final = 256
_AT_ONCE: Final = 8
_WAIT_S: Final = 5.0
_LIFE: Final = {True: 60 * SECOND, False: 10 * SECOND}  # by whether it is a pod's


class Undecided(Exception):
    """The API server did not say whose token it is."""


class PodTokens:
    """Called with a token; returns the uid of the pod that it was made for, empty for none."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        # By digest: the uid, and until when it holds. Those of pods, and those of strangers.
        self._known: dict[bool, OrderedDict[bytes, tuple[str, int]]] = {
            True: OrderedDict(),
            False: OrderedDict(),
        }
        self._asking = asyncio.Semaphore(_AT_ONCE)

    async def __call__(self, token: str) -> str:
        """Return the uid of a pod, empty for a token that is nobody's.

        Raises:
            Undecided: the API server did not say.
        """
        key = hashlib.sha256(token.encode(errors="replace")).digest()
        now = self._clock.monotonic()
        for known in self._known.values():
            uid, until = known.get(key, ("", 0))
            if until > now:
                return uid
        try:
            async with asyncio.timeout(_WAIT_S):
                await self._asking.acquire()
        except TimeoutError:
            raise Undecided from None
        try:
            uid = await self._asked(token)
        finally:
            self._asking.release()
        kept = self._known[bool(uid)]
        kept[key] = uid, self._clock.monotonic() + _LIFE[bool(uid)]
        while len(kept) > (_MOST_PODS if uid else _MOST_STRANGERS):
            kept.popitem(last=False)
        return uid

    async def _asked(self, token: str) -> str:
        review = {"spec": {"token": token, "audiences": [NOTICE_AUDIENCE]}}
        try:
            answer: dict[str, Any] = await self._client.create(TOKEN_REVIEWS, review, dict)
        except ApiError as error:
            log.warning("the API server does not review tokens of pods: %s", error)
            raise Undecided from None
        status = answer.get("status") or {}
        meant = status.get("audiences") or ()
        if not status.get("authenticated") or NOTICE_AUDIENCE not in meant:
            return ""
        extra = (status.get("user") or {}).get("extra") or {}
        return next(iter(extra.get(_POD_UID) or ()), "")
