"""Three planes of one operator on a real API server: one demand, one plane that evicts.

Deletions and suspensions are counted from the API server's audit log.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import parse_instant
from reprieve.api.reprieve import Preemption
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import GPU_WORKLOADS, LEASES, PREEMPTIONS
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
from tests.together.site import KINDS, deployment, job, node, queue
from tests.together.stories import STORIES

_PATIENCE_S: Final = 120.0
_LOOK_S: Final = 0.2
_FLAGS: Final = (
    *("--controllers", "idle,scheduling,quota"),
    *("--scheduler-name", "default-scheduler"),
)
_QUOTAS: Final = {"a": 4, "b": 0, "c": 0}
_ROOTS: Final = ("pods", "jobs", "deployments")


_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [{"level": "Request", "users": [OPERATOR_USER]}, {"level": "None"}],
}


@pytest.fixture
def audited(
    with_pod_groups: Binaries, controllers: Binaries, tmp_path: Path
) -> Iterator[ControlPlane]:
    assert with_pod_groups == controllers
    policy, log = tmp_path / "audit.yaml", tmp_path / "audit.log"
    policy.write_text(yaml.safe_dump(_POLICY), encoding="utf-8")
    flags = (
        *group_flags(controllers.release),
        f"--audit-policy-file={policy}",
        f"--audit-log-path={log}",
        "--audit-log-mode=blocking",
    )
    users = dict.fromkeys((ADMINISTRATOR, OPERATOR_USER), "system:masters")
    with control_plane(controllers, tmp_path, users, {"kube-apiserver": flags}) as plane:
        yield plane


@asynccontextmanager
async def _decided(
    audited: ControlPlane,
    folder: Path,
    nodes: tuple[NodeSpec, ...],
    quotas: Mapping[str, int] = _QUOTAS,
) -> AsyncIterator[tuple[Stage, Client, OperatorProcesses]]:
    """Start an operator of three planes; what is asserted fails with the end of its log."""
    given = (audited, folder, nodes, *_FLAGS)
    async with on_plane(*given, kueue=True, ready="quota plane runs") as stage:
        connection = await load_connection(str(folder / "kubeconfig"))
        client = connect(connection, SystemClock(), field_manager="tests")
        environment = {
            **ENVIRONMENT,
            "GPU_PREEMPTION_DEFAULT_GRACE_PERIOD": "2s",
            "GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE,
        }
        operator = stage.launch(environment, 1)
        await operator.start()
        try:
            await _prepared(client, quotas)
            yield stage, client, operator
        except AssertionError as failure:
            raise AssertionError("\n".join([str(failure), *operator.tail(60)])) from None
        finally:
            await operator.stop()
            await client.close()


async def test_one_plane_evicts_for_each_demand(audited: ControlPlane, tmp_path: Path) -> None:
    """A job that its quota refuses gets nobody; another gets idle work before busy work."""
    async with _decided(audited, tmp_path, (node("n0"), node("n1"))) as (stage, client, operator):
        idle, busy = deployment("ann", "b", priority="high"), deployment("bob", "b")
        tune = job("tune", "a", priority="high", queued=True)
        for unit in (idle, busy, tune, job("rest", "a", priority="high", opted=False)):
            await _create(client, stage, unit)
        await _until("all run", lambda: _runs(client, "ann", "bob", "tune", "rest"))
        _use(stage, idle, 0.0)
        # Its quota is all in use: it comes first, and nobody goes for it.
        await _create(client, stage, job("refused", "a", priority="high", queued=True))
        await operator.until_said("Active -> Idle", _PATIENCE_S)
        await _until("ann's grace is over", lambda: _idle_for(client, 6))
        # Were it served, nobody idle would be left for the next one, and bob would go.
        await _create(client, stage, job("wanted", "c", priority="high"))
        await _until("it runs", lambda: _runs(client, "wanted", "bob", "tune", "rest"))
        assert _evicted(tmp_path) == {("b", "deployments", "ann")}


async def test_two_planes_evict_for_a_demand_where_neither_alone_makes_the_room(
    audited: ControlPlane, tmp_path: Path
) -> None:
    async with _decided(audited, tmp_path, (node("n0"),)) as (stage, client, operator):
        idle, busy = deployment("ann", "b", priority="high"), job("bob", "b", opted=False)
        for unit in (idle, busy):
            await _create(client, stage, unit)
        await _until("all run", lambda: _runs(client, "ann", "bob"))
        _use(stage, idle, 0.0)
        await operator.until_said("Active -> Idle", _PATIENCE_S)
        await _until("ann's grace is over", lambda: _idle_for(client, 6))
        await _create(client, stage, job("wanted", "c", gpus=8, priority="high"))
        await _until("it runs", lambda: _runs(client, "wanted"))
        evicted = sorted((kind, name.partition("-")[0]) for _, kind, name in _evicted(tmp_path))
        assert evicted == [("deployments", "ann"), ("pods", "bob")]


@pytest.mark.slow
@pytest.mark.parametrize("name", STORIES)
async def test_nobody_goes_but_who_has_to(audited: ControlPlane, tmp_path: Path, name: str) -> None:
    story = STORIES[name]
    nodes = tuple(node(f"n{number}", gpus) for number, gpus in enumerate(story.nodes))
    async with _decided(audited, tmp_path, nodes, story.quotas) as (stage, client, _operator):
        for unit in story.units:
            await _create(client, stage, unit)
            running = unit[0]["metadata"]["name"]
            await _until("it runs", lambda running=running: _runs(client, running))
        for unit in story.units[: story.idle]:
            _use(stage, unit, 0.0)
        if story.idle:
            await _until("the grace is over", lambda: _idle_for(client, 6, story.idle))
        await _create(client, stage, story.wanted)
        await _until("it runs", lambda: _runs(client, "wanted"))
        if story.goes:
            await _until("all records are closed", lambda: _closed(client))
        evicted = {
            root
            for _, kind, name in _evicted(tmp_path)
            for root in [_unit_of(kind, name, story.units)]
        }
        assert evicted == story.goes


def _unit_of(kind: str, name: str, units: tuple[list[dict[str, Any]], ...]) -> str:
    """Return the name of a root; of a pod that a controller made, that of its controller."""
    roots = [each["metadata"]["name"] for unit in units for each in unit]
    if kind != "pods" or name in roots:
        return name
    return next((root for root in roots if name.startswith(f"{root}-")), name)


async def test_a_new_leader_goes_on_with_a_demand_between_its_stages(
    audited: ControlPlane, tmp_path: Path
) -> None:
    """The leader is killed as soon as its quota plane has recorded whom it evicts."""
    given = (audited, tmp_path, (node("n0"),), *_FLAGS)
    async with on_plane(*given, kueue=True, ready="quota plane runs") as stage:
        connection = await load_connection(str(tmp_path / "kubeconfig"))
        client = connect(connection, SystemClock(), field_manager="tests")
        environment = {**ENVIRONMENT, "GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE}
        operator = stage.launch(environment, 2)
        await operator.start()
        try:
            await _prepared(client)
            notebook = job("notebook", "b", priority="high")
            for unit in (job("sweep", "b", queued=True), notebook):
                await _create(client, stage, unit)
            await _until("both run", lambda: _runs(client, "sweep", "notebook"))
            _use(stage, notebook, 0.0)
            await operator.until_said("Active -> Idle", _PATIENCE_S)
            await _create(client, stage, job("wanted", "a", priority="high", queued=True))
            await _until("a record", lambda: _recorded(client))
            os.kill(await _leader(client, operator.pids), signal.SIGKILL)
            await _until("it runs", lambda: _runs(client, "wanted"))
            await _until("its record is closed", lambda: _closed(client))
            records = (await client.list(PREEMPTIONS, Preemption)).items
            said = [[stage.plane for stage in each.spec.stages] for each in records]
            evicted = {name for _, _, name in _evicted(tmp_path)}
            assert (evicted, said) == ({"sweep"}, [["quota", "scheduling"]])
        except AssertionError as failure:
            raise AssertionError("\n".join([str(failure), *operator.tail(60)])) from None
        finally:
            await operator.stop()
            await client.close()


async def _recorded(client: Client) -> bool:
    return bool((await client.list(PREEMPTIONS, Preemption)).items)


async def _closed(client: Client) -> bool:
    found = (await client.list(PREEMPTIONS, Preemption)).items
    return bool(found) and not any(each.status.phase.open for each in found)


async def _leader(client: Client, pids: list[int]) -> int:
    """Return the process that holds the operator's lease, whose holder names it."""
    for lease in (await client.list(LEASES, dict, namespace=OPERATOR_NAMESPACE)).items:
        holder = str(lease["spec"].get("holderIdentity", ""))
        for pid in pids:
            if f"_{pid}_" in holder:
                return pid
    raise AssertionError(f"none of {pids} leads")


async def _prepared(client: Client, quotas: Mapping[str, int] = _QUOTAS) -> None:
    for name, value in (("low", 100), ("high", 1000)):
        made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        await _store(client, {**made, "metadata": {"name": name}, "value": value})
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor"}
    await _store(client, {**flavor, "metadata": {"name": "gpus"}, "spec": {}})
    for team, quota in quotas.items():
        await _store(client, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})
        for each in queue(team, quota):
            await _store(client, each)


async def _create(client: Client, stage: Stage, unit: list[dict[str, Any]]) -> None:
    _use(stage, unit, 90.0)
    for each in unit:
        await _store(client, each)


async def _store(client: Client, manifest: dict[str, Any]) -> None:
    await client.create(KINDS[manifest["kind"]], manifest, dict)


def _use(stage: Stage, unit: list[dict[str, Any]], percent: float) -> None:
    for each in unit:
        root, team = f"{each['kind']}/{each['metadata']['name']}", each["metadata"]["namespace"]
        stage.exporter.set_utilization(team, root, percent, gpu=None, pod_index=None)


async def _runs(client: Client, *units: str) -> bool:
    running = set()
    for pod in (await client.list(KINDS["Pod"], dict)).items:
        if (pod.get("status") or {}).get("phase") == "Running":
            running.add((pod["metadata"].get("labels") or {}).get("tests/unit"))
    return running >= set(units)


async def _idle_for(client: Client, seconds: int, units: int = 1) -> bool:
    """Whether so much work has been idle for so long, by what its GpuWorkloads say."""
    now, idle = SystemClock().wall(), 0
    for found in (await client.list(GPU_WORKLOADS, dict)).items:
        since = (found.get("status") or {}).get("idleSince")
        if since and now - parse_instant(since) > seconds * SECOND:
            idle += 1
    return idle >= units


async def _until(what: str, holds: Callable[[], Any]) -> None:
    end = asyncio.get_running_loop().time() + _PATIENCE_S
    while not await holds():
        if asyncio.get_running_loop().time() > end:
            raise AssertionError(f"never: {what}")
        await asyncio.sleep(_LOOK_S)


def _evicted(folder: Path) -> set[tuple[str, str, str]]:
    """Return what the operator deleted, or stopped, as namespace, resource and name."""
    found = set()
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
            found.add((ref["namespace"], ref["resource"], ref["name"]))
    return found
