"""The walkthrough of Koordinator's guide on job-level preemption, with a real kubectl.

Compared is what the guide prints, AGE and IP aside; the workers may be on either node. The victims
take an hour to end, so that there is time to look at them, until they are deleted by force.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprieve.scenarios.catalogue import packaged
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.scenarios.staging import OPERATOR_NAMESPACE
from reprieve.scenarios.steps import Apply
from tests.walkthrough.clusters import KINDS, cluster_of
from tests.walkthrough.conftest import Site

SCENARIO = packaged("gang-jobs")
NODES = {"cn-beijing.1", "cn-beijing.2"}
HEADER = (
    "NAME",
    "READY",
    "STATUS",
    "RESTARTS",
    "AGE",
    "IP",
    "NODE",
    "NOMINATED NODE",
    "READINESS GATES",
)


def manifests(*names: str) -> str:
    """The manifests of the packaged scenario, as people write them to files."""
    found = [
        step.object
        for step in SCENARIO.steps
        if isinstance(step, Apply) and step.object["metadata"]["name"] in names
    ]
    assert len(found) == len(names)
    return yaml.safe_dump_all([lasting(each) if each["kind"] == "Pod" else each for each in found])


def lasting(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod, which takes an hour to end."""
    annotations = {"sim.reprieve.dev/termination-time": "1h"}
    spec = {**pod["spec"], "terminationGracePeriodSeconds": 3600}
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}, "spec": spec}


@pytest.fixture(params=KINDS)
async def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, kubectl: Path
) -> AsyncIterator[Site]:
    async with cluster_of(request.param, SCENARIO.nodes, tmp_path, scheduler=False) as found:
        operator = OperatorProcesses(
            found.operator_kubeconfig,
            {"GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE},
            arguments=(
                *("--controllers", "scheduling", "--scheduler-name", "koord-scheduler"),
                *("--metrics-port", "0"),
            ),
        )
        await operator.start()
        try:
            yield Site(found, kubectl)
        finally:
            await operator.stop()


async def table(site: Site) -> dict[str, dict[str, str]]:
    """What `kubectl get pods -o wide` shows, by name and column."""
    lines = (await site.says("get", "pods", "-o", "wide")).splitlines()
    starts = [lines[0].index(title) for title in HEADER]
    assert lines[0].split() == " ".join(HEADER).split()
    rows = {}
    for line in lines[1:]:
        ends = [*starts[1:], len(line)]
        cells = [line[a:b].strip() for a, b in zip(starts, ends, strict=True)]
        rows[cells[0]] = dict(zip(HEADER, cells, strict=True))
    return rows


async def until(
    site: Site,
    expected: dict[str, tuple[str, str]],
    holds: Callable[[dict[str, dict[str, str]]], object] = bool,
) -> dict[str, dict[str, str]]:
    """Wait until the table has exactly these pods with READY and STATUS, and this holds, too."""
    found: dict[str, dict[str, str]] = {}
    for _ in range(240):
        found = await table(site)
        seen = {name: (row["READY"], row["STATUS"]) for name, row in found.items()}
        if seen == expected and holds(found):
            return found
        await asyncio.sleep(0.25)
    raise AssertionError(f"never seen: {expected}\n{found}")


async def test_the_guide_word_for_word(cluster: Site) -> None:
    said = await cluster.says(
        "apply", "-f", "-", stdin=manifests("koordinator-system", "koord-scheduler-config")
    )
    assert said.splitlines() == [
        "namespace/koordinator-system created",
        "configmap/koord-scheduler-config created",
    ]
    command = ("-n", "koordinator-system", "get", "cm", "koord-scheduler-config", "-o", "yaml")
    assert "enablePreemption: true" in await cluster.says(*command)

    await cluster.says("apply", "-f", "-", stdin=manifests("high-priority", "low-priority"))
    lines = (await cluster.says("get", "priorityclass")).splitlines()
    assert lines[0].split()[:3] == ["NAME", "VALUE", "GLOBAL-DEFAULT"]
    rows = {line.split()[0]: line.split()[1:3] for line in lines[1:]}
    assert rows["high-priority"] == ["1000000", "false"]
    assert rows["low-priority"] == ["1000", "false"]

    said = await cluster.says("apply", "-f", "-", stdin=manifests("lp-pod-1", "lp-pod-2"))
    assert said == "pod/lp-pod-1 created\npod/lp-pod-2 created\n"
    seen = await until(cluster, dict.fromkeys(("lp-pod-1", "lp-pod-2"), ("1/1", "Running")))
    assert {row["NODE"] for row in seen.values()} == NODES
    assert {row["NOMINATED NODE"] for row in seen.values()} == {"<none>"}

    said = await cluster.says(
        "apply", "-f", "-", stdin=manifests("hp-training-job", "hp-worker-1", "hp-worker-2")
    )
    assert said.splitlines() == [
        "podgroup.scheduling.sigs.k8s.io/hp-training-job created",
        "pod/hp-worker-1 created",
        "pod/hp-worker-2 created",
    ]
    seen = await until(
        cluster,
        {
            **dict.fromkeys(("hp-worker-1", "hp-worker-2"), ("0/1", "Pending")),
            **dict.fromkeys(("lp-pod-1", "lp-pod-2"), ("1/1", "Terminating")),
        },
        lambda found: {found[f"hp-worker-{n}"]["NOMINATED NODE"] for n in (1, 2)} == NODES,
    )
    workers = [seen["hp-worker-1"], seen["hp-worker-2"]]
    assert {row["NOMINATED NODE"] for row in workers} == NODES
    assert {row["NODE"] for row in workers} == {"<none>"}
    assert {seen[name]["NODE"] for name in ("lp-pod-1", "lp-pod-2")} == NODES

    victim = yaml.safe_load(await cluster.says("get", "pod", "lp-pod-1", "-o", "yaml"))
    (condition,) = [
        each for each in victim["status"]["conditions"] if each["type"] == "DisruptionTarget"
    ]
    assert (condition["status"], condition["reason"]) == ("True", "PreemptionByScheduler")
    assert condition["message"] in {
        "koord-scheduler: preempting to accommodate higher priority pods, preemptor: "
        f"default/hp-training-job, triggerpod: default/{worker}"
        for worker in ("hp-worker-1", "hp-worker-2")
    }
    await cluster.until_says(
        lambda said: sorted(said.splitlines()) == ["Normal lp-pod-1", "Normal lp-pod-2"],
        *("get", "events", "--field-selector", "reason=Preempted"),
        *("-o", 'jsonpath={range .items[*]}{.type} {.involvedObject.name}{"\\n"}{end}'),
    )

    nominated = {row["NAME"]: row["NOMINATED NODE"] for row in workers}
    await cluster.says("delete", "pod", "lp-pod-1", "lp-pod-2", "--force", "--grace-period=0")
    seen = await until(cluster, dict.fromkeys(("hp-worker-1", "hp-worker-2"), ("1/1", "Running")))
    assert {name: row["NODE"] for name, row in seen.items()} == nominated
    assert {row["NOMINATED NODE"] for row in seen.values()} == {"<none>"}
    group = "podgroup.scheduling.sigs.k8s.io/hp-training-job"
    phase = "jsonpath={.status.phase} {.status.running} {.status.scheduled}"
    await cluster.until_says(lambda said: said == "Running 2 2", "get", group, "-o", phase)
