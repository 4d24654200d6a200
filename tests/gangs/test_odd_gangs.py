"""Gangs of both doors and of annotations with odd values, in any order: nobody is stopped by them.

Seeded stories on the whole plane in memory: pods and PodGroups come, change and go while gangs
wait, preempt and end. Nothing is logged as a fault, and no node ever holds more than it offers.
"""

from __future__ import annotations

import logging
from collections import Counter
from random import Random
from typing import Any, Final

import pytest

from kubeworld.units.durations import SECOND
from reprieve.api.gangs import DOORS, Door
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import NAMESPACE, Object, pod

PREFIX: Final = "gang.scheduling.koordinator.sh/"
LIGHT: Final = "pod-group.scheduling.sigs.k8s.io/"
SAID: Final = {
    "min-available": ("1", "2", "3", "0", "-1", "x", "2.0", "", " 2", "+2", "9" * 5_000),
    "total-number": ("1", "5", "x", "-3", "9" * 5_000),
    "waiting-time": ("1s", "5s", "0", "-1s", "x", "1d", "600s", "1" * 5_000 + "s"),
    "mode": ("Strict", "NonStrict", "strict", ""),
    "match-policy": ("once-satisfied", "only-waiting", "waiting-and-running", "bad"),
    "groups": (
        f'["{NAMESPACE}/a","{NAMESPACE}/b"]',
        f'["{NAMESPACE}/zzz","{NAMESPACE}/a"]',
        f'["{NAMESPACE}/a,{NAMESPACE}/b"]',
        '{"a":1}',
        "[null]",
        "[" * 50_000,
        "[]",
        "x",
    ),
}
STATUSES: Final[tuple[Object, ...]] = (
    {},
    {"phase": "Unknown"},
    {"phase": "what somebody wrote"},
    {"phase": "Running", "scheduleStartTime": "soon"},
)
SEEDS: Final = 16


def notes(random: Random) -> dict[str, str]:
    return {
        f"{PREFIX}{key}": random.choice(texts)
        for key, texts in SAID.items()
        if random.random() < (0.9 if key == "min-available" else 0.4)
    }


def member(random: Random, name: str) -> Object:
    made = pod(
        name,
        random.choice((1, 2, 3)),
        priority=random.choice(("low", "middle", "high")),
        scheduler="koord-scheduler",
    )
    gang, metadata = random.choice("abc"), made["metadata"]
    metadata["annotations"] = notes(random)
    ways: dict[str, Any] = {
        **{door.label: {door.label: gang} for door in DOORS},
        "light": {f"{LIGHT}name": gang, f"{LIGHT}min-available": random.choice(("2", "x"))},
        "annotation": {},
        "alone": {},
    }
    way = random.choice(sorted(ways))
    metadata["labels"] = ways[way]
    if way == "annotation":
        metadata["annotations"][f"{PREFIX}name"] = gang
    return made


def pod_group(random: Random, name: str, door: Door) -> Object:
    spec: Object = {"minMember": random.choice((0, 1, 2, 2, 3, -1))}
    if random.random() < 0.7:
        spec["scheduleTimeoutSeconds"] = random.choice((0, -1, 1, 30, 600))
    return {
        "apiVersion": door.api_version,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": notes(random)},
        "spec": spec,
        "status": random.choice(STATUSES),
    }


def step(cluster: Memory, random: Random, number: int) -> None:
    """Do something."""
    door = random.choice(DOORS)
    kind = f"podgroups.{door.api_version.partition('/')[0]}"
    match random.randrange(7):
        case 0:
            made = pod_group(random, random.choice("abc"), door)
            old = cluster.api.objects[kind].get((NAMESPACE, made["metadata"]["name"]))
            kept = old["metadata"] if old is not None else {}
            cluster.api.put(kind, {**made, "metadata": {**kept, **made["metadata"]}})
        case 1:
            cluster.api.remove(kind, NAMESPACE, random.choice("abc"))
        case 2 if cluster.pods:
            cluster.end(random.choice(sorted(cluster.pods)))
        case 3:
            cluster.end_all()
        case _:
            names = [f"p-{number}-{index}" for index in range(random.randint(1, 3))]
            cluster.create(*(member(random, name) for name in names))


def overfilled(cluster: Memory) -> dict[str, int]:
    used: Counter[str] = Counter()
    for name, node in cluster.placed().items():
        (container,) = cluster.pod(name)["spec"]["containers"]
        used[node] += int(container["resources"]["requests"]["cpu"])
    nodes = cluster.api.objects["nodes"]
    offered = {name: int(node["status"]["allocatable"]["cpu"]) for (_, name), node in nodes.items()}
    return {name: amount for name, amount in used.items() if amount > offered[name]}


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_no_gang_however_odd_stops_the_plane_or_overfills_a_node(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    random = Random(seed)
    async with memory() as cluster:
        cluster.nodes([random.choice((2, 4, 6)) for _ in range(random.randint(1, 4))])
        cluster.start("koord-scheduler")
        placed: set[str] = set()
        for number in range(30):
            step(cluster, random, number)
            await cluster.pass_time(random.choice((SECOND // 10, SECOND, 5 * SECOND, 40 * SECOND)))
            assert overfilled(cluster) == {}
            placed |= cluster.placed().keys()
        assert placed, "a story in which nothing happens tells nothing"
    assert [each.message for each in caplog.records if each.levelno >= logging.ERROR] == []
