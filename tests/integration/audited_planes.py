"""An operator of three planes on a control plane of its own, with an audit of what it requests.

Whom it evicted, and when, is counted from the API server's audit log: deletions of pods, Jobs and
Deployments, and Jobs that it suspended.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import yaml

from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import GPU_WORKLOADS
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE, OPERATOR_USER
from reprieve.scenarios.model import NodeSpec
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.scenarios.stage import Stage
from tests.integration.control_plane import (
    ADMINISTRATOR,
    Binaries,
    ControlPlane,
    control_plane,
)
from tests.integration.group_plane import group_flags, on_plane
from tests.integration.site import ENVIRONMENT
from tests.together.site import KINDS, queue

__all__ = [
    "PATIENCE_S",
    "QUOTAS",
    "THREE_PLANES",
    "Eviction",
    "audited_plane",
    "create",
    "decided",
    "every_eviction",
    "evictions",
    "idle_for",
    "prepared",
    "runs",
    "store",
    "until",
    "use",
]

PATIENCE_S: Final = 120.0
_LOOK_S: Final = 0.2
THREE_PLANES: Final = (
    *("--controllers", "idle,scheduling,quota"),
    *("--scheduler-name", "default-scheduler"),
)
_NO_VARIABLES: Final[Mapping[str, str]] = MappingProxyType({})
QUOTAS: Final = {"a": 4, "b": 0, "c": 0}
_ROOTS: Final = ("pods", "jobs", "deployments")
_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [{"level": "Request", "users": [OPERATOR_USER]}, {"level": "None"}],
}


class Eviction(NamedTuple):
    """What the operator deleted or suspended, and when the API server received that."""

    namespace: str
    resource: str
    name: str
    at: Nanos


@contextmanager
def audited_plane(binaries: Binaries, folder: Path) -> Iterator[ControlPlane]:
    """Run a control plane whose log of the operator's requests is `audit.log` in a folder."""
    policy, log = folder / "audit.yaml", folder / "audit.log"
    policy.write_text(yaml.safe_dump(_POLICY), encoding="utf-8")
    flags = (
        *group_flags(binaries.release),
        f"--audit-policy-file={policy}",
        f"--audit-log-path={log}",
        "--audit-log-mode=blocking",
    )
    users = dict.fromkeys((ADMINISTRATOR, OPERATOR_USER), "system:masters")
    with control_plane(binaries, folder, users, {"kube-apiserver": flags}) as plane:
        yield plane


@asynccontextmanager
async def decided(
    plane: ControlPlane,
    folder: Path,
    nodes: Sequence[NodeSpec],
    quotas: Mapping[str, int] = QUOTAS,
    *,
    operators: int = 1,
    module: str = "reprieve",
    variables: Mapping[str, str] = _NO_VARIABLES,
    arguments: Sequence[str] = (),
) -> AsyncIterator[tuple[Stage, Client, OperatorProcesses]]:
    """Start operators of three planes; what is asserted fails with the end of their log.

    `module` is what they run, with these `variables` and `arguments` beside its own.
    """
    flags = (*THREE_PLANES, *arguments)
    async with on_plane(
        plane, folder, nodes, *flags, kueue=True, ready="quota plane runs", module=module
    ) as stage:
        connection = await load_connection(str(folder / "kubeconfig"))
        client = connect(connection, SystemClock(), field_manager="tests")
        environment = {
            **ENVIRONMENT,
            "GPU_PREEMPTION_DEFAULT_GRACE_PERIOD": "2s",
            "GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE,
            **variables,
        }
        operator = stage.launch(environment, operators)
        await operator.start()
        try:
            await prepared(client, quotas)
            yield stage, client, operator
        except AssertionError as failure:
            raise AssertionError("\n".join([str(failure), *operator.tail(60)])) from None
        finally:
            await operator.stop()
            await client.close()


async def prepared(client: Client, quotas: Mapping[str, int] = QUOTAS) -> None:
    """Create priority classes, a flavor, and a namespace with queues for each team."""
    for name, value in (("low", 100), ("high", 1000)):
        made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        await store(client, {**made, "metadata": {"name": name}, "value": value})
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor"}
    await store(client, {**flavor, "metadata": {"name": "gpus"}, "spec": {}})
    for team, quota in quotas.items():
        await store(client, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})
        for each in queue(team, quota):
            await store(client, each)


async def create(client: Client, stage: Stage, unit: Sequence[dict[str, Any]]) -> None:
    """Create a unit, whose devices are in use."""
    use(stage, unit, 90.0)
    for each in unit:
        await store(client, each)


async def store(client: Client, manifest: dict[str, Any]) -> None:
    """Create an object."""
    await client.create(KINDS[manifest["kind"]], manifest, dict)


def use(stage: Stage, unit: Sequence[dict[str, Any]], percent: float) -> None:
    """Let the exporter report this for the devices of a unit."""
    for each in unit:
        root, team = f"{each['kind']}/{each['metadata']['name']}", each["metadata"]["namespace"]
        stage.exporter.set_utilization(team, root, percent, gpu=None, pod_index=None)


async def runs(client: Client, *units: str) -> bool:
    """Tell whether pods of all these units run."""
    running = set()
    for pod in (await client.list(KINDS["Pod"], dict)).items:
        if (pod.get("status") or {}).get("phase") == "Running":
            running.add((pod["metadata"].get("labels") or {}).get("tests/unit"))
    return running >= set(units)


async def idle_for(client: Client, seconds: int, units: int = 1) -> bool:
    """Tell whether so much work has been idle for so long, by what its GpuWorkloads say."""
    now, idle = SystemClock().wall(), 0
    for found in (await client.list(GPU_WORKLOADS, dict)).items:
        since = (found.get("status") or {}).get("idleSince")
        if since and now - parse_instant(since) > seconds * SECOND:
            idle += 1
    return idle >= units


async def until(
    what: str, holds: Callable[[], Awaitable[object]], patience_s: float = PATIENCE_S
) -> None:
    """Wait until something holds."""
    end = asyncio.get_running_loop().time() + patience_s
    while not await holds():
        if asyncio.get_running_loop().time() > end:
            raise AssertionError(f"not within {patience_s:.0f} s: {what}")
        await asyncio.sleep(_LOOK_S)


def evictions(folder: Path) -> list[Eviction]:
    """Return whom the operator evicted, each once, in the order of the audit log."""
    found: dict[tuple[str, str, str], Eviction] = {}
    for each in every_eviction(folder):
        found.setdefault(each[:3], each)
    return list(found.values())


def every_eviction(folder: Path) -> list[Eviction]:
    """Return all evictions that the API server accepted, in the order of the audit log."""
    found = []
    for line in (folder / "audit.log").read_bytes().splitlines():
        event = json.loads(line)
        ref = event.get("objectRef") or {}
        spec = (event.get("requestObject") or {}).get("spec") or {}
        ends = event["verb"] == "delete" or spec.get("suspend") is True
        if (
            event["user"]["username"] == OPERATOR_USER
            and event["stage"] == "ResponseComplete"
            and ref.get("resource") in _ROOTS
            and not ref.get("subresource")
            and ends
            and event["responseStatus"]["code"] < 300
        ):
            at = parse_instant(event["requestReceivedTimestamp"])
            found.append(Eviction(ref["namespace"], ref["resource"], ref["name"], at))
    return found
