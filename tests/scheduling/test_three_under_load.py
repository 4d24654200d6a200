"""Three planes with three scheduler names fill the same nodes, and make room on them, under load.

Every request, answer and event takes its time, so that each of them decides on what is old. At each
binding the pods on the node must fit it, and leave their room to pods of higher priority that
another scheduler has nominated there long enough ago that everybody knows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest

from kubeworld.units.durations import MILLISECOND, SECOND
from tests.kube.fakes import FakeAnswer
from tests.scheduling.memory import Memory, Target, memory
from tests.scheduling.site import group, pod

_NAMES = ("red", "green", "blue")
_NODES = 6
_CPU = 8
_LAG = 30 * MILLISECOND
_KNOWN = SECOND
_STEPS = 120


@dataclass
class Watchman:
    """Looks at every write. `nominated`: since when a pod has had its nomination."""

    cluster: Memory
    nominated: dict[str, tuple[str, int]] = field(default_factory=dict)
    binders: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    kept: int = 0  # bindings to a node on which somebody more important was nominated

    def after(self, verb: str, where: Target) -> FakeAnswer | None:
        if where.kind != "pods":
            return None
        now = self.cluster.clock.monotonic()
        if verb == "bind":
            self._bound(where.name, now)
        found = self.cluster.pods.get(where.name)
        node = (found or {"status": {}})["status"].get("nominatedNodeName", "")
        if self.nominated.get(where.name, ("", 0))[0] != node:
            self.nominated[where.name] = (node, now)
        return None

    def _bound(self, name: str, now: int) -> None:
        pods = self.cluster.pods
        node = pods[name]["spec"]["nodeName"]
        self.binders[pods[name]["spec"]["schedulerName"]] += 1
        there = {n: p for n, p in pods.items() if p["spec"].get("nodeName") == node}
        if sum(map(_cpu, there.values())) > _CPU:
            self.wrong.append(f"{node} is too full with {name}")
        stay = [p for p in there.values() if not p["metadata"].get("deletionTimestamp")]
        expected = [
            pods[other]
            for other, (where, since) in self.nominated.items()
            if where == node
            and other in pods
            and not pods[other]["spec"].get("nodeName")
            and pods[other]["spec"]["priority"] > pods[name]["spec"]["priority"]
            and pods[other]["spec"]["schedulerName"] != pods[name]["spec"]["schedulerName"]
            and now - since >= _KNOWN
        ]
        self.kept += bool(expected)
        if sum(map(_cpu, [*stay, *expected])) > _CPU:
            names = [each["metadata"]["name"] for each in expected]
            self.wrong.append(f"{name} takes the room of {names} on {node} at {now / SECOND}")


def _cpu(obj: dict[str, object]) -> int:
    spec: dict[str, list[dict[str, dict[str, dict[str, str]]]]] = obj["spec"]  # type: ignore[assignment]
    return int(spec["containers"][0]["resources"]["requests"]["cpu"])


def _arrival(random: Random, cluster: Memory, number: int) -> None:
    name = random.choice(_NAMES)
    priority = random.choice(("low", "low", "middle", "high"))
    if random.random() < 0.3:
        size, owner = random.randint(2, 3), f"gang-{number}"
        mode = random.choice(("single", "all"))
        cluster.create(
            group(owner, min_count=size, mode=mode, priority=priority),
            *(
                pod(
                    f"{owner}-{i}",
                    random.randint(1, 4),
                    group=owner,
                    priority=priority,
                    scheduler=name,
                )
                for i in range(size)
            ),
        )
        return
    cpu = random.randint(1, 5)
    cluster.create(pod(f"pod-{number}", cpu, priority=priority, scheduler=name))


async def _play(seed: int) -> tuple[Watchman, int]:
    random = Random(seed)
    async with memory() as cluster:
        cluster.nodes([_CPU] * _NODES)
        watchman = Watchman(cluster)
        cluster.api.after = watchman.after
        lags = Random(seed + 1)
        for name in _NAMES:
            cluster.start(name, lag=lambda: lags.randint(1, _LAG), shared_nodes=True)
        await cluster.pass_time(2 * SECOND)
        for number in range(_STEPS):
            _arrival(random, cluster, number)
            await cluster.pass_time(random.randint(0, 600) * MILLISECOND)
            leaving = [name for name in sorted(cluster.victims()) if random.random() < 0.4]
            done = [n for n in sorted(cluster.placed()) if random.random() < 0.02]
            cluster.end(*leaving, *done)
        assert set(cluster.api.deleted) <= cluster.planned()
        return watchman, len(cluster.intents())


async def _play_all(seeds: range) -> None:
    kept = 0
    for seed in seeds:
        watchman, plans = await _play(seed)
        assert not watchman.wrong
        assert set(watchman.binders) == set(_NAMES)
        assert min(watchman.binders.values()) >= 5, watchman.binders
        assert plans >= 5, "hardly anybody had to make room"
        kept += watchman.kept
    assert kept >= 1, "no binding where room was kept for somebody else"


async def test_three_schedulers_under_load_fill_no_node_beyond_its_room() -> None:
    await _play_all(range(3))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(5))
async def test_three_schedulers_under_any_load_fill_no_node_beyond_its_room(chunk: int) -> None:
    await _play_all(range(3 + 8 * chunk, 11 + 8 * chunk))
