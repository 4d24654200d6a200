"""A study with three planes decides as an operator with them does on the same cluster.

The jobs of a drawn cluster come one after the other, all queued and of one pod each; some become
idle; then demands come. Compared are the devices that were evicted for each demand, by job, and who
runs at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

import pytest

from kubeworld.units.durations import SECOND
from reprieve.settings.idle import FALLBACK
from reprieve.simulation.idle_policy import IdlePolicy
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.lives import Preempted
from reprieve.simulation.replaying.quota_cluster import key_of
from reprieve.simulation.replaying.replay import replay
from reprieve.simulation.trace import Job
from tests.simulation.building import work
from tests.together.site import job, node, site

_APART: Final = 1_000  # seconds between those that come
_LONG: Final = 1_000_000
_PRIORITIES: Final = {0: "", 100: "low", 1000: "high"}
_TEAMS: Final = ("a", "b")


@dataclass(frozen=True)
class Asked:
    """A job of a team; `idle`: it is from before the first demand on."""

    name: str
    team: str
    gpus: int
    priority: int
    idle: bool = False


@dataclass(frozen=True)
class Story:
    """Nodes that are alike, jobs that run, and demands."""

    nodes: tuple[int, int]
    jobs: tuple[Asked, ...]
    demands: tuple[Asked, ...]

    @property
    def capacity(self) -> int:
        return self.nodes[0] * self.nodes[1]


def drawn(seed: int) -> Story:
    """Return a cluster that is full, or nearly, and two demands."""
    random = Random(seed)
    nodes = random.choice([(2, 4), (1, 8), (2, 8), (3, 4)])
    left, jobs = [nodes[1]] * nodes[0], list[Asked]()
    while any(left) and len(jobs) < 8:
        gpus = min(max(left), random.choice([1, 2, 2, 4]))
        left[left.index(max(left))] -= gpus
        team, priority = random.choice(_TEAMS), random.choice([0, 100, 100, 1000])
        jobs.append(Asked(f"job-{len(jobs)}", team, gpus, priority, random.random() < 0.4))
    demands = (
        Asked(f"wanted-{number}", random.choice(_TEAMS), random.choice([1, 2, 4]), priority)
        for number, priority in enumerate(random.choices([0, 100, 1000], k=2))
    )
    return Story(nodes, tuple(jobs), tuple(demands))


Told = tuple[list[Mapping[str, int]], set[str]]


def simulated(story: Story) -> Told:
    """Return whom the replay evicts for each demand, and who runs at the end."""
    begin = len(story.jobs) * _APART
    jobs = []
    for number, each in enumerate((*story.jobs, *story.demands)):
        arrival = number * _APART + (_APART if number >= len(story.jobs) else 0)
        made = Job(each.name, arrival * SECOND, each.gpus, _LONG * SECOND, "", each.team)
        made = replace(made, priority=each.priority)
        if each.idle:
            made = replace(made, idle_from=(begin - arrival) * SECOND)
        jobs.append(made)
    settings = replace(FALLBACK, grace_period=5 * SECOND)
    policy = PolicySpec(
        "three", planes=("idle", "quota", "scheduling"), places=True, idle=IdlePolicy(settings)
    )
    done = replay(jobs, policy, work(evict=1), _TEAMS, story.nodes)
    devices = {key_of(made): made.devices for made in jobs}
    first = jobs[len(story.jobs)].arrival
    told: list[dict[str, int]] = [{} for _ in story.demands]
    end = first + len(story.demands) * _APART * SECOND
    for one in done.decisions:
        if isinstance(one, Preempted) and first <= one.at < end:
            of = told[(one.at - first) // (_APART * SECOND)]
            for victim in one.victims:
                name = victim.job.partition("/")[2]
                of[name] = of.get(name, 0) + devices[victim.job]
    running = {
        life.job.id
        for life in done.lives
        for since, until in _stretches(done.decisions, key_of(life.job), life.finished or 0)
        if since < end <= until
    }
    return list(told), running


def _stretches(decisions: Sequence[object], key: str, finished: int) -> list[tuple[int, int]]:
    """Return from when to when a job ran."""
    found: list[tuple[int, int]] = []
    since = -1
    for one in decisions:
        if isinstance(one, Preempted):
            if since >= 0 and any(victim.job == key for victim in one.victims):
                found.append((since, one.at))
                since = -1
        elif type(one).__name__ == "Admitted" and getattr(one, "job", "") == key:
            since = one.at  # type: ignore[attr-defined]
    return [*found, (since, finished)] if since >= 0 else found


async def operated(story: Story, folder: Path) -> Told:
    """Return whom an operator evicts for each demand, and who runs at the end."""
    count, gpus = story.nodes
    nodes = [node(f"n{number}", gpus) for number in range(count)]
    even, left = divmod(story.capacity, len(_TEAMS))
    quotas = {team: even + (place < left) for place, team in enumerate(_TEAMS)}
    units = {
        each.name: job(
            each.name, each.team, gpus=each.gpus, priority=_PRIORITIES[each.priority], queued=True
        )
        for each in (*story.jobs, *story.demands)
    }
    async with site(folder, nodes, quotas) as cluster:
        for each in story.jobs:
            await cluster.runs(units[each.name])
        await cluster.idle(*(units[each.name] for each in story.jobs if each.idle))
        told = [await cluster.demand(units[each.name]) for each in story.demands]
        return list(told), {name for name in units if cluster.placed(name)}


@pytest.mark.parametrize("seed", [1, 3, 6, 8, 13, 20])
async def test_a_study_evicts_whom_an_operator_evicts(tmp_path: Path, seed: int) -> None:
    story = drawn(seed)
    assert simulated(story) == await operated(story, tmp_path), story
