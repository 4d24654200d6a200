"""Plugins that never answer, and C code that lets nobody else run, against operators as processes.

The plugin does what the gang's name says: `spin`, `keep` (whatever is raised in it), `sleep`, or it
keeps the interpreter's lock, `locked` for a while and `hung` for ever.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from reprieve.kube.resource import LEASES
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE, OPERATOR_USER
from reprieve.scenarios.operator import OperatorProcesses
from tests.controllers.sample_package import install_metadata
from tests.scheduling.site import Site, group, node, pod, site

LOCKED_S = 7
pytestmark = pytest.mark.real_time  # operators are processes of their own

_MODULE = f"""
import ctypes
import os
import time
from pathlib import Path

from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.outcome import Explanation, Preemption, Sentence


def stuck(simulation, group, queued, policy, choose, failed):
    name = group.name
    if name in ("spin", "keep", "sleep", "locked", "hung"):
        with open(os.environ["STUCK"], "a") as file:
            file.write(f"{{name}} {{time.time()}}\\n")
    while name == "spin":
        pass
    while name == "keep":
        try:
            while True:
                pass
        except BaseException:
            continue
    if name == "sleep":
        time.sleep(10**6)
    if name in ("locked", "hung"):
        # Unlike CDLL this keeps the interpreter's lock meanwhile.
        ctypes.PyDLL(None).sleep({LOCKED_S} if name == "locked" else 10**6)
        with open(os.environ["STUCK"], "a") as file:
            file.write(f"over {{time.time()}}\\n")
    return Preemption(Code.UNSCHEDULABLE, Explanation(Sentence.SILENT), evaluated=False)
"""


class Watched:
    """A cluster whose nodes are full of low work, and operators of which some have the plugin."""

    def __init__(self, cluster: Site, folder: Path) -> None:
        self.cluster = cluster
        self.asked = folder / "asked"
        self._config = folder / "scheduler.json"
        plugins = {
            "podGroupPostFilter": {
                "enabled": [{"name": "Stuck"}, {"name": "DefaultPreemption"}],
                "disabled": [{"name": "*"}],
            }
        }
        profile = {"schedulerName": "default-scheduler", "plugins": plugins}
        self._config.write_text(
            json.dumps(
                {
                    "apiVersion": "kubescheduler.config.k8s.io/v1",
                    "kind": "KubeSchedulerConfiguration",
                    "profiles": [profile],
                }
            )
        )

    async def operator(self, *arguments: str, lease: str) -> OperatorProcesses:
        return await self.cluster.operator_process(
            "--scheduler-config",
            str(self._config),
            *arguments,
            names=(),
            environment={"STUCK": str(self.asked)},
            lease=lease,
        )

    async def gang(self, name: str) -> None:
        await self.cluster.create(
            group(name, min_count=1, priority="high"),
            pod(f"{name}-0", 4, group=name, priority="high"),
        )

    async def until_placed(self, name: str) -> None:
        async def placed() -> bool:
            await self.cluster.end()
            return f"{name}-0" in await self.cluster.placed()

        await self.cluster.until(f"{name} placed", placed)

    async def lease(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.cluster.client.get(
            LEASES, OPERATOR_NAMESPACE, "reprieve", dict
        )
        return dict(found["spec"])


@asynccontextmanager
async def watched(folder: Path) -> AsyncIterator[Watched]:
    async with site([node("node-0"), node("node-1")], folder) as cluster:
        yield Watched(cluster, folder)


@pytest.fixture(autouse=True)
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "stuck_plugins.py").write_text(_MODULE)
    offered = {"reprieve.pod_group_post_filters": {"Stuck": "stuck_plugins:stuck"}}
    install_metadata(package, offered, "stuck-plugins")
    monkeypatch.setenv("PYTHONPATH", str(package))


async def test_plugins_that_never_answer_cost_their_gangs_and_nothing_else(tmp_path: Path) -> None:
    async with watched(tmp_path) as world:
        operator = await world.operator("--decision-limit", "1s", lease="15s")
        await world.cluster.filled()
        (line,) = [each for each in operator.tail(400) if "telemetry on port" in each]
        health = f"http://127.0.0.1:{line.rpartition(' ')[2]}/healthz"
        for name in ("spin", "keep", "sleep"):
            await world.gang(name)

        async def told() -> bool:
            events = await world.cluster.events()
            stopped = [e for e in events if e["reason"] == "DecisionStopped"]
            async with aiohttp.ClientSession() as session, session.get(health) as answer:
                assert answer.status == 200
            return {e["involvedObject"]["name"] for e in stopped} == {"spin", "keep", "sleep"}

        await world.cluster.until("each of the three gangs is told", told)
        await world.gang("quick")
        await world.until_placed("quick")
        assert {line.split()[0] for line in world.asked.read_text().splitlines()} == {
            "spin",
            "keep",
            "sleep",
        }
        assert (await world.lease())["leaseTransitions"] == 0
        assert not any("begins anew" in line for line in operator.tail(400))


async def test_c_code_that_lets_nobody_run_costs_no_lease(tmp_path: Path) -> None:
    async with watched(tmp_path) as world:
        first = await world.operator(lease="4s")
        await world.cluster.filled()
        holder = (await world.lease())["holderIdentity"]
        second = await world.operator(lease="4s")
        await second.until_said("stands by")
        renewals: list[tuple[str, str]] = []

        async def locked() -> bool:
            lease = await world.lease()
            renewals.append((lease["holderIdentity"], lease["renewTime"]))
            return world.asked.exists() and "over" in world.asked.read_text()

        await world.gang("locked")
        await world.cluster.until("the plugin has answered", locked)
        started, ended = (float(line.split()[1]) for line in world.asked.read_text().splitlines())
        assert ended - started >= LOCKED_S - 1
        assert {who for who, _ in renewals} == {holder}
        assert len({when for _, when in renewals}) > LOCKED_S / 4, "renewed while nobody could run"
        await world.until_placed("locked")
        assert not any("begins anew" in line for line in first.tail(400))
        assert (await world.lease())["leaseTransitions"] == 0


async def test_a_process_that_hangs_is_ended_and_the_next_leaves_alone_what_it_was_at(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path) as world:
        first = await world.operator("--longest-silence", "5s", lease="4s")
        await world.cluster.filled()
        second = await world.operator("--longest-silence", "5s", lease="4s")
        await second.until_said("stands by")
        await world.gang("hung")
        ended = await asyncio.wait_for(first.stopped_by_itself(), 60)
        assert f"code {int(signal.SIGUSR2)}" in ended
        said = "\n".join(first.tail(400))
        assert "the event loop has not answered for" in said
        assert "in stuck" in said, "where it hung is told"
        await second.until_said("leading, epoch")
        await world.gang("quick")
        await world.until_placed("quick")
        assert (await world.lease())["leaseTransitions"] > 0

        async def told() -> bool:
            events = await world.cluster.events()
            return any(
                each["reason"] == "DecisionStopped"
                and each["involvedObject"]["name"] == "hung"
                and "had to be ended" in each["message"]
                for each in events
            )

        await world.cluster.until("the gang is told", told)
        assert world.asked.read_text().split()[::2] == ["hung"], "it is not asked about again"
        assert "hung-0" not in await world.cluster.placed()


async def test_after_a_crash_the_next_leader_need_not_wait_for_the_lease_to_run_out(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path) as world:
        first = await world.operator(lease="600s")
        await world.cluster.filled()
        second = await world.cluster.operator_process(lease="600s")
        await second.until_said("stands by")
        os.kill(first.pids[0], signal.SIGKILL)
        await second.until_said("leading, epoch")


async def test_a_process_that_lost_its_lease_comes_back_by_itself_when_the_api_server_does(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path) as world:
        operator = await world.operator(lease="4s")
        await world.cluster.filled()
        (before,) = operator.pids
        faults = world.cluster.embedded.cluster.faults
        faults.configure(user=OPERATOR_USER, seed=1, unavailable=1.0)
        await operator.until_said("the process lease is lost: this process restarts itself")
        faults.configure(user=OPERATOR_USER, seed=1)
        await world.gang("quick")
        await world.until_placed("quick")
        assert operator.pids == [before]
        assert (await world.lease())["leaseTransitions"] == 1
