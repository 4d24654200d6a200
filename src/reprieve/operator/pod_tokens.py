"""Which pod calls: its projected service account token, reviewed for our audience (TokenReview).

A token counts only with the audience `reprieve.dev` and the uid of a pod. Answers are kept for a
while, and of those that grant no access only a few, since any client of the port can invent tokens.
At most a few questions to the API server are in flight at once; a client that has to wait for long
gets the answer that its pod is unknown. Source: the API's TokenReview; the threat model in
`docs/security.md`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from typing import Any, Final, NamedTuple

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.api.preemption_notice import NOTICE_AUDIENCE
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError
from reprieve.operator.metrics_access import TOKEN_REVIEWS

__all__ = ["PodTokens", "ShownPod", "Undecided"]

log: Final = logging.getLogger(__name__)

_POD_UID: Final = "authentication.kubernetes.io/pod-uid"
_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_ACCOUNT: Final = "system:serviceaccount:"
_MOST_PODS: Final = 32_768
_MOST_STRANGERS: Final = 256
_AT_ONCE: Final = 8
_WAIT_S: Final = 5.0
_LIFE: Final = {True: 60 * SECOND, False: 10 * SECOND}  # by whether it is a pod's


class Undecided(Exception):
    """The API server did not answer whose token it is."""


class ShownPod(NamedTuple):
    """The pod that a token was made for; without a name where the API server does not state it."""

    uid: str = ""
    namespace: str = ""
    name: str = ""


_NOBODY: Final = ShownPod()


class PodTokens:
    """Called with a token; returns the pod that it was made for, without a uid for none."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        # By digest: the pod, and until when it holds. Those of pods, and those of strangers.
        self._known: dict[bool, OrderedDict[bytes, tuple[ShownPod, int]]] = {
            True: OrderedDict(),
            False: OrderedDict(),
        }
        self._asking = asyncio.Semaphore(_AT_ONCE)

    async def __call__(self, token: str) -> ShownPod:
        """Return the pod of a token, without a uid for a token of no pod.

        Raises:
            Undecided: the API server did not state.
        """
        key = hashlib.sha256(token.encode(errors="replace")).digest()
        now = self._clock.monotonic()
        for known in self._known.values():
            pod, until = known.get(key, (_NOBODY, 0))
            if until > now:
                return pod
        try:
            async with asyncio.timeout(_WAIT_S):
                await self._asking.acquire()
        except TimeoutError:
            raise Undecided from None
        try:
            pod = await self._asked(token)
        finally:
            self._asking.release()
        kept = self._known[bool(pod.uid)]
        kept[key] = pod, self._clock.monotonic() + _LIFE[bool(pod.uid)]
        while len(kept) > (_MOST_PODS if pod.uid else _MOST_STRANGERS):
            kept.popitem(last=False)
        return pod

    async def _asked(self, token: str) -> ShownPod:
        review = {"spec": {"token": token, "audiences": [NOTICE_AUDIENCE]}}
        try:
            answer: dict[str, Any] = await self._client.create(TOKEN_REVIEWS, review, dict)
        except ApiError as error:
            log.warning("the API server does not review the tokens of pods: %s", error)
            raise Undecided from None
        status = answer.get("status") or {}
        meant = status.get("audiences") or ()
        if not status.get("authenticated") or NOTICE_AUDIENCE not in meant:
            return _NOBODY
        user = status.get("user") or {}
        extra = user.get("extra") or {}
        uid, name = (next(iter(extra.get(key) or ()), "") for key in (_POD_UID, _POD_NAME))
        namespace, _, _ = str(user.get("username", "")).removeprefix(_ACCOUNT).partition(":")
        return ShownPod(uid, namespace, name)
