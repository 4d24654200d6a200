"""Queues played by hand: naive replays of jobs whose order is known without an engine."""

from __future__ import annotations

from collections.abc import Sequence


def first_come_waits(jobs: Sequence[tuple[float, float]], servers: int) -> list[float]:
    """Return each job's wait at servers that take jobs of one device in the order of arrival.

    Jobs are (arrival, service), ordered by arrival.
    """
    free = [0.0] * servers
    found = []
    for arrival, service in jobs:
        soonest = min(range(servers), key=lambda number: free[number])
        start = max(arrival, free[soonest])
        found.append(start - arrival)
        free[soonest] = start + service
    return found


def strict_waits(jobs: Sequence[tuple[int, int, int]], devices: int) -> list[int]:
    """Return each job's wait where the first that does not fit blocks all others.

    Jobs are (arrival, devices, length), ordered by arrival; time goes on second by second.
    """
    started: list[int | None] = [None] * len(jobs)
    now, turn = 0, 0
    while turn < len(jobs):
        used = sum(
            wide
            for (_, wide, length), start in zip(jobs, started, strict=True)
            if start is not None and now < start + length
        )
        arrival, wide, _ = jobs[turn]
        if arrival <= now and used + wide <= devices:
            started[turn] = now
            turn += 1
            continue
        now += 1
    return [(start or 0) - arrival for (arrival, _, _), start in zip(jobs, started, strict=True)]


def progress_by_seconds(
    seconds: int, checkpoint: int, save: int, restart: int, kept: int
) -> tuple[int, int]:
    """Return (kept, lost) of a run displaced after so many seconds, lived second by second.

    A save begins every `checkpoint` seconds of work and is good `save` seconds later, while work
    goes on.
    """
    progress, good = kept, kept
    saving: list[tuple[int, int]] = []
    for second in range(1, seconds + 1):
        if second <= restart:
            continue
        progress += 1
        if checkpoint and (progress - kept) % checkpoint == 0:
            saving.append((second + save, progress))
        good = max([good, *(point for end, point in saving if end <= second)])
    return good, progress - good
