"""What a user may see, queried and never enumerated.

A user who may list pods in all namespaces sees everything. Any other user sees the namespaces that
they named, at most 50, and that of their own ServiceAccount. Each of them is queried once: as many
as are named, and not as many as the cluster has. Answers hold for 60 s. Of namespaces that a user
has not named before, 20 are queried in a minute, so that the page is no way to query the API server
for all of them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.units.counts import counted
from reprieve.web.login.reviews import Identity, Reviews
from reprieve.web.login.tokens import FRESH
from reprieve.web.server.door import TooManyAttempts
from reprieve.web.tables import InvalidParameter, Viewer

__all__ = ["MOST_NAMESPACES", "Rights"]

MOST_NAMESPACES: Final = 50
_NEW_A_MINUTE: Final = 20
_MINUTE: Final = 60 * SECOND
_LIFE: Final = 60 * SECOND
_KEPT: Final = 1024  # users
_REMEMBERED: Final = 200  # namespaces of one user
_LONGEST: Final = 63
_ALL: Final = ""
_ACCOUNT: Final = "system:serviceaccount:"


class _Answer(NamedTuple):
    allowed: bool
    at: Nanos


@dataclass(slots=True)
class _User:
    # All that was queried, the one queried longest ago first; `_ALL` is all namespaces.
    answers: OrderedDict[str, _Answer] = field(default_factory=OrderedDict)
    # When namespaces were queried that had not been named before, in the last minute.
    new: deque[Nanos] = field(default_factory=deque)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Rights:
    """Viewers by identity."""

    def __init__(self, reviews: Reviews, clock: Clock) -> None:
        self._reviews = reviews
        self._clock = clock
        self._users: OrderedDict[bytes, _User] = OrderedDict()

    async def viewer(
        self, identity: Identity, named: Iterable[str], *, anew: bool = False
    ) -> Viewer:
        """Return what a user may see of what they name, or have named before.

        `anew`: with answers that are at most a few seconds old.

        Raises:
            InvalidParameter: more namespaces than one may name, or what is no namespace's name.
            TooManyAttempts: too many that were not named before.
            Unverified: the API server does not state.
        """
        wanted = {each for each in named if each}
        if len(wanted) > MOST_NAMESPACES:
            raise InvalidParameter(
                f"ns: {counted(len(wanted), 'namespace')}; accepted: {MOST_NAMESPACES}"
            )
        if any(len(each) > _LONGEST for each in wanted):
            raise InvalidParameter(f"ns: accepted: names of at most {_LONGEST} characters")
        user = self._user(identity)
        age = FRESH if anew else _LIFE
        async with user.turn:
            await self._ask(identity, user, [_ALL], age)
            if user.answers[_ALL].allowed:
                return Viewer(sees_all=True)
            before = [each for each, answer in user.answers.items() if each and answer.allowed]
            # Those named now come first: of the others the ones that were named last.
            known = dict.fromkeys((*reversed(before), *_own(identity)))
            rest = [each for each in known if each not in wanted]
            shown = [*sorted(wanted), *rest[: MOST_NAMESPACES - len(wanted)]]
            refused = self._admit(user, [each for each in shown if each not in user.answers])
            await self._ask(identity, user, [each for each in shown if each not in refused], age)
            if refused:
                wait = max(1, -(-(user.new[0] + _MINUTE - self._clock.monotonic()) // SECOND))
                raise TooManyAttempts(
                    f"ns: {counted(len(refused), 'namespace')} left to check, and {_NEW_A_MINUTE} "
                    f"new ones are checked in a minute; try again in {wait} s",
                    wait,
                )
            allowed = frozenset(each for each in shown if user.answers[each].allowed)
        return Viewer(sees_all=False, namespaces=allowed)

    def _admit(self, user: _User, new: list[str]) -> set[str]:
        """Count namespaces that were not named before; return those that have to wait."""
        now = self._clock.monotonic()
        while user.new and now - user.new[0] >= _MINUTE:
            user.new.popleft()
        room = max(0, _NEW_A_MINUTE - len(user.new))
        user.new.extend([now] * min(room, len(new)))
        return set(new[room:])

    async def _ask(self, identity: Identity, user: _User, names: list[str], age: int) -> None:
        now = self._clock.monotonic()
        old = [
            each for each in names if each not in user.answers or now - user.answers[each].at >= age
        ]
        answers = await asyncio.gather(
            *(self._reviews.may_list_pods(identity, each) for each in old)
        )
        for each, allowed in zip(old, answers, strict=True):
            user.answers[each] = _Answer(allowed, now)
        for each in names:
            user.answers.move_to_end(each)
        while len(user.answers) > _REMEMBERED:
            user.answers.popitem(last=False)

    def _user(self, identity: Identity) -> _User:
        user = self._users.setdefault(identity.key, _User())
        self._users.move_to_end(identity.key)
        while len(self._users) > _KEPT:
            self._users.popitem(last=False)
        return user


def _own(identity: Identity) -> tuple[str, ...]:
    """Return the namespace of a ServiceAccount; other users have none that is their own."""
    account = identity.name.removeprefix(_ACCOUNT)
    namespace, named, _ = account.partition(":")
    return (namespace,) if named and account != identity.name else ()
