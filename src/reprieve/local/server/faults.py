"""Seeded misbehaviour for tests: refused requests, dropped and expired watches.

Each user has a random source of its own, so that one client's requests do not change another's
faults.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from reprieve.local.server.errors import StatusError, expired, too_many_requests

__all__ = ["Faults"]


@dataclass(slots=True)
class _Shares:
    """Shares between 0 and 1 of the requests of one user."""

    source: random.Random
    conflict: float
    too_many: float
    error: float
    drop_watch: float
    expire_watch: float


@dataclass(slots=True)
class Faults:
    """Which share of a user's requests goes wrong.

    `counts` says how many did, by kind of fault; `refused` by (user, verb, group, resource).
    """

    counts: dict[str, int] = field(default_factory=dict)
    refused: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    _shares: dict[str, _Shares] = field(default_factory=dict)

    def configure(
        self,
        *,
        user: str,
        seed: int,
        conflict: float = 0.0,
        too_many: float = 0.0,
        error: float = 0.0,
        drop_watch: float = 0.0,
        expire_watch: float = 0.0,
    ) -> None:
        """Set the shares of `user`.

        `conflict`: 409 of updates and patches; `too_many`, `error`: 429 and 500 of all requests;
        `drop_watch`: streams cut after a write; `expire_watch`: watches answered 410.
        """
        self._shares[user] = _Shares(
            random.Random(seed), conflict, too_many, error, drop_watch, expire_watch
        )

    def clear(self) -> None:
        self._shares.clear()

    def refuse(self, user: str, verb: str, group: str = "", resource: str = "") -> None:
        """Raise the fault that this request is to meet, if any."""
        shares = self._shares.get(user)
        if shares is None:
            return
        try:
            self._draw(shares, verb)
        except StatusError:
            self.refused[user, verb, group, resource] += 1
            raise

    def _draw(self, shares: _Shares, verb: str) -> None:
        draw = shares.source.random()
        if draw < shares.too_many:
            self._count("too_many")
            raise too_many_requests("the server has received too many requests", 1)
        draw -= shares.too_many
        if 0 <= draw < shares.error:
            self._count("error")
            raise StatusError(
                500, "InternalError", "Internal error occurred: a fault was asked for"
            )
        draw -= shares.error
        if 0 <= draw < shares.conflict and verb in ("update", "patch"):
            self._count("conflict")
            raise StatusError(
                409,
                "Conflict",
                "Operation cannot be fulfilled: the object has been modified; please apply your "
                "changes to the latest version and try again",
                {},
            )
        if verb == "watch" and shares.source.random() < shares.expire_watch:
            self._count("expire_watch")
            raise expired("too old resource version: a fault was asked for")

    def drops_watch(self, user: str) -> bool:
        """Return whether a watch is to end after the event that it has just sent."""
        shares = self._shares.get(user)
        if shares is None or shares.source.random() >= shares.drop_watch:
            return False
        self._count("drop_watch")
        return True

    def _count(self, fault: str) -> None:
        self.counts[fault] = self.counts.get(fault, 0) + 1
