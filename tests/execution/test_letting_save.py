"""Extensions that a record does not keep are written again seldom, new ones at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

from reprieve.api.reprieve import (
    IntentPhase,
    Metadata,
    Preemption,
    PreemptionSpec,
    PreemptionStatus,
    Proof,
)
from reprieve.execution.letting_save import LettingSave

#: To when deadlines are wished to be extended at a turn, by the uids of roots.
Wishes: TypeAlias = Callable[[int], Mapping[str, str]]

_NOTICED = Preemption(
    Metadata("a"),
    PreemptionSpec("idle", "plan", 0, Proof("placement"), [], "2026-05-02T14:00:00Z"),
    PreemptionStatus(IntentPhase.NOTICED),
)


def waiting(
    wishes: Callable[[int], Mapping[str, str]], turns: int
) -> tuple[LettingSave, list[int]]:
    """Return what waits for so many turns, and the turn that it is at."""
    turn = [0]

    async def wait(_: str, __: int) -> None:
        turn[0] += 1

    notices = SimpleNamespace(
        begin=lambda *_, **__: None,
        follow=lambda *_: None,
        wishes=lambda _: wishes(turn[0]),
        extend=lambda _: None,
        waits=lambda _: turns - turn[0],
        kept=lambda _: (),
        ready_of=lambda _: (),
        waiters=SimpleNamespace(wait=wait),
        unrecorded=lambda _: [],
        recorded=lambda *_: None,
    )

    async def slept(_: int) -> None:
        return

    audience = SimpleNamespace(
        members=lambda _: (), keeps=False, why_pardoned=lambda *_: "", keep=lambda _: ""
    )
    clock = SimpleNamespace(monotonic=lambda: 0, sleep=slept)
    return LettingSave(cast("Any", notices), cast("Any", audience), cast("Any", clock)), turn


def extended_at(wishes: Wishes, turns: int) -> list[int]:
    """Return the turns at which extensions are written by a server that drops them."""
    letting, turn = waiting(wishes, turns)
    written = []

    async def extend(
        intent: Preemption, _: Callable[[], Mapping[str, str]], saved: Sequence[str]
    ) -> Preemption:
        written.append(turn[0])
        return intent

    assert asyncio.run(letting.wait(_NOTICED, extend)) == ""
    return written


def test_an_extension_that_the_server_drops_is_written_again_every_tenth_turn() -> None:
    assert extended_at(lambda _: {"uid": "later"}, 60) == [0, 10, 20, 30, 40, 50, 60]


def test_another_extension_is_written_at_once() -> None:
    wishes = {0: {"one": "later"}, 1: {"one": "later"}, 2: {"one": "later", "two": "later"}}
    assert extended_at(lambda turn: wishes[turn], 2) == [0, 2]
