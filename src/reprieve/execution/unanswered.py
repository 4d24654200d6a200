"""Writes to one object that fail as if the API server were away, although it answers.

A proxy, or a webhook that does not answer in time, may fail each request about one object, with the
same 429, 503 or timeout as an overloaded API server. The two are told apart by what else succeeds:

1. A try counts against an object if the object could be read just before. A read that fails, too,
   states that the server is away: the count begins anew.
2. After eight such tries in a row the object counts as one whose eviction is refused.
3. A server that accepts reads and no writes fails for all objects. So for each object that is
   refused in this way, the next one needs twice as many tries, until an eviction succeeds.

Source: the design's "Intent log and executor".
"""

from __future__ import annotations

from typing import Final

from reprieve.kube.errors import ApiError
from reprieve.kube.retry import AWAY

__all__ = ["Unanswered"]

_TRIES: Final = 8
_MOST_DOUBLED: Final = 20
_MOST: Final = 10_000


class Unanswered:
    """Counts by uid, across plans; the newest 10,000 are known."""

    def __init__(self) -> None:
        self._tries: dict[str, int] = {}
        self._refused: dict[str, None] = {}  # since an eviction succeeded

    def failed(self, uid: str, failure: ApiError) -> None:
        """Count a failed try to write to an object, which read it first."""
        if not isinstance(failure, AWAY):
            return
        tries = self._tries.pop(uid, 0)
        if failure.call is not None and failure.call.verb not in ("get", "list"):
            self._tries[uid] = tries + 1
        while len(self._tries) > _MOST:
            del self._tries[next(iter(self._tries))]

    def is_refused(self, uid: str) -> bool:
        """Whether the failures are about the object; its count begins anew where they are."""
        others = len(self._refused) - (uid in self._refused)
        if self._tries.get(uid, 0) < _TRIES << min(others, _MOST_DOUBLED):
            return False
        del self._tries[uid]
        self._refused[uid] = None
        return True

    def evicted(self, uid: str) -> None:
        """An eviction succeeded: the API server accepts such writes."""
        self._tries.pop(uid, None)
        self._refused.clear()
