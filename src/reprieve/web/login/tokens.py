"""Whose token is this, remembered: 60 s who a user is, 5 s that a token is of no user.

Tokens are known by their digest alone. Questions about one token are sent once, however many wait
for the answer; of all answers only the last ones are kept, since everybody can invent tokens.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import Final, NamedTuple

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.web.login.reviews import Identity, Reviews

__all__ = ["FRESH", "Tokens"]

_KNOWN: Final = 60 * SECOND
_UNKNOWN: Final = 5 * SECOND
#: A query that is made anew gets no answer that is older than this.
FRESH: Final = 5 * SECOND
_KEPT: Final = 1024
_LONGEST: Final = 16 * 1024


class _Answer(NamedTuple):
    identity: Identity | None
    at: Nanos


class Tokens:
    """Identities by token."""

    def __init__(self, reviews: Reviews, clock: Clock) -> None:
        self._reviews = reviews
        self._clock = clock
        self._answers: OrderedDict[bytes, _Answer] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[Identity | None]] = {}

    def remembered(self, token: str, *, anew: bool = False) -> tuple[bool, Identity | None]:
        """Return whether there is an answer that is young enough, and the answer."""
        key = _digest(token)
        found = self._answers.get(key)
        if found is None:
            return len(token) > _LONGEST, None
        age = self._clock.monotonic() - found.at
        life = _UNKNOWN if found.identity is None else FRESH if anew else _KNOWN
        if age >= life:
            return False, None
        self._answers.move_to_end(key)
        return True, found.identity

    async def identity(self, token: str, *, anew: bool = False) -> Identity | None:
        """Return whose token this is, None where it is of no user.

        Raises:
            Unverified: the API server does not state.
        """
        known, identity = self.remembered(token, anew=anew)
        if known:
            return identity
        key = _digest(token)
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.create_task(self._ask(key, token))
        # A request that hangs up must not cancel the answer for the others.
        return await asyncio.shield(asking)

    def forget(self, token: str) -> None:
        """Query the API server for this token next time."""
        self._answers.pop(_digest(token), None)

    async def _ask(self, key: bytes, token: str) -> Identity | None:
        try:
            identity = await self._reviews.identity(token)
            self._answers[key] = _Answer(identity, self._clock.monotonic())
            self._answers.move_to_end(key)
            while len(self._answers) > _KEPT:
                self._answers.popitem(last=False)
            return identity
        finally:
            del self._asking[key]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
