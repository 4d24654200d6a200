"""The bound on lost work is what a search through all schedules of tiny instances finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from random import Random

from bench.least_lost_schedule import Least, SlotJob, least_lost_schedule
from bench.lower_bound import POLICIES, compared, drawn

#: What a job has saved, how long its run lasts, whether it ran before that, and its end.
State = tuple[int, int | None, bool, int | None]


def searched(
    jobs: Sequence[SlotJob],
    devices: int,
    checkpoint: int,
    restart: int,
    ends: Mapping[int, int],
    horizon: int,
) -> int | None:
    """Play every choice of who runs in each slot; whoever is stopped loses what is not saved."""
    found: dict[tuple[State, ...], int] = {((0, None, False, None),) * len(jobs): 0}
    for slot in range(horizon):
        after: dict[tuple[State, ...], int] = {}
        for states, lost in found.items():
            for choice in product((False, True), repeat=len(jobs)):
                if (
                    sum(job.devices * runs for job, runs in zip(jobs, choice, strict=True))
                    > devices
                ):
                    continue
                if any(
                    runs and (job.arrival > slot or state[3] is not None)
                    for job, state, runs in zip(jobs, states, choice, strict=True)
                ):
                    continue
                moved, more = [], 0
                for job, state, runs in zip(jobs, states, choice, strict=True):
                    new, cost = stepped(job, state, runs, slot, checkpoint, restart)
                    moved.append(new)
                    more += cost
                key = tuple(moved)
                after[key] = min(after.get(key, 10**9), lost + more)
        found = after
    return min(
        (
            lost
            for states, lost in found.items()
            if all(state[3] is not None for state in states)
            and all(
                sum(s[3] or 0 for job, s in zip(jobs, states, strict=True) if job.priority == p)
                <= latest
                for p, latest in ends.items()
            )
        ),
        default=None,
    )


def stepped(
    job: SlotJob, state: State, runs: bool, slot: int, checkpoint: int, restart: int
) -> tuple[State, int]:
    saved, age, again, end = state
    if not runs:
        if age is None:
            return state, 0
        worked = max(0, age - (restart if again else 0))
        kept = worked // checkpoint * checkpoint
        return (saved + kept, None, True, end), (worked - kept) * job.devices
    idle = again and (age or 0) < restart
    age = (age or 0) + 1
    if saved + age - (restart if again else 0) == job.duration:
        return (job.duration, None, again, slot + 1), idle * job.devices
    return (saved, age, again, end), idle * job.devices


def test_a_long_job_that_must_make_way_loses_its_restart_alone() -> None:
    # The urgent job comes at 3 and has to end at 5. The long one ends at 11 if it waits for that;
    # to end at 10 it works from 0 to its save at 2, and from 5 on, after its restart, again.
    jobs = (SlotJob(0, 2, 6, 0), SlotJob(3, 1, 2, 100))
    assert least_lost_schedule(jobs, 2, 2, 1, {0: 11, 100: 5}, 20) == Least(0.0, True)
    assert least_lost_schedule(jobs, 2, 2, 1, {0: 10, 100: 5}, 20) == Least(2.0, True)
    assert least_lost_schedule(jobs, 2, 2, 1, {0: 9, 100: 5}, 20) is None
    # Who has time until the long one is over takes nothing from it.
    assert least_lost_schedule(jobs, 2, 2, 1, {0: 6, 100: 8}, 20) == Least(0.0, True)


def test_it_is_what_all_schedules_of_tiny_instances_have_as_their_least() -> None:
    seen = {"none": 0, "nothing": 0, "something": 0}
    for seed in range(60):
        random = Random(seed)
        jobs = (
            SlotJob(0, 2, random.randint(3, 6), 0),
            SlotJob(random.randint(1, 3), random.randint(1, 2), random.randint(1, 2), 100),
            SlotJob(random.randint(0, 3), 1, random.randint(1, 2), random.choice((0, 100))),
        )
        ends = {
            priority: sum(
                job.arrival + job.duration + random.randint(0, 5 if priority == 0 else 1)
                for job in jobs
                if job.priority == priority
            )
            for priority in (0, 100)
        }
        case = (jobs, 2, random.randint(1, 2), 1, ends, 11)
        expected = searched(*case)
        found = least_lost_schedule(*case)
        assert found == (None if expected is None else Least(float(expected), True)), (seed, case)
        seen["none" if expected is None else "something" if expected else "nothing"] += 1
    assert min(seen.values()) >= 3, seen


def test_no_policy_loses_less_than_the_bound_of_its_own_waits() -> None:
    lost = 0.0
    for seed in range(4):
        for policy in POLICIES[:2]:
            found = compared(drawn(seed, 4), policy, 600)
            assert found.exact and found.least_h <= found.lost_h
            lost += found.lost_h
    assert lost > 0
