"""A plan of the idle plane that could not be carried out is tried again when its pause ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from reprieve.engine.plan import Plan, Plane, Proof, ProofLevel, Victim, plan_id
from reprieve.execution.records.book import Book
from reprieve.kube.errors import ServerError
from reprieve.planes.common.loop import DecisionLoop, Pace
from reprieve.planes.common.solve import DecisionLimit
from reprieve.planes.idle.evaluating.carry_out import CarryOut
from reprieve.planes.idle.evaluating.effects import Begin
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

log = logging.getLogger("reprieve.test")
PAUSE = 10  # seconds after the first failure
ROOT = Reference("batch/v1", "Job", "team", "train", Uid("train"))
PLAN = Plan(
    plan_id(Plane.IDLE, None, [ROOT.uid], ""),
    Plane.IDLE,
    1,
    Proof(ProofLevel.EXEMPT),
    None,
    (Victim(ROOT, ROOT, {"amd.com/gpu": 1}, "idle"),),
)


class RefusingBook(Book):
    """One that cannot be written to as often as is wanted, and notes when it was tried."""

    def __init__(self, clock: VirtualClock, failures: int) -> None:
        self.tried: list[int] = []
        self._clock = clock
        self._failures = failures
        self._start = clock.monotonic()

    async def write(self, plan: Plan, *given: Any, **more: Any) -> Any:
        self.tried.append((self._clock.monotonic() - self._start) // SECOND)
        if len(self.tried) <= self._failures:
            raise ServerError("the disk is full")
        return SimpleNamespace(
            metadata=SimpleNamespace(name="idle-always-1"), spec=SimpleNamespace(victims=[])
        )


@pytest.mark.parametrize("asked", [[], [1, 2], [3, 4, 9]], ids=str)
async def test_evaluations_that_something_else_asks_for_lose_no_pause(asked: Sequence[int]) -> None:
    clock = VirtualClock()
    book, evaluations = RefusingBook(clock, failures=1), list[int]()
    start = clock.monotonic()

    async def decide() -> None:
        evaluations.append((clock.monotonic() - start) // SECOND)
        # Each of these comes before the end of the pause, which the loop then does not keep.
        for second in asked:
            if (left := start + second * SECOND - clock.monotonic()) > 0:
                loop.ask_after(left)
        carry_out.go_on(await carry_out.begin([Begin(PLAN)], {}))

    pace = Pace(held_back=SECOND, logged_at=logging.WARNING)
    loop = DecisionLoop(
        Plane.IDLE,
        clock,
        DecisionLimit(inline=True),
        log,
        pace,
        decide=decide,
        held_back=lambda: "",
    )
    context, open_intents = MagicMock(clock=clock), MagicMock()
    open_intents.begin = AsyncMock(return_value=MagicMock(abandoned=False, stalled=False))
    carry_out = CarryOut(
        context,
        book,
        open_intents,
        MagicMock(refuses=MagicMock(return_value=False)),
        action_of=MagicMock(),
        again=loop.ask_at,
        placed=lambda plan: False,
        returning=lambda plan: None,
        holds_quota=lambda root: False,
    )
    task = asyncio.create_task(loop.run())
    loop.ask()
    await clock.advance(2 * SECOND * 60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert book.tried[:2] == [0, PAUSE]
    assert evaluations == [0, *asked, PAUSE]
