"""Runs the planes on an overlay, in virtual time, until nothing moves any more.

    deciders = Deciders.of(options)                       # as `reprieve run` is configured
    snapshot = await gather_for(client, deciders, clock)
    run = await decided(client, snapshot, deciders, submitted)

The planes are those of `reprieve run`, and stand-ins do what other controllers would do
(`whatif.stage`). With nothing submitted the run states what happens to what is there.

Source: the design's "Processes and time"; specification 2, and of the quota plane, section 9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from kubeworld.time import LoopClock, run_virtually
from reprieve.kube.reader import Reader
from reprieve.operator.collector import without_collections
from reprieve.planes.common.disruptions import loop_notices
from reprieve.units.errors import UsageError
from reprieve.whatif.copy.lists import read_single
from reprieve.whatif.copy.overlay import Overlay
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.happened import Run
from reprieve.whatif.rest import Quiet
from reprieve.whatif.snapshots.snapshot import Snapshot
from reprieve.whatif.stage import Question, Stage
from reprieve.whatif.submitting.submission import Submitted

__all__ = ["AtRest", "decided", "settled"]

_MOST_ROUNDS: Final = 4

#: Called for a cluster that has come to rest, before the question is decided, with a function that
#: decides another question on it; that is to be called in a copy of this process.
AtRest = Callable[[Callable[[Question], Awaitable[Run]]], Awaitable[None]]


async def decided(
    client: Reader | None,
    snapshot: Snapshot,
    deciders: Deciders,
    submitted: Sequence[Submitted] = (),
    *,
    victims: bool = True,
    at_rest: AtRest | None = None,
) -> Run:
    """Return what would happen; objects that the planes request one by one are read first.

    Without a client, of a stored snapshot, they are assumed not to exist. Without `victims` what
    is submitted may preempt no work.

    Raises:
        Undecided: the planes did not get ready.
        UsageError: what is stored of their settings is not accepted, or more pods would be made
            than may be.
    """
    if client is None:
        return settled(snapshot, deciders, submitted, victims=victims, at_rest=at_rest)
    for _ in range(_MOST_ROUNDS):
        overlays: list[Overlay] = []
        try:
            run = settled(
                snapshot, deciders, submitted, made=overlays, victims=victims, at_rest=at_rest
            )
        except UsageError:
            if not overlays or not overlays[0].asked:
                raise
        else:
            if not run.overlay.asked:
                return run
        snapshot = snapshot.knowing(await read_single(client, overlays[0].asked))
    return run


def settled(
    snapshot: Snapshot,
    deciders: Deciders,
    submitted: Sequence[Submitted] = (),
    *,
    made: list[Overlay] | None = None,
    victims: bool = True,
    at_rest: AtRest | None = None,
) -> Run:
    """Run the planes on the snapshot until nothing moves, then again with what is submitted.

    `made` receives the overlay as soon as there is one. Paths in its `asked` were not known: what
    they hold may change the answer (`decided` reads them and runs again). Without `victims` what is
    submitted may preempt no work.

    Raises:
        Undecided: the planes did not get ready.
    """

    async def main() -> Run:
        loop = asyncio.get_running_loop()
        clock = LoopClock(loop, snapshot.at)
        overlay = Overlay(snapshot, clock)
        if made is not None:
            made.append(overlay)
        stage = await Stage.over(overlay, clock, deciders)
        try:
            with without_collections():
                await stage.come_to_rest()
            # Pairs and loops of before are no part of the answer.
            said.discard(loop_notices.log.name)
            if at_rest is not None:
                await at_rest(stage.asked)
            return await stage.asked(Question(tuple(submitted), victims))
        finally:
            await stage.end()

    with Quiet() as said:
        run = run_virtually(main)
    return replace(run, log=said.lines)
