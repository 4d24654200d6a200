"""Plans for racks of several planes that are disturbed before they are carried out.

Victims end slowly. Meanwhile the process dies, a node of the rack fails, or another gang's plan
frees a rack at the same time. Nobody is evicted twice, and of a rack that no gang gets nobody goes
unless a node of it failed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from reprieve.kube.resource import NODES
from tests.together.site import Site, job, site
from tests.together.test_racks import HOST, LEVELS, nodes_of, on, racks, wanted

_ENDS: Final = "sim.reprieve.dev/termination-time"


def slowly(unit: list[dict[str, Any]], host: str) -> list[dict[str, Any]]:
    """Return a job whose pods end after 4 s on the first node of a rack, 16 s on another."""
    metadata = unit[0]["spec"]["template"]["metadata"]
    seconds = 4 if host.endswith("-0") else 16
    metadata["annotations"] = {**metadata.get("annotations", {}), _ENDS: f"{seconds}s"}
    return unit


def low(name: str, host: str) -> list[dict[str, Any]]:
    """Return a job of the gangs' own queue, which its rules preempt."""
    given: Any = {"queued": True, "priority": "low", "gpus": 8, "opted": False}
    unit = job(name, "a", nodeSelector={HOST: host}, terminationGracePeriodSeconds=30, **given)
    return slowly(unit, host)


def plain(name: str, host: str, priority: str = "low") -> list[dict[str, Any]]:
    """Return a job without a queue: of low priority, or idle work if it is opted in."""
    unit = on(name, host, priority=priority, terminationGracePeriodSeconds=30)
    return slowly(unit, host)


@dataclass
class Play:
    """Who holds which node, who of them is idle, and the gangs that want a rack each."""

    held: dict[str, str] = field(default_factory=dict)
    units: list[list[dict[str, Any]]] = field(default_factory=list)
    idle: list[list[dict[str, Any]]] = field(default_factory=list)

    def add(self, kind: str, host: str) -> None:
        """Have a unit of a kind hold a node: `own`, `plain`, `idle` or `busy`."""
        name = f"{kind}-{host}"
        self.held[name] = host
        if kind == "own":
            self.units.append(low(name, host))
        elif kind == "busy":
            self.units.append(on(name, host, priority="high", opted=False))
        else:
            self.units.append(plain(name, host, "high" if kind == "idle" else "low"))
            if kind == "idle":
                self.idle.append(self.units[-1])

    async def begin(self, cluster: Site) -> None:
        """Run all units, and make the idle ones idle."""
        await cluster.runs(*self.units)
        if self.idle:
            await cluster.idle(*self.idle)
        cluster.evicted.clear()
        cluster.stored.clear()
        cluster.writes = 0

    def racks_of(self, evicted: Sequence[str]) -> set[str]:
        """Return the racks of the nodes that units held."""
        return {self.held[name].partition("-")[0] for name in evicted}


async def asked(cluster: Site, *gangs: str) -> None:
    """Queue gangs of two nodes each, and wait until everything is at rest."""
    for name in gangs:
        for each in wanted(name):
            cluster.use([each], 90.0)
            await cluster.create(each)
    await cluster.rest()
    await asyncio.sleep(60)
    await cluster.rest()


def racks_got(cluster: Site, *gangs: str) -> set[str]:
    """Return the racks in which gangs run."""
    return {host.partition("-")[0] for name in gangs for host in nodes_of(cluster, name)}


@pytest.mark.thorough
@pytest.mark.parametrize("write", [4, 8, 14])
async def test_two_plans_for_racks_outlive_the_process(tmp_path: Path, write: int) -> None:
    """Both have evicted the jobs of a rack that still end, and their order is known to none."""
    play = Play()
    for host in ("r0-0", "r0-1", "r1-0", "r1-1"):
        play.add("own", host)
    play.add("busy", "r2-0")
    async with site(tmp_path, racks((8, 8), (8, 8), (8, 8)), {"a": 64, "b": 0}, levels=LEVELS) as c:
        await play.begin(c)
        c.dies_at = (write, "stored")
        await asked(c, "first", "second")
        said = "\n".join(c.lines[-60:])
        assert c.deaths == 1, said
        assert (c.placed("first"), c.placed("second")) == (2, 2), said
        assert set(c.evicted) == {name for name in play.held if name.startswith("own")}, said
        assert set(c.stored.values()) == {1}, said


@pytest.mark.thorough
async def test_a_gang_gets_another_rack_where_a_node_of_its_rack_fails_meanwhile(
    tmp_path: Path,
) -> None:
    play = Play()
    for host in ("r0-0", "r0-1", "r1-0", "r1-1"):
        play.add("own", host)
    async with site(tmp_path, racks((8, 8), (8, 8)), {"a": 64, "b": 0}, levels=LEVELS) as c:
        await play.begin(c)
        failing = asyncio.create_task(_fail_a_node(c, play))
        await asked(c, "first")
        lost = await failing
        said = "\n".join(c.lines[-60:])
        assert c.placed("first") == 2, said
        assert racks_got(c, "first") == {"r0", "r1"} - {lost.partition("-")[0]}, said
        assert set(c.stored.values()) == {1}, said


async def _fail_a_node(cluster: Site, play: Play) -> str:
    """Delete the node of the first unit that is evicted; return its name, empty without one."""
    for _ in range(300):
        if cluster.evicted:
            break
        await asyncio.sleep(0.2)
    if not cluster.evicted:
        return ""
    host = play.held[next(iter(cluster.evicted))]
    await cluster.client.delete(NODES, "", host)
    return host


BEST: Final = "quota: {profile: best}\n"
_KINDS: Final = ("own", "own", "plain", "plain", "idle", "busy", "")
_IDLE_WORK_WENT: Final = 47  # for the rack whose node fails
_DISTURBANCES: Final = ("none", "death", "node", "gang")


def drawn(random: Random) -> tuple[Play, list[list[int]], str]:
    """Return who holds two or three racks of two nodes, and what disturbs the plan."""
    play, shape = Play(), [[8, 8] for _ in range(random.choice((2, 3)))]
    for spec in racks(*shape):
        kind = random.choice(_KINDS)
        if kind:
            play.add(kind, spec.name)
    return play, shape, random.choice(_DISTURBANCES)


def could_be_freed(play: Play, shape: Sequence[Sequence[int]], *, best: bool) -> set[str]:
    """Return the racks that planes free: `best` together, else one of them alone."""
    kinds: dict[str, set[str]] = {f"r{number}": set() for number in range(len(shape))}
    for name, host in play.held.items():
        kinds[host.partition("-")[0]].add(name.partition("-")[0])
    ways = [{"own", "plain", "idle"}] if best else [{"own"}, {"plain", "idle"}]
    return {rack for rack, found in kinds.items() if any(found <= way for way in ways)}


async def _played(folder: Path, number: int, *, best: bool = False) -> tuple[str, int, str]:
    """Play one drawn story; return its disturbance, how many were evicted, and what is wrong."""
    random = Random(number)
    play, shape, disturbance = drawn(random)
    gangs = ["first", "second"][: 2 if disturbance == "gang" or random.random() < 0.3 else 1]
    nodes, quotas = racks(*shape), {"a": 64, "b": 0}
    config = BEST if best else ""
    async with site(folder, nodes, quotas, levels=LEVELS, config=config) as cluster:
        await play.begin(cluster)
        if disturbance == "death":
            cluster.dies_at = (random.randint(2, 16), random.choice(("before", "stored")))
        failing = (
            asyncio.create_task(_fail_a_node(cluster, play)) if disturbance == "node" else None
        )
        await asked(cluster, *gangs)
        failed: set[str] = set()
        if failing is not None:
            if failing.done():
                failed = {failing.result().partition("-")[0]} - {""}
            failing.cancel()
        if failed:
            # Idle work has gone for a place that is lost: others are looked for a minute later.
            await asyncio.sleep(90)
            await cluster.rest()
        got, gone = racks_got(cluster, *gangs), set(cluster.evicted)
        wrong = []
        if play.racks_of([*gone]) - got - failed:
            wrong.append(f"in vain: {sorted(gone)} for racks {sorted(got)}")
        if not set(cluster.stored.values()) <= {1}:
            wrong.append("evicted twice")
        counts = [cluster.placed(name) for name in gangs]
        able = could_be_freed(play, shape, best=best) - failed
        if set(counts) - {0, 2}:
            wrong.append(f"parts of gangs run: {counts}")
        if sum(map(bool, counts)) < min(len(gangs), len(able)):
            wrong.append(f"gangs run: {counts}, racks that could be freed: {sorted(able)}")
        text = f"{number} {disturbance} {sorted(play.held)}: {'; '.join(wrong)}"
        return disturbance, len(gone), text if wrong else ""


@pytest.mark.thorough
async def test_a_gang_whose_rack_lost_a_node_gets_one_that_other_planes_free(
    tmp_path: Path,
) -> None:
    disturbance, evicted, said = await _played(tmp_path, _IDLE_WORK_WENT)
    assert (disturbance, said) == ("node", "") and evicted > 2


@pytest.mark.parametrize("best", [False, True], ids=["compatible", "best"])
@pytest.mark.parametrize(
    "stories",
    [pytest.param(4, marks=pytest.mark.thorough), pytest.param(60, marks=pytest.mark.slow)],
)
async def test_nobody_goes_twice_or_in_vain_over_random_disturbed_plans(
    tmp_path: Path, stories: int, best: bool
) -> None:
    seen: Counter[str] = Counter()
    wrong = []
    for number in range(stories):
        folder = tmp_path / str(number)
        folder.mkdir()
        disturbance, evicted, said = await _played(folder, number, best=best)
        seen[disturbance] += 1
        seen["evicted"] += evicted
        wrong += [said] if said else []
        print(number, disturbance, evicted, said, flush=True)
    print(dict(seen))
    assert not wrong, "\n".join(wrong)
    assert seen["evicted"] >= stories / 2, seen
