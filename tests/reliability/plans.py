"""Plans of 200 victims, and who is killed at which moment of them."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from reprieve.kube.resource import PODS
from tests.reliability.churn import POD_GROUPS, gang_of, pod
from tests.reliability.moments import ANSWERED, RECEIVED, follow, until_moment
from tests.reliability.stand import Stand

if TYPE_CHECKING:
    from tests.reliability.faults import Run

__all__ = ["plan_api_server_away", "plan_api_server_killed", "plan_operator_killed"]

_VICTIMS: Final = 200
_CPUS: Final = 8
_LOW: Final = 2
_PATIENCE_S: Final = 240.0
_MOMENTS: Final = (RECEIVED, ANSWERED, 5, 50, 120, 195)
_DELETIONS: Final = (1, 5, 60, 150)
_AWAY_S: Final = 30.0


async def plan_api_server_killed(run: Run) -> None:
    async def kill() -> None:
        await asyncio.to_thread(run.stand.plane.kill_api_server)
        await asyncio.sleep(1)
        await asyncio.to_thread(run.stand.plane.start_api_server)

    await _rounds(run, kill)


async def plan_api_server_away(run: Run) -> None:
    """It is away for longer than the lease lasts, so that the next process finishes the plan."""

    async def kill() -> None:
        await asyncio.to_thread(run.stand.plane.kill_api_server)
        await asyncio.sleep(_AWAY_S)
        await asyncio.to_thread(run.stand.plane.start_api_server)

    await _rounds(run, kill, _DELETIONS)


async def plan_operator_killed(run: Run) -> None:
    async def kill() -> None:
        run.operators.signal(0, signal.SIGKILL)

    await _rounds(run, kill)


async def _rounds(
    run: Run, kill: Callable[[], Awaitable[None]], moments: Sequence[int] = _MOMENTS
) -> None:
    stand, seconds = run.stand, []
    size = _VICTIMS * _LOW // _CPUS
    for turn in range(run.times):
        low = [f"low-{turn}-{i}" for i in range(_VICTIMS)]
        await stand.create(PODS, *(pod(name, _LOW, "low") for name in low))
        await _until(stand, partial(_running, stand, low), f"round {turn}: all run")
        entries = follow(stand.folder / "audit.log")
        await anext(entries)
        began = time.monotonic()
        members = await gang_of(stand, f"high-{turn}", size, _CPUS, "high")
        await until_moment(entries, moments[turn % len(moments)])
        await kill()
        await _until(stand, partial(_placed, stand, members), f"round {turn}: bound")
        seconds.append(round(time.monotonic() - began, 1))
        await stand.delete(PODS, [*members, *low])
        await stand.delete(POD_GROUPS, [f"high-{turn}"])
        await _until(stand, lambda: not stand.pods, f"round {turn}: all are gone")
    run.said["seconds_until_bound"] = seconds
    run.said["moments"] = [moments[turn % len(moments)] for turn in range(run.times)]


def _running(stand: Stand, names: list[str]) -> bool:
    return all(
        stand.pods.get(name, {}).get("status", {}).get("phase") == "Running" for name in names
    )


def _placed(stand: Stand, names: list[str]) -> bool:
    return all(stand.pods.get(name, {}).get("spec", {}).get("nodeName") for name in names)


async def _until(stand: Stand, holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"not within {_PATIENCE_S:.0f} s: {what}")
        await asyncio.sleep(0.1)
