"""Harm budgets over the idle and the quota plane on a real API server, judged by its audit log.

A window that began nine minutes ago ends while the operator has been killed and started again; own
quota that a budget keeps from its ClusterQueue comes back when the stated time is over; the
scheduling and the idle plane charge one account, and its third displacement is held from both.
"""

from __future__ import annotations

import datetime
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.kube.bodies import Propagation
from reprieve.kube.client import Client
from reprieve.kube.resource import EVENTS, HARM_BUDGETS, NAMESPACES
from reprieve.scenarios.model import NodeSpec
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.scenarios.stage import Stage
from tests.integration.audited_planes import (
    PATIENCE_S,
    create,
    decided,
    evictions,
    idle_for,
    runs,
    until,
    use,
)
from tests.integration.control_plane import ControlPlane
from tests.integration.site import JOBS, Object
from tests.integration.test_quota_plan import _FLAVORS
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    NAMESPACE,
    cluster_queue,
    flavor,
    local_queue,
)
from tests.quota_plane.site import job as queued_job
from tests.together.site import KINDS, deployment, job, node

pytestmark = pytest.mark.usefixtures("with_pod_groups")

_NODES: Final = (NodeSpec("node-0", {"cpu": "8", "memory": "16Gi", "pods": "20"}),)
_RECLAIM: Final = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
_USED_UP: Final = "used up: harm budget few"
_WAIT_S: Final = 25
_WINDOW_S: Final = 240.0


def budget(**spec: Any) -> Object:
    """Return a HarmBudget."""
    return {
        "apiVersion": "reprieve.dev/v1alpha1",
        "kind": "HarmBudget",
        "metadata": {"name": "few"},
        "spec": spec,
    }


def ending_soon() -> tuple[str, datetime.datetime]:
    """Return a schedule whose window of ten minutes ends in two to three, and its end."""
    now = datetime.datetime.now(datetime.UTC).replace(second=0, microsecond=0)
    end = now + datetime.timedelta(minutes=3)
    began = end - datetime.timedelta(minutes=10)
    return f"{began.minute} {began.hour} * * *", end


@pytest.mark.slow
async def test_idle_work_is_spared_over_a_kill_until_the_window_is_over(
    audited: ControlPlane, tmp_path: Path
) -> None:
    async with decided(audited, tmp_path, (node("n0", 4),)) as (stage, client, operator):
        schedule, end = ending_soon()
        given = {"schedule": schedule, "duration": "10m", "planes": ["idle"]}
        await client.create(HARM_BUDGETS, budget(limits={"displacements": 1}, **given), dict)
        await _idle_then_wanted(client, stage, 0)
        await until("demand-0 runs", lambda: runs(client, "demand-0"))
        await _delete(client, "demand-0")
        await until("the budget is used up", lambda: _is_exhausted(client))
        await _killed(operator)
        await _idle_then_wanted(client, stage, 1)
        await until("demand-1 waits", lambda: _idle_work_is_spared(client, "demand-1"))
        assert [each.name for each in evictions(tmp_path)] == ["victim-0"]
        assert datetime.datetime.now(datetime.UTC) < end, "the story was too slow to show it"
        await until("demand-1 runs", lambda: runs(client, "demand-1"), _WINDOW_S + PATIENCE_S)
    _, second = evictions(tmp_path)
    assert (second.resource, second.name) == ("deployments", "victim-1")
    assert second.at >= int(end.timestamp()) * SECOND
    print(f"evicted {second.at / SECOND - end.timestamp():.1f} s after the end of the window")


async def _idle_then_wanted(client: Client, stage: Stage, number: int) -> None:
    victim = deployment(f"victim-{number}", "b", priority="high")
    await create(client, stage, victim)
    await until("the victim runs", lambda: runs(client, f"victim-{number}"))
    use(stage, victim, 0.0)
    await until("it is idle", lambda: idle_for(client, 6))
    await create(client, stage, job(f"demand-{number}", "c", priority="high"))


@pytest.mark.slow
async def test_two_planes_charge_one_account_and_neither_gets_a_third(
    audited: ControlPlane, tmp_path: Path
) -> None:
    """The idle plane displaces one, the scheduling plane another; the budget allows two."""
    async with decided(audited, tmp_path, (node("n0"),)) as (stage, client, _):
        given = {"planes": ["idle", "scheduling"], "window": "24h"}
        await client.create(HARM_BUDGETS, budget(limits={"displacements": 2}, **given), dict)
        await _runs_beside_idle(client, stage, "bob", "ann")
        for name in ("first", "second"):
            await create(client, stage, job(name, "c", priority="high"))
            await until("it runs", partial(runs, client, name))
        assert _units(tmp_path) == ["deployments/ann", "pods/bob"]
        await _delete(client, "bob", "first", "second")
        await _runs_beside_idle(client, stage, "carl", "dora")
        # The idle plane alone could serve the one, both planes the other.
        await create(client, stage, job("calm", "c", priority="low"))
        await until("it waits", lambda: _idle_work_is_spared(client, "calm"))
        await _delete(client, "calm")
        await create(client, stage, job("urgent", "c", priority="high"))
        await until("it waits", lambda: _pods_are_spared(client, "urgent"))
        await until("it waits", lambda: _idle_work_is_spared(client, "urgent"))
        assert len(evictions(tmp_path)) == 2
        raised = SystemClock().wall()
        await client.patch(
            HARM_BUDGETS, "", "few", {"spec": {"limits": {"displacements": 3}}}, dict
        )
        await until("it runs", lambda: runs(client, "urgent"))
        await until("all is counted", lambda: _has_used(client, "b", 3))
    third = evictions(tmp_path)[2]
    assert len(evictions(tmp_path)) == 3
    assert third.at >= Nanos(raised)
    print(*_units(tmp_path))


async def _runs_beside_idle(client: Client, stage: Stage, busy: str, idle: str) -> None:
    unused = deployment(idle, "b", priority="high")
    for unit in (unused, job(busy, "b", priority="low", opted=False)):
        await create(client, stage, unit)
    await until("both run", lambda: runs(client, busy, idle))
    use(stage, unused, 0.0)
    await until("it is idle", lambda: idle_for(client, 6))


@pytest.mark.slow
async def test_own_quota_comes_back_when_the_stated_time_is_over(
    audited: ControlPlane, tmp_path: Path
) -> None:
    async with decided(audited, tmp_path, _NODES, {}) as (_, client, _operator):
        await _prepared(client)
        for name in ("one", "two"):
            await client.create(JOBS, queued_job(name, "theirs"), dict)
        await until("both run", lambda: _run(client, "one", "two"))
        await client.create(JOBS, queued_job("own", "ours"), dict)
        await until("own quota is back", lambda: _run(client, "own"))
        own: Object = await client.get(JOBS, NAMESPACE, "own", dict)
    (evicted,) = evictions(tmp_path)
    assert (evicted.resource, evicted.name) in (("jobs", "one"), ("jobs", "two"))
    waited = evicted.at - parse_instant(own["metadata"]["creationTimestamp"])
    assert _WAIT_S * SECOND <= waited <= (_WAIT_S + 20) * SECOND
    print(f"own quota came back after {waited / SECOND} s")


async def _prepared(client: Client) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}}, dict)
    await client.create(_FLAVORS, flavor(), dict)
    for name, local in (("cq-own", "ours"), ("cq-other", "theirs")):
        made = cluster_queue(name, 2, "all", preemption=_RECLAIM)
        await client.create(CLUSTER_QUEUES, made, dict)
        await client.create(LOCAL_QUEUES, local_queue(local, name), dict)
    exempt = {"nominalReclaimAfter": f"{_WAIT_S}s"}
    await client.create(
        HARM_BUDGETS, budget(limits={"displacements": 0}, window="24h", exempt=exempt), dict
    )


async def _run(client: Client, *names: str) -> bool:
    page = await client.list(JOBS, dict, namespace=NAMESPACE)
    held = {each["metadata"]["name"]: each["spec"]["suspend"] for each in page.items}
    return not any(held.get(name, True) for name in names)


async def _delete(client: Client, *names: str) -> None:
    """Delete Jobs, and wait until they and their pods are gone."""
    found = {each["metadata"]["name"]: each for each in (await client.list(JOBS, dict)).items}
    for name in names:
        namespace = found[name]["metadata"]["namespace"]
        await client.delete(JOBS, namespace, name, propagation=Propagation.BACKGROUND)
    await until("they are gone", lambda: _gone(client, *names))


async def _gone(client: Client, *names: str) -> bool:
    pods = (await client.list(KINDS["Pod"], dict)).items
    return not any(each["metadata"]["name"].startswith(names) for each in pods)


async def _killed(operator: OperatorProcesses) -> None:
    """Kill the only replica, and start another one."""
    (pid,) = operator.pids
    os.kill(pid, signal.SIGKILL)
    await until("it has ended", lambda: _is_over(operator))
    await operator.start()


async def _is_over(operator: OperatorProcesses) -> bool:
    return not operator.pids


async def _idle_work_is_spared(client: Client, name: str) -> bool:
    """Tell whether an event on a demand says that a budget spares the idle work for it."""
    return any(
        each["involvedObject"]["name"].startswith(f"job-{name}-")
        and each["reason"] == "Waiting"
        and _USED_UP in each["message"]
        for each in (await client.list(EVENTS, dict)).items
    )


async def _pods_are_spared(client: Client, name: str) -> bool:
    """Tell whether the conditions of a pod say that a budget spares whom it could take."""
    for pod in (await client.list(KINDS["Pod"], dict)).items:
        if pod["metadata"]["name"].startswith(f"{name}-"):
            conditions = (pod.get("status") or {}).get("conditions") or ()
            return any(
                "harm budget few is used up" in each.get("message", "") for each in conditions
            )
    return False


async def _is_exhausted(client: Client) -> bool:
    found: Object = await client.get(HARM_BUDGETS, "", "few", dict)
    return bool((found.get("status") or {}).get("exhausted"))


async def _has_used(client: Client, tenant: str, displacements: int) -> bool:
    found: Object = await client.get(HARM_BUDGETS, "", "few", dict)
    used = (found.get("status") or {}).get("used") or ()
    return [(each["of"], each["displacements"]) for each in used] == [(tenant, displacements)]


def _units(folder: Path) -> list[str]:
    """Return whom the operator evicted, pods by the Job that made them."""
    return [f"{each.resource}/{each.name.partition('-')[0]}" for each in evictions(folder)]
