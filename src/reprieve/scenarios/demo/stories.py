"""What happens in the demo: one function for each kind of story, and work in between.

Each story states what it is about to do, does it, and reports the result. A round is all of them
once, in an order that the seed decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from reprieve.scenarios.demo.cast import (
    GUARDED,
    LABS,
    PLATFORM,
    QUEUED,
    SAVING,
    gang,
    notebook,
    plain_job,
    queued_job,
)
from reprieve.scenarios.demo.director import Director
from reprieve.units.counts import counted

__all__ = ["STORIES", "play_demo"]

_ROUNDS: Final = 2  # work that ends by itself may come before the eviction
_NOTEBOOKS: Final = 2
_PATIENCE: Final = 25.0
_TURNS: Final = 5
_HELD_AFTER: Final = 10.0  # seconds in which who is not held would run
#: Seconds of work, at any pace, of which a save spares more than the urgent work waits for it.
_WORTH_SAVING: Final = 20.0
_AT_ONCE: Final = 4  # small jobs
_MOST_PENDING: Final = 6  # jobs, as a story begins


async def borrow_and_reclaim(director: Director) -> None:
    """A team borrows what two others leave, and one of those reclaims its own."""
    borrower, owner = director.random.sample(QUEUED, 2)
    sweeps = [director.numbered("sweep") for _ in range(7)]
    director.report(f"{borrower} submits 7 jobs of 8 GPUs: 20 are its own, 36 it borrows")
    lasts = director.pace.text(75)
    await director.submit(*(queued_job(borrower, each, 2, 4, "batch", lasts) for each in sweeps))
    await director.until(lambda: director.running(borrower, "sweep") >= 10, 2 * _PATIENCE)
    await director.rest(6)
    before = director.preempted(borrower)
    train = director.numbered("train")
    director.report(f"{owner}/{train} wants the 16 GPUs that are {owner}'s own")
    await director.submit(queued_job(owner, train, 4, 4, "service", director.pace.text(45)))
    await director.until(lambda: director.running(owner, train) == 4, _PATIENCE)
    gone = sorted(director.preempted(borrower) - before)
    if gone:
        director.report(f"{owner} reclaimed its quota: {borrower}/{', '.join(gone)} wait again")


async def a_gang_preempts_and_keeps_a_budget(director: Director) -> None:
    """An urgent gang preempts batch work, and leaves the pods that a budget keeps."""
    fill = [director.numbered("fill") for _ in range(4)]
    director.report("platform fills what is free with batch jobs of 4 GPUs, outside of any queue")
    lasts = director.pace.text(80)
    await director.submit(*(plain_job(each, 1, 4, "batch", lasts) for each in fill))
    await director.until(lambda: director.running(PLATFORM, "fill") >= 2, _PATIENCE / 2)
    await director.rest(4)
    name = director.numbered("eval")
    director.report(f"platform/{name} is an urgent gang of 2 pods with 8 GPUs: both start, or none")
    await director.submit(*gang(name, 2, 8, director.pace.text(25)))
    started = await director.until(lambda: director.running(PLATFORM, name) == 2, _PATIENCE)
    chat = director.running(PLATFORM, "chat")
    if started:
        director.report(
            f"{name} runs as a whole; the service chat has {counted(chat, 'running pod')} "
            "(budget: 2)"
        )
    else:
        director.report(f"{name} waits as a whole: see why on the page Waiting")


async def an_idle_notebook_is_evicted(director: Director) -> None:
    """A notebook stops using its GPUs, and is evicted once a job needs them."""
    for number in range(_NOTEBOOKS):
        name = f"notebook-{number}"
        if not await director.exists(PLATFORM, name):
            await director.submit(notebook(name, 8))
        director.use(PLATFORM, f"Job/{name}", 85)
    await director.rest(6)
    quiet = f"notebook-{director.random.randrange(_NOTEBOOKS)}"
    director.use(PLATFORM, f"Job/{quiet}", 0)
    director.report(
        f"platform/{quiet} stops using its 8 GPUs; it is not evicted while no work waits"
    )
    await director.until(lambda: _is_idle(director, quiet), _PATIENCE)
    lasts = director.pace.text(20)
    for _ in range(_ROUNDS):
        jobs = [director.numbered("render") for _ in range(director.free_nodes() + 1)]
        director.report(
            f"platform submits {counted(len(jobs), 'job')} of 8 GPUs: one more than nodes are free"
        )
        await director.submit(*(plain_job(each, 1, 8, "batch", lasts) for each in jobs))
        if await director.until(lambda: not director.running(PLATFORM, quiet), _PATIENCE):
            director.report(f"the idle {quiet} was evicted for work that waited")
            return


async def a_higher_priority_within_a_queue(director: Director) -> None:
    """Urgent work of a team preempts the team's own batch work, and no other's."""
    team = director.random.choice(QUEUED)
    batch = [director.numbered("batch") for _ in range(3)]
    director.report(f"{team} submits 3 batch jobs of 8 GPUs, and something urgent behind them")
    lasts = director.pace.text(50)
    await director.submit(*(queued_job(team, each, 2, 4, "batch", lasts) for each in batch))
    await director.until(lambda: director.running(team, "batch") >= 4, _PATIENCE)
    await director.rest(4)
    name = director.numbered("hotfix")
    await director.submit(queued_job(team, name, 2, 4, "urgent", director.pace.text(20)))
    if await director.until(lambda: director.running(team, name) == 2, _PATIENCE):
        director.report(f"{team}/{name} runs with its team's GPUs")


async def a_training_saves_and_another_loses(director: Director) -> None:
    """Two trainings are evicted for urgent work; one that got notice loses next to nothing."""
    names = {team: director.numbered("finetune") for team in LABS}
    (saving,) = (team for team in LABS if team in SAVING)
    (other,) = (team for team in LABS if team not in SAVING)
    director.report(f"{saving} and {other} train on 8 GPUs each; {saving} requests notice")
    for team, name in names.items():
        await director.submit(queued_job(team, name, 2, 4, "batch", "", queue=LABS[team]))
    for team, name in names.items():
        await director.run(team, name, 2, _PATIENCE)
    await director.until(lambda: False, _WORTH_SAVING)
    urgent = {team: director.numbered("deadline") for team in LABS}
    director.report("something urgent comes behind both")
    for team, name in urgent.items():
        lasts = director.pace.text(20)
        await director.submit(queued_job(team, name, 2, 4, "urgent", lasts, queue=LABS[team]))
    for team, name in urgent.items():
        await director.run(team, name, 2, _PATIENCE)
    lost = {team: await director.lost(team, name, _PATIENCE / 2) for team, name in names.items()}
    if None not in lost.values():
        director.report(
            f"{saving}/{names[saving]} lost {lost[saving]} GPU-seconds of work, "
            f"{other}/{names[other]} lost {lost[other]}"
        )
    for team, name in names.items():
        await director.end("Job", team, name)


async def work_that_gains_nothing_is_held(director: Director) -> None:
    """What displaces the same work twice, and loses each time what it gained, is held from it."""
    line, holder = director.numbered("etl"), director.numbered("nightly")
    night, day = GUARDED["nights"][0], GUARDED["days"][0]
    director.report(f"{night}/{holder} runs on 8 GPUs that a queue of {day} lends")
    await director.submit(queued_job(night, holder, 2, 4, "batch", "", queue="nights", line=holder))
    await director.until(lambda: director.running(night, holder) == 2, _PATIENCE)
    for turn in range(1, _TURNS + 1):
        name, urgent = f"{line}-{turn}", f"{line}-urgent-{turn}"
        await director.submit(queued_job(day, name, 2, 4, "batch", "", queue="days", line=line))
        patience = _PATIENCE if turn == 1 else _HELD_AFTER
        if not await director.run(day, name, 2, patience):
            if director.is_held(day):
                held = f"{day}/{name} is held: it displaced {holder} before, and gained nothing"
                director.report(held)
                await director.rest(10)
            await director.end("Job", day, name)
            break
        director.report(f"{day}/{name} displaced {night}/{holder}, and is displaced itself next")
        await director.rest(3)
        await director.submit(queued_job(day, urgent, 2, 4, "urgent", "", queue="days"))
        await director.run(day, urgent, 2, _PATIENCE)
        await director.end("Job", day, name)
        await director.end("Job", day, urgent)
        await director.until(lambda: director.running(night, holder) == 2, _PATIENCE)
    await director.end("Job", night, holder)


STORIES: Final[tuple[Callable[[Director], Awaitable[None]], ...]] = (
    borrow_and_reclaim,
    a_gang_preempts_and_keeps_a_budget,
    an_idle_notebook_is_evicted,
    a_higher_priority_within_a_queue,
    work_that_gains_nothing_is_held,
    a_training_saves_and_another_loses,
)


async def play_demo(director: Director) -> None:
    """Play until cancelled."""
    await director.furnish()
    director.report("three queues of 20 GPUs lend each other what they do not use")
    # The first story is the one of which most can be seen at once.
    await borrow_and_reclaim(director)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_work_in_between(director))
        tasks.create_task(_rounds(director))


async def _rounds(director: Director) -> None:
    while True:
        for story in director.shuffled(STORIES):
            await director.rest(5)
            await director.settle(_MOST_PENDING, _PATIENCE)
            await story(director)


async def _work_in_between(director: Director) -> None:
    """Keep most GPUs in use with small jobs, and delete what has ended."""
    while True:
        await director.clear()
        used, total = director.in_use()
        for _ in range(min(_AT_ONCE, (total * 3 // 4 - used) // 4)):
            team = director.random.choice(QUEUED)
            lasts = director.pace.text(director.random.randrange(25, 70))
            name = director.numbered("job")
            await director.submit(queued_job(team, name, 1, 4, "batch", lasts))
        await director.rest(7)


def _is_idle(director: Director, name: str) -> bool:
    found = director.stage.observer.gpuworkload(PLATFORM, f"Job/{name}")
    return found is not None and (found.get("status") or {}).get("phase") == "Idle"
