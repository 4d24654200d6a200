"""Plans of queued Jobs on a real API server, and what then happens: kube-controller-manager plays.

A ClusterQueue is full of Jobs of low priority. What a plan says of one of high priority is compared
with what becomes of it: who is preempted, that it starts, and where its pods run. Of one that waits
the first change that is named is made, and it has to start. The API server's audit says that the
plans ask for reads and one dry run each.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kubeworld.units.clock import SystemClock
from reprieve.engine.diagnosis.model import Change, Fix
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import NAMESPACES, PODS, Resource
from reprieve.scenarios.model import NodeSpec
from reprieve.whatif.questions.changed import changed_by
from tests.integration.control_plane import Binaries
from tests.integration.group_plane import on_plane
from tests.integration.settled_story import ASKER, Story, audited_plane
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACE,
    Object,
    cluster_queue,
    flavor,
    job,
    local_queue,
    priority_class,
)

_FLAVORS: Final = Resource("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", False)
_CLASSES: Final = Resource(
    "kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass", False
)
_NODES: Final = tuple(
    NodeSpec(f"node-{number}", {"cpu": "2", "memory": "16Gi", "pods": "20"}) for number in range(3)
)
_LOWER: Final = {"withinClusterQueue": "LowerPriority"}
_PATIENCE_S: Final = 180


@pytest.fixture
def story(with_pod_groups: Binaries, controllers: Binaries, tmp_path: Path) -> Iterator[Story]:
    assert with_pod_groups == controllers
    with audited_plane(controllers, tmp_path) as audited:
        yield audited


@pytest.mark.parametrize("planes", ["quota", "scheduling,quota"])
async def test_queued_jobs_do_what_was_planned_and_what_waits_starts_when_changed_as_told(
    story: Story, planes: str
) -> None:
    flags = ("--controllers", planes, "--scheduler-name", "default-scheduler")
    given = (story.plane, story.folder, _NODES, *flags)
    async with on_plane(*given, kueue=True, ready="quota plane runs") as stage:
        connection = await load_connection(str(story.folder / "kubeconfig"))
        client = connect(connection, SystemClock(), field_manager="tests")
        operator = stage.launch({}, 1)
        await operator.start()
        try:
            await _prepared(client)
            first = [job("one", priority="low"), job("two", priority="low")]
            await client.create(JOBS, first[0], dict)
            await _until("the first runs", lambda: _go_on(client, planes, "one"))
            # Of two that have quota since the same second the uid says who goes.
            await asyncio.sleep(1.1)
            await client.create(JOBS, first[1], dict)
            await _until("both run", lambda: _go_on(client, planes, "one", "two"))
            await _victims_are_those_planned(story, client, planes)
            await _the_first_change_lets_it_start(story, client, planes)
        except AssertionError as failure:
            raise AssertionError("\n".join([str(failure), *operator.tail(40)])) from None
        finally:
            await operator.stop()
            await client.close()


async def _victims_are_those_planned(story: Story, client: Client, planes: str) -> None:
    wanted = job("wanted", priority="high")
    answer = await _planned(story, planes, wanted)
    assert answer["verdict"] == "StartsWithVictims"
    victims = {each["name"] for each in answer["victims"]}
    # The newer one of the same priority goes.
    assert victims == {"two"}
    await client.create(JOBS, wanted, dict)
    await _until("it runs", lambda: _go_on(client, planes, "one", "wanted"))
    assert {name for name, held in (await _suspended(client)).items() if held} == victims
    placed = Counter(each["node"] for each in answer["placement"])
    assert placed == await _nodes(client, "wanted")
    assert bool(placed) is ("scheduling" in planes)


async def _the_first_change_lets_it_start(story: Story, client: Client, planes: str) -> None:
    waits = job("waits", priority="low")
    answer = await _planned(story, planes, waits)
    assert (answer["verdict"], answer["victims"]) == ("Waits", [])
    told = answer["fixes"][0]
    fix = Fix(Change(told["change"]), told["field"], told["before"], told["after"])
    (changed,) = changed_by(fix, [waits])
    assert changed != waits
    await client.create(JOBS, changed, dict)
    await _until("what waited runs, changed", lambda: _go_on(client, planes, "waits"))


async def _planned(story: Story, planes: str, wanted: Object) -> dict[str, Any]:
    file = story.manifests(wanted)
    said = await asyncio.to_thread(
        story.ask,
        ASKER,
        *("plan", "-f", file, "--controllers", planes, "-o", "json"),
        *("--scheduler-name", "default-scheduler"),
    )
    assert (said.code, said.complaint) == (0, "")
    assert (said.writes, said.dry_runs) == ([], 2)  # the Job, and one of its pods
    answer: dict[str, Any] = json.loads(said.text)
    return answer


async def _prepared(client: Client) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}}, dict)
    await client.create(_FLAVORS, flavor(), dict)
    for name, value in (("low", 100), ("high", 1000)):
        await client.create(_CLASSES, priority_class(name, value), dict)
    await client.create(CLUSTER_QUEUES, cluster_queue("cq", 4, preemption=_LOWER), dict)
    await client.create(LOCAL_QUEUES, local_queue("q", "cq"), dict)


async def _suspended(client: Client) -> dict[str, bool]:
    page = await client.list(JOBS, dict, namespace=NAMESPACE)
    return {each["metadata"]["name"]: each["spec"]["suspend"] for each in page.items}


async def _go_on(client: Client, planes: str, *names: str) -> bool:
    """Tell whether these Jobs are let go, and have a node for each pod where there is a plane."""
    held = await _suspended(client)
    if any(held.get(name, True) for name in names):
        return False
    if "scheduling" not in planes:
        return True
    jobs = {each: await client.get(JOBS, NAMESPACE, each, dict) for each in names}
    nodes = {name: (await _nodes(client, name)).total() for name in names}
    return all(nodes[name] == each["spec"]["parallelism"] for name, each in jobs.items())


async def _nodes(client: Client, name: str) -> Counter[str]:
    """Return how many pods of a Job each node has."""
    page = await client.list(PODS, dict, namespace=NAMESPACE)
    return Counter(
        pod["spec"]["nodeName"]
        for pod in page.items
        if pod["spec"].get("nodeName")
        and any(owner["name"] == name for owner in pod["metadata"].get("ownerReferences") or ())
    )


async def _until(what: str, holds: Callable[[], Awaitable[object]]) -> None:
    for _ in range(_PATIENCE_S * 4):
        if await holds():
            return
        await asyncio.sleep(0.25)
    raise AssertionError(f"not within {_PATIENCE_S} s: {what}")
