"""Sessions: a random word in a cookie, instead of a token in a browser.

A session ends 15 minutes after its last use, when its owner logs out, or when its token is no
longer valid, which is checked again all the time. Only this process knows which token a session
stands for, and only the digest of a session's word is kept: a restart ends all of them.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos

__all__ = ["LIFE", "Sessions"]

LIFE: Final = 15 * MINUTE
_KEPT: Final = 1024
_BYTES: Final = 32


@dataclass(slots=True)
class _Session:
    token: str
    used: Nanos


class Sessions:
    """Tokens by the word of a session."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # The one used longest ago first.
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()

    def begin(self, token: str) -> str:
        """Return the word of a new session."""
        word = secrets.token_urlsafe(_BYTES)
        self._sessions[_digest(word)] = _Session(token, self._clock.monotonic())
        while len(self._sessions) > _KEPT:
            self._sessions.popitem(last=False)
        return word

    def token(self, word: str) -> str | None:
        """Return the token of a session and count it as used; None where there is none."""
        key = _digest(word)
        session = self._sessions.get(key)
        now = self._clock.monotonic()
        if session is None:
            return None
        if now - session.used >= LIFE:
            del self._sessions[key]
            return None
        session.used = now
        self._sessions.move_to_end(key)
        return session.token

    def end(self, word: str) -> None:
        """End a session, where there is one."""
        self._sessions.pop(_digest(word), None)


def _digest(word: str) -> bytes:
    return hashlib.sha256(word.encode(errors="replace")).digest()
