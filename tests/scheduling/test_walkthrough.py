"""The four kinds of preemption, as a person with kubectl makes and sees them.

Two nodes of four cpus are filled by low-priority pods of two; `single` and `all` are the disruption
mode of their group. In the `all` tests evicting one pod would make enough room.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.scheduling.site import NAMESPACE, Site, node, site

pytestmark = pytest.mark.real_time  # kubectl is a process of its own

_CLASSES = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: low}
value: 1000
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 100000
"""
_GROUP = """
---
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {{name: {name}}}
spec:
  priorityClassName: {priority}
  schedulingPolicy: {{gang: {{minCount: {count}}}}}
  disruptionMode: {{{mode}: {{}}}}
"""
_POD = """
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  {member}
  priorityClassName: {priority}
  containers:
  - name: main
    image: registry.example/app:1
    resources: {{requests: {{cpu: '{cpu}'}}}}
"""


def _gang(name: str, count: int, cpu: int, priority: str, mode: str = "single") -> str:
    member = f"schedulingGroup: {{podGroupName: {name}}}"
    pods = (
        _POD.format(name=f"{name}-{i}", member=member, priority=priority, cpu=cpu)
        for i in range(count)
    )
    return _GROUP.format(name=name, priority=priority, count=count, mode=mode) + "".join(pods)


def _pod(name: str, cpu: int) -> str:
    return _POD.format(name=name, member="restartPolicy: Always", priority="high", cpu=cpu)


class Person:
    """Someone with kubectl and the cluster's kubeconfig."""

    def __init__(self, kubectl: Path, cluster: Site) -> None:
        self._command = (str(kubectl), "--kubeconfig", str(cluster.embedded.kubeconfig))

    async def kubectl(self, *arguments: str, manifest: str = "") -> str:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            "--namespace",
            NAMESPACE,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate(manifest.encode())
        assert process.returncode == 0, err.decode()
        return out.decode()

    async def apply(self, manifest: str) -> None:
        await self.kubectl("apply", "-f", "-", manifest=manifest)

    async def get(self, *what: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(await self.kubectl("get", *what, "-o", "json"))[
            "items"
        ]
        return items

    async def running(self) -> set[str]:
        return {
            pod["metadata"]["name"]
            for pod in await self.get("pods")
            if pod["status"].get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
        }


@pytest.mark.parametrize(
    ("test", "mode", "high", "victims"),
    [
        ("single_by_group", "single", _gang("high", 2, 2, "high"), 2),
        ("all_by_group", "all", _gang("high", 2, 1, "high"), 4),
        ("single_by_pod", "single", _pod("high-0", 4), 2),
        ("all_by_pod", "all", _pod("high-0", 2), 4),
    ],
)
async def test_preemption(
    test: str, mode: str, high: str, victims: int, tmp_path: Path, kubectl: Path
) -> None:
    async with site([node("node-0"), node("node-1")], tmp_path, kubelet=True) as cluster:
        person = Person(kubectl, cluster)
        await cluster.operator()
        await person.apply(_CLASSES + _gang("low", 4, 2, "low", mode))

        async def low_runs() -> bool:
            return len(await person.running()) == 4

        await cluster.until("the low side runs", low_runs)
        await person.apply(high)
        wanted = {f"high-{i}" for i in range(high.count("kind: Pod\n"))}

        async def high_runs() -> bool:
            return wanted <= await person.running()

        await cluster.until("the high side runs", high_runs)
        left = await person.running() - wanted
        assert len(left) == 4 - victims, test
        by_group = "group" in test.rpartition("_by_")[2]

        async def told() -> bool:
            events = await person.get("events", "--field-selector", "reason=Preempted")
            names = {event["involvedObject"]["name"] for event in events}
            related = {(event.get("related") or {}).get("kind") for event in events}
            return len(names) == victims and related == {"PodGroup" if by_group else "Pod"}

        await cluster.until("the victims are told", told)
        if by_group:
            await person.kubectl(
                "wait", "podgroup/high", "--for=condition=PodGroupInitiallyScheduled"
            )
        (intent,) = await cluster.intents()
        assert len(intent["spec"]["victims"]) == victims
        assert intent["spec"]["proof"]["level"] == "Placement"
