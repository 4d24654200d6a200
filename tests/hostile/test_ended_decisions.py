"""Work that only the end of the process stops deciding about: the next process leaves it alone.

Whoever decides about what is named `hung-...` asks `re` for a match that takes it years, in C code
that keeps the interpreter's lock. The keeper of the lease ends that process. The scheduling plane's
case is in `tests/scheduling/test_watchdog.py`.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest

from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import MINUTE
from reprieve.engine.plan import Plane
from reprieve.kube.resource import EVENTS, LEASES
from reprieve.planes.common.suspects import ANNOTATION, Suspect, read_suspects
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE
from reprieve.scenarios.operator import OperatorProcesses
from tests.idle.site import container, open_site
from tests.idle.site import job as idle_job
from tests.quota_plane.site import NAMESPACE, job, site
from tests.quota_plane.test_jobs import base

_HANG = """
import re

from reprieve.engine.idle import evaluation
from reprieve.engine.quota.nominations import Nominations


def hang_at(name):
    if "hung" in name:
        print("hangs at", name, flush=True)
        re.fullmatch("(.|.)*!", "a" * 100)


eligible, admit = evaluation._eligible, Nominations.admit


def slow_eligible(run, workload):
    hang_at(workload.ref.name)
    return eligible(run, workload)


def slow_admit(self, entry):
    hang_at(entry.workload.name)
    return admit(self, entry)


evaluation._eligible, Nominations.admit = slow_eligible, slow_admit
"""
SHORT = ("--longest-silence", "5s", "--lease-duration", "4s")


@pytest.fixture(autouse=True)
def hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "customized"
    folder.mkdir()
    # Every interpreter imports a module of this name when it starts.
    (folder / "sitecustomize.py").write_text(_HANG)
    monkeypatch.setenv("PYTHONPATH", str(folder))


async def ended(operator: OperatorProcesses) -> None:
    told = await asyncio.wait_for(operator.stopped_by_itself(), 120)
    assert f"code {int(signal.SIGUSR2)}" in told, told


async def counted(lines: list[str], plane: Plane) -> bool:
    port = next(line.split()[-1] for line in reversed(lines) if "telemetry on port" in line)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/metrics") as answer,
    ):
        text = await answer.text()
    wanted = f'reprieve_decisions_stopped_total{{outcome="ended",plane="{plane}"}} 1.0'
    return wanted in text


def waits_ten_minutes(suspect: Suspect) -> bool:
    return MINUTE < suspect.until - SystemClock().wall() <= 10 * MINUTE


@pytest.mark.slow
async def test_a_queued_job_that_ends_the_process_is_left_alone_by_the_next(tmp_path: Path) -> None:
    async with site(tmp_path, *base(8), start=False) as cluster:
        operators = []

        async def start() -> OperatorProcesses:
            operators.append(
                OperatorProcesses(
                    cluster.embedded.operator_kubeconfig,
                    {"GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE},
                    arguments=("--controllers", "quota", "--metrics-port", "0", *SHORT),
                )
            )
            await operators[-1].start()
            return operators[-1]

        first = await start()
        try:
            await cluster.create(job("before"))
            await cluster.until_admitted("before")
            await cluster.create(job("hung"))
            await ended(first)
            lease = await cluster.client.get(LEASES, OPERATOR_NAMESPACE, "reprieve", dict)
            (suspect,) = read_suspects(lease["metadata"]["annotations"][ANNOTATION])
            assert suspect.plane is Plane.QUOTA and suspect.count == 1
            assert suspect.what.startswith(f"{NAMESPACE}/job-hung")
            assert waits_ten_minutes(suspect)
            second = await start()
            await cluster.create(job("after"))
            await cluster.until_admitted("before", "after")

            async def told() -> bool:
                page = await cluster.client.list(EVENTS, dict, namespace=NAMESPACE)
                return any(
                    each["reason"] == "DecisionFailed"
                    and each["involvedObject"]["name"] == suspect.what.partition("/")[2]
                    and "had to be ended" in each["message"]
                    for each in page.items
                )

            await cluster.until("it is told", told)
            await cluster.until("it is counted", lambda: counted(second.tail(400), Plane.QUOTA))
            assert not [line for line in second.tail(400) if line.startswith("hangs at")]
        finally:
            for each in operators:
                await each.stop()


@pytest.mark.slow
async def test_idle_work_that_ends_the_process_is_left_alone_by_the_next(tmp_path: Path) -> None:
    async with open_site(tmp_path) as cluster:
        first = await cluster.run(None, *SHORT)
        await cluster.create(idle_job("hung", container(gpu=1), grace_period="1s"))
        assert isinstance(first.processes, OperatorProcesses)
        await ended(first.processes)
        (lease,) = await cluster.all("leases.coordination.k8s.io", OPERATOR_NAMESPACE)
        (suspect,) = read_suspects(lease["metadata"]["annotations"][ANNOTATION])
        assert suspect.plane is Plane.IDLE and suspect.what.startswith("team/job-hung")
        assert suspect.count == 1 and waits_ten_minutes(suspect)
        second = await cluster.run(None, *SHORT)
        await cluster.create(idle_job("always", container(gpu=1), policy="Always"))
        await cluster.until_phase("Job/always", "Preempted", "Deleted")
        told = await cluster.until_event("GpuWorkload/job-hung", "DecisionStopped")
        assert "had to be ended" in told
        await cluster.until(lambda: counted(second.lines, Plane.IDLE))
        assert not second.said("hangs at")
