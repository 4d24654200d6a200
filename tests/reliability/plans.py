"""Plans of 200 victims, and who is killed at which moment of them, in each plane.

Every victim has to go for the one demand of a round, and nobody else comes. So whoever goes beside
those 200, or goes for a demand that is not bound, goes in vain: `in_vain` says how many these are,
by the audit log. Whoever went has an entry there, if only that his deletion was received:
`not_in_the_log` counts those who have none.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from reprieve.kube.bodies import Propagation
from reprieve.kube.resource import PODS
from tests.reliability.audit import never_answered, read, told_to_go
from tests.reliability.churn import POD_GROUPS, gang_of, pod
from tests.reliability.job_churn import JOBS, JobChurn, job_of
from tests.reliability.moments import ANSWERED, RECEIVED, follow, until_moment
from tests.reliability.stand import OPERATOR, Stand

if TYPE_CHECKING:
    from tests.reliability.faults import Run

__all__ = ["plan_api_server_away", "plan_api_server_killed", "plan_operator_killed"]

_VICTIMS: Final = 200
_CPUS: Final = 8
_LOW: Final = 2
_SIZE: Final = _VICTIMS * _LOW // _CPUS
_PATIENCE_S: Final = 240.0
_MOMENTS: Final = (RECEIVED, ANSWERED, 5, 50, 120, 195)
_DELETIONS: Final = (1, 5, 60, 150)
_AWAY_S: Final = 30.0

#: Does harm, and returns when it is over.
Harm = Callable[[], Awaitable[None]]


async def plan_api_server_killed(run: Run) -> None:
    await _rounds(run, partial(_without_api_server, run, 1.0), _DELETIONS)


async def plan_api_server_away(run: Run) -> None:
    """It is away for longer than the lease lasts, so that the next process finishes the plan."""
    await _rounds(run, partial(_without_api_server, run, _AWAY_S), _DELETIONS)


async def _without_api_server(run: Run, seconds: float) -> None:
    await asyncio.to_thread(run.stand.plane.kill_api_server)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(run.stand.plane.start_api_server)


async def plan_operator_killed(run: Run) -> None:
    async def kill() -> None:
        run.operators.signal(0, signal.SIGKILL)

    await _rounds(run, kill)


async def _rounds(run: Run, harm: Harm, moments: Sequence[int] = _MOMENTS) -> None:
    stand, load = run.stand, run.load
    run.said |= {
        "moments": [],
        "seconds_until_bound": [],
        "seconds_after_the_harm": [],
        "told_to_go": [],
        "in_vain": 0,
        "not_in_the_log": 0,
    }
    for turn in range(run.times):
        work = _Jobs(stand, turn, load) if isinstance(load, JobChurn) else _Pods(stand, turn)
        await _round(run, work, moments[turn % len(moments)], harm)


async def _round(run: Run, work: _Jobs | _Pods, moment: int, harm: Harm) -> None:
    stand, said, name = run.stand, run.said, f"round {work.turn}"
    log = stand.folder / "audit.log"
    await work.fill()
    await _until(stand, lambda: work.running("low") == _VICTIMS, f"{name}: all run")
    await asyncio.sleep(work.rests_s)
    before = len(told_to_go(read(log), OPERATOR))
    entries = follow(log)
    await anext(entries)
    began = time.monotonic()
    await work.demand()
    await until_moment(entries, moment)
    await harm()
    over, needed = time.monotonic(), 0
    said["moments"].append(moment)
    try:
        await _until(stand, lambda: work.bound("high") == _SIZE, f"{name}: bound")
        needed, now = _VICTIMS, time.monotonic()
        said["seconds_until_bound"].append(round(now - began, 1))
        said["seconds_after_the_harm"].append(round(now - over, 1))
    finally:
        await asyncio.sleep(2)  # whoever goes too late is seen
        gone = len(told_to_go(read(log), OPERATOR)) - before
        said["told_to_go"].append(gone)
        said["in_vain"] += max(0, gone - needed)
        # Of a deletion that was carried out as the API server died the log has the request alone.
        unanswered = {
            name for name in never_answered(read(log), OPERATOR) if f"low-{work.turn}-" in name
        }
        said["not_in_the_log"] += max(0, needed - gone - len(unanswered))
        _report(work.turn, said)
    await work.clear()
    await _until(stand, lambda: not stand.pods, f"{name}: all are gone")


def _report(turn: int, said: Mapping[str, Any]) -> None:
    """Print a round as soon as it is over, so that rounds are known of a run that is stopped."""
    last = {word: value[-1] for word, value in said.items() if isinstance(value, list) and value}
    print(json.dumps({"round": turn, **last, "in_vain": said["in_vain"]}), file=sys.stderr)


@dataclass
class _Pods:
    """Pods that are preempted for a gang, of the scheduling plane alone."""

    stand: Stand
    turn: int

    rests_s = 0.0

    async def fill(self) -> None:
        await self.stand.create(PODS, *(pod(name, _LOW, "low") for name in self._low))

    async def demand(self) -> None:
        await gang_of(self.stand, f"high-{self.turn}", _SIZE, _CPUS, "high")

    def running(self, prefix: str) -> int:
        return sum(
            name.startswith(prefix) and each["status"].get("phase") == "Running"
            for name, each in self.stand.pods.items()
        )

    def bound(self, prefix: str) -> int:
        return sum(
            name.startswith(prefix) and bool(each["spec"].get("nodeName"))
            for name, each in self.stand.pods.items()
        )

    async def clear(self) -> None:
        high = [f"high-{self.turn}-{number}" for number in range(_SIZE)]
        await self.stand.delete(PODS, [*high, *self._low])
        await self.stand.delete(POD_GROUPS, [f"high-{self.turn}"])

    @property
    def _low(self) -> list[str]:
        return [f"low-{self.turn}-{number}" for number in range(_VICTIMS)]


@dataclass
class _Jobs:
    """Jobs of one pod that are preempted for one large Job, as the load of a plane makes them."""

    stand: Stand
    turn: int
    load: JobChurn

    @property
    def rests_s(self) -> float:
        return self.load.rests_s

    async def fill(self) -> None:
        await self.stand.create(JOBS, *(self.load.small(name, _LOW) for name in self._low))

    async def demand(self) -> None:
        await self.stand.create(JOBS, self.load.large(f"high-{self.turn}", _SIZE, _CPUS))

    def running(self, prefix: str) -> int:
        return sum(
            job_of(each).startswith(prefix) and each["status"].get("phase") == "Running"
            for each in self.stand.pods.values()
        )

    def bound(self, prefix: str) -> int:
        return sum(
            job_of(each).startswith(prefix) and bool(each["spec"].get("nodeName"))
            for each in self.stand.pods.values()
        )

    async def clear(self) -> None:
        # The small ones first: none of those that wait is to run once the large one is gone.
        names = [*self._low, f"high-{self.turn}"]
        await self.stand.delete(JOBS, names, propagation=Propagation.BACKGROUND)

    @property
    def _low(self) -> list[str]:
        return [f"low-{self.turn}-{number}" for number in range(_VICTIMS)]


async def _until(stand: Stand, holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"not within {_PATIENCE_S:.0f} s: {what}")
        await asyncio.sleep(0.1)
