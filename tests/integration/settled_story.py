"""A real cluster on which one thing has happened, at rest, with an audit of who asks for what.

A team's Job held the only large node; a gang of another tenant took it, and the Job's new pods
wait. Then the operator, the kubelets and the exporter left, so that nothing moves while people ask.

`ASKER` may do everything, so that only the commands themselves keep from writing. `TENANT` has the
role `view` in his namespace, into which the chart's role for Disruptions is aggregated, and nothing
else.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from kubeworld.units.clock import SystemClock
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import NAMESPACES, PODS, Resource
from reprieve.scenarios.embedded import OPERATOR_USER
from reprieve.scenarios.model import NodeSpec
from tests.chart.helm import CHART
from tests.integration.control_plane import ADMINISTRATOR, Binaries, ControlPlane, control_plane
from tests.integration.group_plane import group_flags, on_plane
from tests.integration.roles import RBAC, ROLES
from tests.reliability.stand import PRIORITY_CLASSES

__all__ = [
    "ASKER",
    "OTHERS",
    "TEAM",
    "TENANT",
    "Said",
    "Story",
    "audited_plane",
    "gang",
    "job",
    "settled_story",
]

ASKER: Final = "asker"
TENANT: Final = "tenant"
TEAM: Final = "team"
OTHERS: Final = "secret-team"
PRIORITIES: Final = {"low": 1_000, "high": 100_000, "highest": 1_000_000}
DISRUPTIONS: Final = Resource("reprieve.dev", "v1alpha1", "disruptions", "Disruption")
_JOBS: Final = Resource("batch", "v1", "jobs", "Job")
_GROUPS: Final = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
_BINDINGS: Final = Resource(RBAC, "v1", "rolebindings", "RoleBinding")
_RESOURCES: Final = {each.kind: each for each in (PODS, _JOBS, _GROUPS)}
_SCHEDULER: Final = "reprieve-scheduler"
_AGGREGATED: Final = "rbac.authorization.k8s.io/aggregate-to-view"
_NODES: Final = (
    NodeSpec("large", {"cpu": "4", "memory": "16Gi", "pods": "20"}),
    NodeSpec("small", {"cpu": "1", "memory": "16Gi", "pods": "20"}),
)
_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [ASKER, TENANT]}, {"level": "None"}],
}
_PATIENCE_S: Final = 120

Object = dict[str, Any]


def _pod_spec(cpu: int, priority: str) -> Object:
    resources = {"requests": {"cpu": str(cpu)}}
    container = {"name": "main", "image": "registry.example/main:1", "resources": resources}
    return {
        "schedulerName": _SCHEDULER,
        "priorityClassName": priority,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }


def job(name: str, pods: int, cpu: int, priority: str) -> Object:
    """Return a Job of the team."""
    template = {"spec": {**_pod_spec(cpu, priority), "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 9, "template": template},
    }


def gang(name: str, pods: int, cpu: int, priority: str, namespace: str = TEAM) -> list[Object]:
    """Return a PodGroup that starts as a whole, and its pods."""
    policy = {"gang": {"minCount": pods}}
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "schedulingPolicy": policy,
            "disruptionMode": {"all": {}},
            "priorityClassName": priority,
        },
    }
    spec = {**_pod_spec(cpu, priority), "schedulingGroup": {"podGroupName": name}}
    members = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{number}", "namespace": namespace},
            "spec": spec,
        }
        for number in range(pods)
    ]
    return [group, *members]


def writes_of(requests: Sequence[Object]) -> list[str]:
    """Return those that could have changed something: no reads, dry runs or reviews."""
    return [f"{each['verb']} {each['requestURI']}" for each in requests if not _harmless(each)]


@dataclass(frozen=True)
class Said:
    """What a command said, how it ended, and what it asked of the API server by the audit."""

    code: int
    text: str
    complaint: str
    requests: list[Object]

    @property
    def writes(self) -> list[str]:
        return writes_of(self.requests)

    @property
    def dry_runs(self) -> int:
        return sum("dryRun=All" in each["requestURI"] for each in self.requests)


@dataclass
class Story:
    """The cluster, and people who ask."""

    plane: ControlPlane
    folder: Path

    def ask(self, user: str, *arguments: str) -> Said:
        """Run a command with the rights of a user."""
        kubeconfig = self.kubeconfig(user)
        command = [sys.executable, "-m", "reprieve", *arguments, "--kubeconfig", str(kubeconfig)]
        known = len(self._audit())
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        return Said(ended.returncode, ended.stdout, ended.stderr, self._asked_by(user, known))

    def observed(self, user: str, act: Callable[[], None]) -> list[str]:
        """Return the writes of a user while something is done."""
        known = len(self._audit())
        act()
        return writes_of(self._asked_by(user, known))

    def kubeconfig(self, user: str) -> Path:
        path = self.folder / f"{user}.kubeconfig"
        self.plane.write_kubeconfig(path, user)
        return path

    def manifests(self, *objects: Object) -> str:
        """Return a file with these."""
        path = self.folder / "work.yaml"
        path.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
        return str(path)

    def held(self) -> dict[str, str]:
        """Return whatever the commands could have touched, by uid with its version."""

        async def listed() -> dict[str, str]:
            client = await _client(self.kubeconfig(ADMINISTRATOR))
            try:
                pages = [
                    await client.list(each, dict)
                    for each in (*_RESOURCES.values(), DISRUPTIONS, NAMESPACES)
                ]
            finally:
                await client.close()
            found = [each["metadata"] for page in pages for each in page.items]
            return {each["uid"]: each["resourceVersion"] for each in found}

        return asyncio.run(listed())

    def _asked_by(self, user: str, since: int) -> list[Object]:
        return [each for each in self._audit()[since:] if each["user"]["username"] == user]

    def _audit(self) -> list[Object]:
        return [
            msgspec.json.decode(line)
            for line in (self.folder / "audit.log").read_bytes().splitlines()
        ]


@contextmanager
def audited_plane(binaries: Binaries, folder: Path) -> Iterator[Story]:
    """Run a control plane on which nothing has happened yet, with an audit of who asks."""
    (folder / "audit.yaml").write_text(yaml.safe_dump(_POLICY), encoding="utf-8")
    (folder / "audit.log").touch()
    audit = (
        f"--audit-policy-file={folder / 'audit.yaml'}",
        f"--audit-log-path={folder / 'audit.log'}",
        "--audit-log-mode=blocking",
    )
    users = dict.fromkeys((ADMINISTRATOR, OPERATOR_USER, ASKER), "system:masters")
    flags = {"kube-apiserver": (*group_flags(binaries.release), *audit)}
    with control_plane(binaries, folder, {**users, TENANT: "tenants"}, flags) as plane:
        yield Story(plane, folder)


@contextmanager
def settled_story(binaries: Binaries, folder: Path) -> Iterator[Story]:
    """Play it on a control plane of its own."""
    with audited_plane(binaries, folder) as story:
        asyncio.run(_play(story.plane, folder))
        yield story


async def _play(plane: ControlPlane, folder: Path) -> None:
    flags = ("--controllers", "scheduling", "--scheduler-name", _SCHEDULER)
    async with on_plane(plane, folder, _NODES, *flags) as stage:
        client = await _client(folder / "kubeconfig")
        operator = stage.launch({}, 1)
        await operator.start()
        try:
            for name in (TEAM, OTHERS):
                await client.create(NAMESPACES, {"metadata": {"name": name}}, dict)
            for name, value in PRIORITIES.items():
                priority = {"metadata": {"name": name}, "value": value}
                await client.create(PRIORITY_CLASSES, priority, dict)
            await _give_rights(client)
            await client.create(_JOBS, job("sweep", 2, 2, "low"), dict)
            await _until("the Job runs", lambda: _bound(client, TEAM, 2))
            for obj in gang("model", 2, 2, "high", OTHERS):
                await client.create(_RESOURCES[obj["kind"]], obj, dict)
            await _until("the gang has the node", lambda: _bound(client, OTHERS, 2))
            await _until("the Job's new pods wait", lambda: _waiting(client))
            await _until("the Job's disruption is told", lambda: _told(client))
        except AssertionError as failure:
            raise AssertionError("\n".join([str(failure), *operator.tail(40)])) from None
        finally:
            await operator.stop()
            await client.close()


async def _give_rights(client: Client) -> None:
    """Install the chart's role that is aggregated into `view`, and bind `view` to the tenant."""
    text = (CHART / "templates" / "rbac.yaml").read_text(encoding="utf-8")
    kept = "\n".join(line for line in text.splitlines() if "{{" not in line)
    (role,) = [
        each
        for each in yaml.safe_load_all(kept)
        if each and _AGGREGATED in (each["metadata"].get("labels") or {})
    ]
    role["metadata"]["name"] = "reprieve-disruptions-view"
    await client.create(ROLES["ClusterRole"], role, dict)
    binding = {
        "metadata": {"name": "tenant-views", "namespace": TEAM},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": TENANT}],
    }
    await client.create(_BINDINGS, binding, dict)

    async def aggregated() -> bool:
        view: Object = await client.get(ROLES["ClusterRole"], "", "view", dict)
        return any("disruptions" in rule.get("resources", ()) for rule in view["rules"])

    await _until("the role is part of view", aggregated)


async def _bound(client: Client, namespace: str, count: int) -> bool:
    page = await client.list(PODS, dict, namespace=namespace)
    running = [pod for pod in page.items if pod["status"].get("phase") == "Running"]
    return len(running) == len(page.items) == count


async def _waiting(client: Client) -> bool:
    page = await client.list(PODS, dict, namespace=TEAM)
    conditions = [
        each
        for pod in page.items
        if not pod["spec"].get("nodeName")
        for each in pod["status"].get("conditions") or ()
        if each["type"] == "PodScheduled" and each["status"] == "False"
    ]
    return len(conditions) == 2


async def _told(client: Client) -> bool:
    page = await client.list(DISRUPTIONS, dict, namespace=TEAM)
    return bool(page.items)


async def _until(what: str, holds: Callable[[], Awaitable[object]]) -> None:
    for _ in range(_PATIENCE_S * 4):
        if await holds():
            return
        await asyncio.sleep(0.25)
    raise AssertionError(f"not within {_PATIENCE_S} s: {what}")


async def _client(kubeconfig: Path) -> Client:
    return connect(await load_connection(str(kubeconfig)), SystemClock(), field_manager="tests")


def _harmless(request: Object) -> bool:
    if request["verb"] in ("get", "list", "watch"):
        return True
    reviewed = "/selfsubject" in request["requestURI"]
    return request["verb"] == "create" and ("dryRun=All" in request["requestURI"] or reviewed)
