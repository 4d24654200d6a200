"""Turns in the lives of queued jobs and pods, all told at once in one cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from reprieve.kube.errors import AlreadyExists
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS
from tests.quota_plane.deletions import told_at_a_pace
from tests.quota_plane.gated_site import gated_site
from tests.quota_plane.job_lives import (
    FOO,
    KAIWO,
    AJobLosesItsWorkload,
    AJobRunsWithFewerPods,
    AJobTakesTheWorkloadThatItNames,
    AJobThatIsChangedIsQueuedAnew,
    AJobThatIsRefusedHoldsNoQuota,
    JobsBelowAQueuedOneAreNotQueued,
    PodsThatHaveEndedMakeRoom,
    TheLastPodsOfAJobWithFewerMakeRoom,
)
from tests.quota_plane.kind_stories import ROWS, definition, resource
from tests.quota_plane.life import Life
from tests.quota_plane.pod_lives import (
    AGroupIsKeptAtItsSize,
    AGroupWithoutItsPodsIsNotQueued,
    APodIsMarkedWhenItIsEnded,
    APodThatNeverRanIsNotQueuedAgain,
    ASetIsHeldWithoutReplicas,
)
from tests.quota_plane.site import (
    Site,
    cluster_queue,
    flavor,
    local_queue,
    node,
    priority_class,
)

LOWER = {"withinClusterQueue": "LowerPriority"}
LIVES: dict[str, type[Life]] = {
    each.__name__: each
    for each in (
        APodIsMarkedWhenItIsEnded,
        APodThatNeverRanIsNotQueuedAgain,
        AGroupIsKeptAtItsSize,
        AGroupWithoutItsPodsIsNotQueued,
        ASetIsHeldWithoutReplicas,
        JobsBelowAQueuedOneAreNotQueued,
        AJobRunsWithFewerPods,
        AJobThatIsChangedIsQueuedAnew,
        PodsThatHaveEndedMakeRoom,
        TheLastPodsOfAJobWithFewerMakeRoom,
        AJobLosesItsWorkload,
        AJobTakesTheWorkloadThatItNames,
        AJobThatIsRefusedHoldsNoQuota,
    )
}


async def prepare(cluster: Site) -> None:
    for each in (resource(ROWS["JobSet"]), resource(ROWS["RayJob"]), KAIWO, FOO):
        try:
            await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition(each), dict)
        except AlreadyExists:
            continue


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lives(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    titles = {name: name.lower()[:20] for name in LIVES}
    objects = [flavor(), priority_class("low", 100), priority_class("high", 10000)]
    objects += [cluster_queue(f"cq-{each}", 2, preemption=LOWER) for each in titles.values()]
    objects += [local_queue(f"q-{each}", f"cq-{each}") for each in titles.values()]
    listed = ("Job", "JobSet", "RayJob", "Pod", "StatefulSet")
    async with gated_site(
        tmp_path_factory.mktemp("lives"),
        *objects,
        kinds=tuple(ROWS[name] for name in listed),
        nodes=[node("node-0", cpu=64)],
        without=("children",),
        prepare=prepare,
        options={"external": ("Foo.v1.example.com",)},
    ) as cluster:
        tasks = {
            name: asyncio.create_task(life(cluster, titles[name]).tell())
            for name, life in LIVES.items()
        }
        async with told_at_a_pace(cluster.client, tasks.values()):
            yield tasks


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", LIVES)
async def test_the_turn_is_taken(name: str, lives: dict[str, asyncio.Task[None]]) -> None:
    await lives[name]
