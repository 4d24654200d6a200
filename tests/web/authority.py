"""An API server that answers the two reviews from tables, and counts them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.kube.errors import Unreachable
from reprieve.kube.transport import Answer, Request, Transport
from reprieve.web.login.attempts import Attempts, Network
from reprieve.web.login.door import ClusterDoor
from reprieve.web.login.reviews import Reviews
from reprieve.web.login.rights import Rights
from reprieve.web.login.sessions import Sessions
from reprieve.web.login.tokens import Tokens
from reprieve.web.login.wire import TOKEN_REVIEWS, ReviewingWire
from reprieve.whatif.copy.wire import Body


class SetClock:
    """A clock that stands still until it is moved; sleeping takes no time."""

    def __init__(self) -> None:
        self.now = 1_000 * SECOND

    def wall(self) -> Nanos:
        return Nanos(self.now)

    def monotonic(self) -> Nanos:
        return Nanos(self.now)

    async def sleep(self, nanoseconds: int) -> None:
        raise AssertionError("nothing here waits")


@dataclass
class Authority:
    """Tokens by text with (user, audiences), and the namespaces that users may see; `*` is all."""

    tokens: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    rights: dict[str, set[str]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    away: bool = False

    async def send(self, request: Request, stream: bool, rejected: bool) -> Answer:
        if self.away:
            raise Unreachable("gone")
        spec = msgspec.json.decode(request.body or b"")["spec"]
        if request.path == TOKEN_REVIEWS:
            self.asked["token"] += 1
            user, audiences = self.tokens.get(spec["token"], ("", ()))
            meant = [each for each in spec["audiences"] if each in audiences]
            # One that knows no audiences answers without any.
            known = bool(user) and (not audiences or bool(meant))
            status = {"authenticated": known, "user": {"username": user}, "audiences": meant}
        else:
            namespace = spec["resourceAttributes"].get("namespace", "*")
            self.asked[namespace] += 1
            assert spec["resourceAttributes"]["verb"] == "list"
            assert spec["resourceAttributes"]["resource"] == "pods"
            seen = self.rights.get(spec["user"], set())
            status = {"allowed": namespace in seen or "*" in seen}
        return Body(msgspec.json.encode({"status": status}), 201)

    async def close(self) -> None:
        pass

    def reviews(self, clock: Clock) -> Reviews:
        return Reviews(Transport(ReviewingWire(self), clock), ["reprieve-web"])

    def door(self, clock: Clock, proxies: tuple[Network, ...] = ()) -> ClusterDoor:
        reviews = self.reviews(clock)
        return ClusterDoor(
            Tokens(reviews, clock),
            Rights(reviews, clock),
            Sessions(clock),
            Attempts(clock),
            proxies,
        )

    def admit(self, user: str, *namespaces: str) -> str:
        """Return a token of a user who may see these namespaces."""
        token = f"token-of-{user}"
        self.tokens[token] = (user, ("reprieve-web",))
        self.rights[user] = set(namespaces)
        return token
