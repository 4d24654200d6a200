"""A process of three planes that dies at any of its writes, and another that goes on.

What is evicted is counted from the operator's writes as the API server stores them. The sample of
every run is what the slow test plays for every second write.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from tests.together.site import Site, deployment, job, node, site

_STAGES: Final = ("before", "stored")


async def hand_over(cluster: Site) -> None:
    """A queued job takes back its quota by one plane and gets its node by another."""
    borrower, idle = job("sweep", "b", queued=True), job("notebook", "b", priority="high")
    await cluster.runs(borrower, idle)
    await cluster.idle(idle)


async def idle_first(cluster: Site) -> None:
    """A pending job has idle work evicted by one plane, and is placed by another."""
    idle, busy = deployment("ann", "b", priority="high"), deployment("bob", "b")
    await cluster.runs(idle, busy)
    await cluster.idle(idle)


async def mixture(cluster: Site) -> None:
    """A pending job has idle work evicted by one plane, and lower priorities by another."""
    idle, busy = deployment("ann", "b", priority="high"), job("bob", "b", gpus=2, opted=False)
    stays = job("stays", "b", gpus=2, priority="high", opted=False)
    await cluster.runs(idle, busy, stays)
    await cluster.idle(idle)


async def mixture_instead(cluster: Site) -> None:
    """Priority alone is enough; with idle work beside it fewer devices are evicted."""
    idle, small = job("ann", "b", gpus=1, priority="high"), job("tim", "b", gpus=2, opted=False)
    await cluster.runs(idle, small, job("bob", "b", opted=False))
    await cluster.idle(idle)


async def mixture_for_quota(cluster: Site) -> None:
    """A queued job has idle work evicted for its quota, and lower priorities for its nodes."""
    idle, busy = job("ann", "b", priority="high", queued=True), job("bob", "b", gpus=2, opted=False)
    stays = job("stays", "b", gpus=2, priority="high", opted=False)
    await cluster.runs(idle, busy, stays)
    await cluster.idle(idle)


async def quota_return(cluster: Site) -> None:
    """A queue takes quota back from busy work, whose return must leave idle work alone."""
    idle, busy = job("notebook", "b", priority="high", queued=True), job("tune", "b", queued=True)
    await cluster.runs(idle, busy)
    await cluster.idle(idle)


STORIES: Final[dict[str, tuple[Any, ...]]] = {
    "hand-over": (hand_over, {"queued": True}, {"a": 4, "b": 0}, {"sweep": 4}, "notebook"),
    "idle-first": (idle_first, {}, {"a": 8, "b": 0}, {"ann": 4}, "bob"),
    "mixture": (mixture, {"gpus": 6}, {"a": 8, "b": 0}, {"ann": 4, "bob": 2}, "stays"),
    "mixture-instead": (mixture_instead, {}, {"a": 8, "b": 0}, {"ann": 1, "tim": 2}, "bob"),
    "quota-mixture": (
        *(mixture_for_quota, {"gpus": 6, "queued": True}, {"a": 4, "b": 4}),
        *({"ann": 4, "bob": 2}, "stays"),
    ),
    "quota-return": (
        *(quota_return, {"queued": True, "opted": False}, {"a": 4, "b": 4}),
        *({"tune": 4}, "notebook"),
    ),
}


async def played(folder: Path, name: str, dies_at: tuple[int, str] | None) -> tuple[int, int]:
    """Play a story to its end; return the writes of it, and how often the process died."""
    prepare, given, quotas, evicted, stays = STORIES[name]
    async with site(folder, [node("n0")], quotas) as cluster:
        await prepare(cluster)
        cluster.writes, cluster.dies_at = 0, dies_at
        cluster.stored.clear()
        found = await cluster.demand(job("wanted", "a", priority="high", **given))
        said = f"{name} {dies_at}:\n" + "\n".join(cluster.lines[-40:])
        assert (found, cluster.placed("wanted"), cluster.placed(stays)) == (evicted, 1, 1), said
        assert set(cluster.stored.values()) == {1}, f"evicted twice: {said}"
        return cluster.writes, cluster.deaths


@pytest.mark.parametrize("name", STORIES)
async def test_nobody_goes_twice_or_in_vain_where_the_process_dies_between_stages(
    tmp_path: Path, name: str
) -> None:
    for write in (3, 11):
        for stage in _STAGES:
            _, deaths = await played(tmp_path / f"{write}-{stage}", name, (write, stage))
            assert deaths == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", STORIES)
async def test_nobody_goes_twice_or_in_vain_at_every_second_write_that_the_process_dies_at(
    tmp_path: Path, name: str
) -> None:
    writes, _ = await played(tmp_path / "undisturbed", name, None)
    for write in range(1, writes + 1, 2):
        for stage in _STAGES:
            await played(tmp_path / f"{write}-{stage}", name, (write, stage))
    print(f"{name}: died at every second of {writes} writes, received and stored")
    assert writes >= 10
