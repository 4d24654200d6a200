"""Nobody makes himself immune on a real API server: patches, policies and grace periods.

Each story has nodes of its own, which pods of low priority fill; a pod of high priority comes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from kubeworld.units.clock import SystemClock
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import ApiError, Forbidden, Invalid, NotFound
from reprieve.kube.resource import EVENTS, PODS, PREEMPTIONS, Resource
from reprieve.scenarios.model import NodeSpec
from tests.integration.control_plane import Binaries
from tests.integration.group_plane import group_plane, on_plane
from tests.reliability.stand import PRIORITY_CLASSES

_NAMESPACE: Final = "default"
_AMOUNTS: Final[dict[str, str | int]] = {"cpu": "4", "memory": "16Gi", "pods": "20"}
_NODES: Final = tuple(NodeSpec(f"node-{number}", _AMOUNTS) for number in range(5))
_SCHEDULER: Final = "reprieve-scheduler"
_PATIENCE_S: Final = 120
_EVERY_S: Final = 0.02
_GROUP: Final = "admissionregistration.k8s.io"
_POLICIES: Final = Resource(
    _GROUP, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False
)
_BINDINGS: Final = Resource(
    _GROUP, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False
)

Object = dict[str, Any]


async def create_priorities(client: Client) -> None:
    """Create the classes of the stories."""
    for name, value in (("lower", 500), ("low", 1_000), ("high", 100_000)):
        await client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value}, dict)


def filler(name: str, priority: str, *nodes: int, grace: int = 1, **labels: str) -> Object:
    hosts = [f"node-{number}" for number in nodes]
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": hosts}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
    return {
        "metadata": {"name": name, "namespace": _NAMESPACE, "labels": labels},
        "spec": {
            "schedulerName": _SCHEDULER,
            "priorityClassName": priority,
            "terminationGracePeriodSeconds": grace,
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}
            },
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/main:1",
                    "resources": {"requests": {"cpu": "3"}},
                }
            ],
        },
    }


async def until(what: str, holds: Callable[[], Awaitable[object]]) -> None:
    for _ in range(_PATIENCE_S * 4):
        if await holds():
            return
        await asyncio.sleep(0.25)
    raise AssertionError(f"{what} never held")


async def bound(client: Client) -> set[str]:
    page = await client.list(PODS, dict, namespace=_NAMESPACE)
    return {
        pod["metadata"]["name"]
        for pod in page.items
        if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
    }


async def _patch_without_end(client: Client, name: str) -> None:
    """Change a pod, as its owner may, as fast as it goes."""
    for turn in range(1_000_000):
        annotations = {"metadata": {"annotations": {"turn": str(turn)}}}
        with contextlib.suppress(NotFound):
            await client.patch(PODS, _NAMESPACE, name, annotations, dict)
        await asyncio.sleep(_EVERY_S)


async def _refuse_deletions(client: Client) -> None:
    """Let nobody delete pods with a label, and wait until that is so."""
    policy = {
        "metadata": {"name": "immune"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["DELETE"],
                        "resources": ["pods"],
                    }
                ]
            },
            "validations": [
                {
                    "expression": "!('immune' in oldObject.metadata.?labels.orValue({}))",
                    "message": "immune pods stay",
                }
            ],
        },
    }
    await client.create(_POLICIES, policy, dict)
    binding = {"policyName": "immune", "validationActions": ["Deny"]}
    await client.create(_BINDINGS, {"metadata": {"name": "immune"}, "spec": binding}, dict)

    async def refused() -> bool:
        name = "probe"
        with contextlib.suppress(ApiError):
            await client.create(PODS, filler(name, "low", 99, immune="yes"), dict)
        try:
            await client.delete(PODS, _NAMESPACE, name)
        except (Forbidden, Invalid):
            return True
        return False

    await until("the policy refuses", refused)


@pytest.mark.slow
async def test_nobody_makes_himself_immune(with_alpha_pod_groups: Binaries, tmp_path: Path) -> None:
    with group_plane(with_alpha_pod_groups, tmp_path) as plane:
        flags = ("--controllers", "scheduling", "--scheduler-name", _SCHEDULER)
        async with on_plane(plane, tmp_path, _NODES, *flags) as stage:
            connection = await load_connection(str(tmp_path / "kubeconfig"))
            client = connect(connection, SystemClock())
            operator = stage.launch({}, 1)
            await operator.start()
            patching: asyncio.Task[None] | None = None
            try:
                await create_priorities(client)
                await _refuse_deletions(client)
                low = [
                    filler("patched", "low", 0),
                    # Of two, whose priority is lower is chosen first.
                    filler("refused", "lower", 1, immune="yes"),
                    filler("beside-refused", "low", 2),
                    filler("slow", "lower", 3, grace=10**9),
                    filler("beside-slow", "low", 4),
                ]
                for each in low:
                    await client.create(PODS, each, dict)
                names = {each["metadata"]["name"] for each in low}

                async def running() -> bool:
                    return names <= await bound(client)

                await until("all nodes are full", running)
                patching = asyncio.create_task(_patch_without_end(client, "patched"))
                await asyncio.sleep(1)
                for each in (
                    filler("for-patched", "high", 0),
                    filler("for-refused", "high", 1, 2),
                    filler("for-slow", "high", 3, 4),
                ):
                    await client.create(PODS, each, dict)
                wanted = {"for-patched", "for-refused", "for-slow", "refused", "slow"}

                async def placed() -> bool:
                    return await bound(client) == wanted

                await until("each has its room, and the immune ones stay", placed)
                records: list[Object] = []

                async def closed() -> bool:
                    records[:] = (await client.list(PREEMPTIONS, dict)).items
                    return all(each["status"]["phase"] != "Evicting" for each in records)

                await until("all plans are over", closed)
                told = (await client.list(EVENTS, dict, namespace=_NAMESPACE)).items
            finally:
                if patching is not None:
                    patching.cancel()
                await operator.stop()
                await client.close()
    phases = sorted(record["status"]["phase"] for record in records)
    assert phases == ["Abandoned", "Abandoned", "Completed", "Completed", "Completed"]
    about = {e["involvedObject"]["name"] for e in told if e["reason"] == "EvictionRefused"}
    assert about == {"refused", "for-refused", "slow", "for-slow"}
