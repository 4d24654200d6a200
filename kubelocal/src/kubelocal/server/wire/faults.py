"""Seeded misbehaviour for tests: refused and slow requests; dropped, frozen and expired watches.

Each user has a random source of its own, so that one client's requests do not change another's
faults.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from kubelocal.server.errors import StatusError, expired, too_many_requests
from kubeworld.units.durations import InvalidDuration, parse_duration

__all__ = ["Faults", "InvalidFaults", "WatchFate", "parse_faults"]

SHARES: Final = (
    "conflict",
    "too_many",
    "error",
    "unavailable",
    "drop_watch",
    "freeze_watch",
    "expire_watch",
)


class InvalidFaults(ValueError):
    """A text that states no faults; the message states what is accepted."""


class WatchFate(StrEnum):
    """What becomes of a watch after an event."""

    GOES_ON = "goes on"
    DROPPED = "dropped"
    FROZEN = "frozen"


@dataclass(slots=True)
class _Shares:
    """Shares between 0 and 1 of the requests of one user."""

    source: random.Random
    conflict: float
    too_many: float
    error: float
    unavailable: float
    drop_watch: float
    freeze_watch: float
    expire_watch: float
    latency: int
    delays: random.Random


@dataclass(slots=True)
class Faults:
    """Which share of a user's requests fails.

    `counts` states how many did, by kind of fault; `refused` by (user, verb, group, resource).
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
        unavailable: float = 0.0,
        drop_watch: float = 0.0,
        freeze_watch: float = 0.0,
        expire_watch: float = 0.0,
        latency: int = 0,
    ) -> None:
        """Set the shares of `user`; `*` stands for every user that has none of its own.

        `conflict`: 409 of updates and patches; `too_many`, `error`, `unavailable`: 429, 500 and 503
        of all requests; `drop_watch`, `freeze_watch`: streams that end, or stay open and send no
        more, after a write; `expire_watch`: watches answered 410; `latency`: the most that a
        request waits before it is handled, in ns, each as long as it happens.
        """
        self._shares[user] = _Shares(
            random.Random(seed),
            conflict,
            too_many,
            error,
            unavailable,
            drop_watch,
            freeze_watch,
            expire_watch,
            latency,
            random.Random(f"latency {seed}"),
        )

    def clear(self) -> None:
        self._shares.clear()

    def delay(self, user: str) -> int:
        """Return how long the next request of `user` waits, in ns."""
        shares = self._of(user)
        return 0 if shares is None else int(shares.delays.random() * shares.latency)

    def refuse(self, user: str, verb: str, group: str = "", resource: str = "") -> None:
        """Raise the fault that this request is to meet, if any."""
        shares = self._of(user)
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
        if 0 <= draw < shares.unavailable:
            self._count("unavailable")
            raise StatusError(
                503,
                "ServiceUnavailable",
                "the server is currently unable to handle the request",
                {"retryAfterSeconds": 1},
                {"Retry-After": "1"},
            )
        draw -= shares.unavailable
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

    def fate_of_watch(self, user: str) -> WatchFate:
        """Return what becomes of a watch after the events that it has just sent."""
        shares = self._of(user)
        if shares is None:
            return WatchFate.GOES_ON
        draw = shares.source.random()
        if draw < shares.drop_watch:
            self._count("drop_watch")
            return WatchFate.DROPPED
        if draw - shares.drop_watch < shares.freeze_watch:
            self._count("freeze_watch")
            return WatchFate.FROZEN
        return WatchFate.GOES_ON

    def _of(self, user: str) -> _Shares | None:
        return self._shares.get(user) or self._shares.get("*")

    def _count(self, fault: str) -> None:
        self.counts[fault] = self.counts.get(fault, 0) + 1


def parse_faults(text: str) -> dict[str, Any]:
    """Return the arguments of `configure` in a text such as `seed=1,conflict=0.05,latency=20ms`.

    Raises:
        InvalidFaults: something else stands there.
    """
    found: dict[str, Any] = {"user": "*", "seed": 0}
    for part in filter(None, text.split(",")):
        name, _, value = (piece.strip() for piece in part.partition("="))
        try:
            if name == "user":
                found[name] = value
            elif name == "seed":
                found[name] = int(value)
            elif name == "latency":
                found[name] = parse_duration(value)
            elif name in SHARES and 0 <= float(value) <= 1:
                found[name] = float(value)
            else:
                raise ValueError(part)
        except (ValueError, InvalidDuration):
            raise InvalidFaults(
                f"{part.strip()!r} is no fault; accepted, with commas between them: user=NAME, "
                f"seed=NUMBER, latency=DURATION, and shares from 0 to 1 of {', '.join(SHARES)}"
            ) from None
    return found
