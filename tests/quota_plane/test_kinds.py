"""Every kind of the table, and one that a user added, from queued to finished.

All stories are told at once, in one cluster: each has a queue of its own with room for one job at a
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from reprieve.jobs.table import BUILT_IN, job_kinds
from reprieve.kube.errors import AlreadyExists, NotFound
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, Resource
from reprieve.units.errors import UsageError
from tests.quota_plane.deletions import told_at_a_pace
from tests.quota_plane.gated_site import gated_site
from tests.quota_plane.kind_stories import (
    LOOK_S,
    MANIFESTS,
    NOTEBOOKS,
    OWN,
    ROWS,
    BatchJob,
    Story,
    definition,
    resource,
)
from tests.quota_plane.pod_stories import (
    Deployed,
    Group,
    LeaderAndWorkers,
    Notebook,
    OnePod,
    Replicas,
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
RUNTIME = Resource(
    "trainer.kubeflow.org",
    "v1alpha1",
    "clustertrainingruntimes",
    "ClusterTrainingRuntime",
    namespaced=False,
)
#: What is told, and by which story: the kinds of the table, a group of pods, and a Notebook.
TOLD = [*sorted(ROWS), "Group", "Notebook"]


def story(name: str, cluster: Site) -> Story:
    if name in ("Group", "Notebook"):
        return {"Group": Group, "Notebook": Notebook}[name](cluster)
    special = {
        "Job": BatchJob,
        "Pod": OnePod,
        "Deployment": Deployed,
        "StatefulSet": Replicas,
        "LeaderWorkerSet": LeaderAndWorkers,
    }
    return special.get(name, Story)(cluster, ROWS[name])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stories(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    queues = [f"q-{name.lower()}" for name in TOLD]
    objects = [flavor(), priority_class("low", 100), priority_class("high", 10000)]
    objects += [cluster_queue(f"c{name}", 2, memory="64Gi", preemption=LOWER) for name in queues]
    objects += [local_queue(name, f"c{name}") for name in queues]
    async with gated_site(
        tmp_path_factory.mktemp("kinds"),
        *objects,
        kinds=tuple(ROWS.values()),
        nodes=[node("node-0", cpu=200)],
        without=("children",),
        prepare=prepare,
    ) as cluster:
        tasks = {name: asyncio.create_task(story(name, cluster).tell()) for name in TOLD}
        async with told_at_a_pace(cluster.client, tasks.values()):
            yield tasks


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", TOLD)
async def test_a_kind_is_queued_admitted_preempted_requeued_and_finished(
    name: str, stories: dict[str, asyncio.Task[None]]
) -> None:
    await stories[name]


def test_every_kind_of_the_table_has_a_story() -> None:
    assert {kind.kind for kind in BUILT_IN} < set(TOLD)
    assert set(MANIFESTS) == set(TOLD) - {"Group"}


def test_a_row_that_cannot_be_read_is_refused_with_its_place() -> None:
    with pytest.raises(UsageError, match=r"quota.jobKinds\[0\]: .*colour"):
        job_kinds([{**OWN, "colour": "red"}])
    assert len(job_kinds([OWN])) == len(BUILT_IN) + 1


async def prepare(cluster: Site) -> None:
    """Serve all kinds, and the runtime of the TrainJobs."""
    builtin = {"batch", "apps", ""}
    rows = [kind for kind in ROWS.values() if kind.group not in builtin]
    wanted = [definition(resource(kind)) for kind in rows]
    wanted += [definition(RUNTIME), definition(NOTEBOOKS)]
    for each in wanted:
        try:
            await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, each, dict)
        except AlreadyExists:
            continue
    container = {"name": "node", "image": "example.org/app:1"}
    job = {
        "name": "node",
        "replicas": 1,
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [container]}}},
        },
    }
    runtime = {
        "metadata": {"name": "torch-distributed"},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}},
    }
    for _ in range(100):
        try:
            await cluster.client.create(RUNTIME, runtime, dict)
        except NotFound:
            await asyncio.sleep(LOOK_S)
        else:
            return
