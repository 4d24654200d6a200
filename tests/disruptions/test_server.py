"""The bound from outside: what an API server deleted for whom over hours, beside a rival.

A rival takes room that was made for others, work comes back as new objects, and preemptors fail or
come to work. Counted is what the API server was told, never the ledger. Source: specification of
disruptions, sections 4.3, 4.4 and 5; kubernetes 130429.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import pytest

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.questions import Enforcement, GovernorPolicy
from reprieve.kube.resource import PREEMPTIONS
from tests.kube.fakes import FakeAnswer
from tests.scheduling.memory import Memory, Target, memory
from tests.scheduling.site import pod
from tests.scheduling.test_governor import failed, owned

LIMIT, CRASHES = 2, 3
LOW, HIGH = ("low.a", "low.b", "low.c"), ("high.x", "high.y")


@dataclass
class Play:
    """One story. `displaced`: instant, preemptor and victim by owner, as the server was told."""

    cluster: Memory
    random: Random
    displaced: list[tuple[int, str, str]] = field(default_factory=list)
    placed: list[tuple[int, str]] = field(default_factory=list)
    crashed: list[tuple[int, str]] = field(default_factory=list)
    made: int = 0

    def audit(self, verb: str, where: Target) -> FakeAnswer | None:
        if (verb, where.kind) == ("delete", "pods"):
            self.displaced.append((self.now, self.preemptor_of(where.name), owner(where.name)))
        return None

    @property
    def now(self) -> int:
        return self.cluster.clock.monotonic()

    def preemptor_of(self, victim: str) -> str:
        kind = f"{PREEMPTIONS.plural}.{PREEMPTIONS.group}"
        for record in reversed(list(self.cluster.api.objects[kind].values())):
            if any(each["root"]["name"] == victim for each in record["spec"]["victims"]):
                return owner(record["spec"]["preemptor"]["name"])
        raise AssertionError(f"{victim} is in no record")

    def name(self, work: str) -> str:
        self.made += 1
        return f"{work}-{self.made}"

    def rival(self) -> None:
        """Another scheduler puts its work wherever there is room, and asks nobody."""
        there = set(self.cluster.placed().values())
        running = {owner(name) for name in self.cluster.pods}
        for node in ("node-0", "node-1"):
            free = [work for work in LOW if work not in running]
            if node not in there and free:
                work = self.random.choice(free)
                running.add(work)
                self.cluster.running(owned(pod(self.name(work), 4, priority="low"), work), node)

    async def minute(self) -> None:
        """Let somebody come who needs room, and what was made go to one or the other."""
        waiting = [n for n in self.cluster.pods if n.startswith("high")]
        if not waiting:
            work = self.random.choice(HIGH)
            self.cluster.create(owned(pod(self.name(work), 4, priority="high"), work))
        await self.cluster.pass_time(20 * SECOND)
        self.cluster.end_all()
        if self.random.random() < 0.7:
            self.rival()
        await self.cluster.pass_time(10 * SECOND)
        for name in [n for n in self.cluster.placed() if n.startswith("high")]:
            self.placed.append((self.now, owner(name)))
            if self.random.random() < 0.6:
                self.crashed.append((self.now, owner(name)))
                failed(self.cluster, name)
                await self.cluster.pass_time(SECOND)
            self.cluster.end(name)
        self.rival()
        await self.cluster.pass_time(30 * SECOND)

    def without_gain(self) -> Iterator[tuple[int, str, str]]:
        """Yield displacements beyond the limit for which a preemptor has got nothing since."""
        for at, one, other in self.displaced:
            since = max((t for t, work in self.placed if work == one and t < at), default=-1)
            before = {
                t
                for t, preemptor, victim in self.displaced
                if (preemptor, victim) == (one, other) and max(since, at - HOUR) < t <= at
            }
            if len(before) > LIMIT:
                yield at, one, other

    def after_crashes(self) -> Iterator[tuple[int, str]]:
        """Yield displacements by who has failed thrice within the hour, each time after one."""
        for at, one, _ in self.displaced:
            mine = sorted({t for t, preemptor, _ in self.displaced if preemptor == one})
            counted, last = 0, -1
            for t in (t for t, work in self.crashed if work == one and at - HOUR < t < at):
                if any(last < each <= t <= each + 5 * MINUTE for each in mine):
                    counted, last = counted + 1, t
            if counted >= CRASHES:
                yield at, one


def owner(name: str) -> str:
    return name.partition("-")[0]


async def played(seed: int, policy: GovernorPolicy, hours: int) -> Play:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        play = Play(cluster, Random(seed))
        cluster.api.before = play.audit
        play.rival()
        cluster.start(governor=Governor(policy))
        for _ in range(60 * hours):
            await play.minute()
        return play


@pytest.mark.parametrize("seed", range(2))
async def test_over_hours_nobody_displaces_in_vain_or_after_crashes_where_all_are_held(
    seed: int,
) -> None:
    play = await played(seed, GovernorPolicy(enforcement=Enforcement.ALL), hours=4)
    print(f"{len(play.displaced)} displacements, {len(play.crashed)} crashes")
    assert list(play.without_gain()) == [] and list(play.after_crashes()) == []
    # Nobody is held for good.
    last = max(at for at, _, _ in play.displaced)
    assert len(play.displaced) >= 10 and play.now - last < 2 * HOUR


async def test_without_the_governor_the_same_story_breaks_the_bound() -> None:
    play = await played(0, GovernorPolicy(loop_limit=0, crashes=10_000), hours=2)
    assert len(list(play.without_gain())) >= 5 and len(list(play.after_crashes())) >= 5
