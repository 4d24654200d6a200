"""Manifests that go together, and what controllers make of fields that hold them back.

Each is planned and then submitted to the embedded cluster: the same happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from reprieve.units.errors import UsageError
from tests.scheduling.site import NAMESPACE, group, node, pod, priority_class
from tests.whatif.observing import Happened, happened, planned, seen
from tests.whatif.playing import Drawing, Object, playground

FULL = [pod(f"full-{number}", 7) for number in range(2)]
MINE = priority_class("mine", 5000)
DEFAULT = {**MINE, "globalDefault": True}


def drawing() -> Drawing:
    """Return two nodes of eight cpus with nothing on them; nothing is drawn."""
    return Drawing(
        lambda random, planes: [node(f"node-{number}", 8) for number in range(2)],
        lambda random, planes: iter(()),
        lambda random, planes, name: [],
    )


async def both(
    folder: Path, submitted: Sequence[Object], before: Sequence[Object] = ()
) -> tuple[Happened, Happened]:
    """Return what a plan says and what happened then, of what has pods."""
    async with playground(folder, Random(0), "scheduling", drawing()) as played:
        assert not await played.submit(before)
        await played.at_rest()
        answer = await played.ask(submitted)
        there = await seen(played.client)
        assert not await played.submit(submitted)
        await played.at_rest()
        told = [each for each in submitted if each["kind"] != "PriorityClass"]
        plan, real = planned(answer, told), await happened(played, told, there)
        # A pod of a group is told with its group.
        named = {each[:2] for each in plan.starts}
        return plan, replace(real, starts=tuple(e for e in real.starts if e[:2] in named))


def deployment(replicas: int, spec: Object | None = None, **template: object) -> Object:
    """Return a Deployment; `template`: fields of its pods' spec."""
    labels = {"app": "s"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "s", "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {**pod("s", 1)["spec"], **template},
            },
            **(spec or {}),
        },
    }


@pytest.mark.parametrize(
    "submitted",
    [
        [MINE, pod("s", 6, priority="mine")],
        [DEFAULT, pod("s", 6)],
        [
            MINE,
            group("s", min_count=2, priority="mine"),
            *(pod(f"s-{i}", 6, group="s", priority="mine") for i in range(2)),
        ],
    ],
    ids=["pod", "default", "gang"],
)
async def test_a_pod_may_name_a_class_that_the_same_file_creates_before_it(
    submitted: Sequence[Object], tmp_path: Path
) -> None:
    plan, real = await both(tmp_path, submitted, FULL)
    assert plan == real
    assert plan.victims and all(what == "starts" for _, _, what in plan.starts)


async def test_a_paused_deployment_gets_no_pods(tmp_path: Path) -> None:
    plan, real = await both(tmp_path, [deployment(2, {"paused": True})])
    assert plan == real
    assert not plan.placement


async def test_pods_in_the_network_of_their_node_hold_its_ports(tmp_path: Path) -> None:
    main = {**pod("s", 1)["spec"]["containers"][0], "ports": [{"containerPort": 80}]}
    wanted = deployment(3, hostNetwork=True, containers=[main])
    plan, real = await both(tmp_path, [wanted])
    assert plan == real
    assert plan.placement == (("s", "node-0", 1), ("s", "node-1", 1))


async def test_a_job_of_another_controller_gets_no_pods_here(tmp_path: Path) -> None:
    template = deployment(1, restartPolicy="Never")["spec"]["template"]
    wanted = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "s", "namespace": NAMESPACE},
        "spec": {"managedBy": "example.org/elsewhere", "template": template},
    }
    plan, real = await both(tmp_path, [wanted])
    assert plan == real
    assert not plan.placement


async def test_a_pod_may_name_a_node_that_there_is_not(tmp_path: Path) -> None:
    async with playground(tmp_path, Random(0), "scheduling", drawing()) as played:
        answer = await played.ask([pod("s", 1, nodeName="nowhere")])
    assert [each.name for each in answer.outcomes] == ["s"]


async def test_an_object_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    async with playground(tmp_path, Random(0), "scheduling", drawing()) as played:
        with pytest.raises(UsageError, match=r"Pod team/s is there already .*; accepted: each"):
            await played.ask([pod("s", 1), pod("s", 1)])
