"""A turn of the process: a candidate, then the leader that runs the planes, until it is over.

It is over at a signal, when what answers others has failed, when the lease is lost, or when a
decision cannot be stopped. The planes end before the lease is released. Records are hidden from the
collector once all planes have read theirs, and before in a process that stands by, where a plane
reads them to answer others. Source: the design's "Processes and time".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from enum import Enum, auto
from typing import Final

from reprieve.execution.fence import Deposed
from reprieve.operator.collector import await_records, collect_start, freeze_records
from reprieve.operator.lease_keeper import LeaseKeeper
from reprieve.operator.lease_link import WantedLease
from reprieve.planes.common.assembly import Plane
from reprieve.planes.common.suspects import Suspects

__all__ = ["End", "end", "lead"]

log: Final = logging.getLogger("reprieve")

_STOP: Final = 3.0  # seconds within which the lease has to be released


class End(Enum):
    """What becomes of a process whose run is over."""

    STOPPED = auto()
    ANEW = auto()  # it has to begin anew, with nothing of what it knew


async def lead(
    planes: Sequence[Plane],
    keeper: LeaseKeeper | None,
    lease: WantedLease,
    suspects: Suspects,
    stop: asyncio.Event,
    serving: asyncio.Task[None] | None,
    broken: asyncio.Future[str],
) -> End:
    """Return when it is over; `broken` states why decisions cannot stop, `serving` may fail."""
    collect_start()
    aside = [] if serving is None else [serving]
    stopped = asyncio.create_task(stop.wait())
    lost: asyncio.Task[object] = asyncio.create_task(
        asyncio.Event().wait() if keeper is None else keeper.wait_lost()
    )
    tasks: list[asyncio.Task[object]] = [lost]
    try:
        if keeper is None:
            log.info("dry run: nothing is marked or evicted, no lease is acquired")
        else:
            tasks.append(asyncio.create_task(keeper.run(lease)))
            leading = asyncio.create_task(keeper.wait_leading())
            tasks.append(leading)
            async with _standing_by(planes):
                await _first(stopped, leading, lost, *aside)
            if not leading.done():
                return await _ended(stopped, lost, aside)
            log.info("leading, epoch %d", keeper.epoch)
            suspects.delay(keeper.suspects)
        work = asyncio.create_task(_work(planes))
        tasks.insert(0, work)
        await _first(stopped, lost, work, broken, *aside)
        if stopped.done() or any(each.done() for each in aside):
            return await _ended(stopped, lost, aside)
        if broken.done():
            log.error("%s: this process restarts itself", broken.result())
            return End.ANEW
        if work.done():
            work.result()
        return await _ended(stopped, lost, aside)
    finally:
        stopped.cancel()
        await end(tasks[:1])
        if keeper is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(keeper.stop(), _STOP)
        await end(tasks)


async def _ended(
    stopped: asyncio.Task[bool], lost: asyncio.Task[object], aside: Sequence[asyncio.Task[None]]
) -> End:
    """Return what becomes of a process that leads no more, or raise what ended it."""
    if stopped.done():
        log.info("stopping")
        return End.STOPPED
    for each in aside:
        if each.done():
            each.result()
            log.info("stopping")
            return End.STOPPED
    log.error("the process lease is lost: this process restarts itself as a candidate")
    return End.ANEW


@contextlib.asynccontextmanager
async def _standing_by(planes: Sequence[Plane]) -> AsyncIterator[None]:
    """Freeze what planes read before they work; those that read nothing then are never synced."""
    freezers = [asyncio.create_task(_freeze((plane,))) for plane in planes]
    try:
        yield
    finally:
        await end(freezers)


async def _work(planes: Sequence[Plane]) -> None:
    await_records()
    freezer = asyncio.create_task(_freeze(planes))
    try:
        async with asyncio.TaskGroup() as group:
            for plane in planes:
                group.create_task(plane.run())
    except* Deposed as deposed:
        log.error("%s", _first_of(deposed))
    finally:
        freezer.cancel()


def _first_of(group: BaseExceptionGroup[Deposed]) -> BaseException:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


async def _freeze(planes: Sequence[Plane]) -> None:
    for plane in planes:
        await plane.synced()
    freeze_records()


async def _first(
    *tasks: asyncio.Task[object] | asyncio.Task[None] | asyncio.Task[bool] | asyncio.Future[str],
) -> None:
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


async def end(tasks: Sequence[asyncio.Task[object]] | Sequence[asyncio.Task[None]]) -> None:
    """Cancel the tasks, and return when they have ended, however they did."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
