"""`reprieve up` as people and pipelines start it: its own process, its output, its exit code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from yarl import URL

from kubeworld.units.clock import SystemClock
from reprieve.cli.main import main
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import GPU_WORKLOADS, NAMESPACES, NODES
from reprieve.scenarios import with_parent

SCENARIO = """
name: tiny
namespace: tiny
operator_env: {{GPU_PREEMPTION_ENABLED: 'true', GPU_PREEMPTION_POLLING_INTERVAL: 1s}}
cluster: {{nodes: [{{name: gpu-0, allocatable: {{amd.com/gpu: '4'}}}}]}}
steps:
- apply:
    object:
      apiVersion: batch/v1
      kind: Job
      metadata:
        name: training
        annotations: {{kaiwo.silogen.ai/gpu-preemption.enabled: 'true'}}
      spec:
        template:
          spec:
            restartPolicy: Never
            containers:
            - name: main
              image: registry.example/main:1
              resources: {{limits: {{amd.com/gpu: '1'}}}}
- set_utilization: {{pods_of: Job/training, value: 80}}
- wait_gpuworkload: {{root: Job/training, timeout: {timeout}, phase: {phase}}}
"""


def scenario(folder: Path, phase: str, timeout: float = 60) -> str:
    file = folder / "tiny.yaml"
    file.write_text(SCENARIO.format(phase=phase, timeout=timeout), encoding="utf-8")
    return str(file)


@contextlib.asynccontextmanager
async def started(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *with_parent.command("reprieve", "up", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


#: Seconds in which a line comes on a busy machine.
_LONGEST: Final = 300


async def line_with(process: asyncio.subprocess.Process, text: str) -> str:
    """Return the first line of the output that holds `text`; it comes within minutes."""
    assert process.stdout is not None
    async with asyncio.timeout(_LONGEST):
        async for raw in process.stdout:
            if text in raw.decode():
                return raw.decode()
    raise AssertionError(f"the output ended without {text!r}")


def children(pid: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name in parentheses may hold blanks; the parent stands second after it.
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(folder.name))
    return found


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_serves_from_the_first_line_until_a_signal_and_leaves_nothing_running(
    number: signal.Signals, tmp_path: Path
) -> None:
    if not is_running(os.getpid()):
        pytest.skip("needs /proc to look for processes that are left")
    kubeconfig = tmp_path / "named" / "kubeconfig"
    async with started(
        "--scenario", scenario(tmp_path, "Active"), "--kubeconfig-out", str(kubeconfig)
    ) as process:
        assert process.stdout is not None
        first = (await process.stdout.readline()).decode()
        assert first == f"export KUBECONFIG={shlex.quote(str(kubeconfig))}\n"
        second = (await process.stdout.readline()).decode()
        assert second.startswith("Open this page: http://127.0.0.1:")
        page = URL(second.rpartition(" ")[2].strip())
        async with aiohttp.request("GET", page.origin() / "api/session") as refused:
            assert refused.status == 401
        headers = {"Authorization": f"Bearer {page.query['token']}"}
        async with aiohttp.request("GET", page.origin() / "api/page/now", headers=headers) as now:
            assert (await now.json())["values"]["bar"]["total"] == 4
        client = connect(await load_connection(str(kubeconfig)), SystemClock())
        nodes = await client.list(NODES, dict)
        await client.close()
        await line_with(process, "-> Active")
        processes = children(process.pid)
        process.send_signal(number)
        _, errors = await process.communicate()

    assert [node["metadata"]["name"] for node in nodes.items] == ["gpu-0"]
    assert process.returncode == 0, errors.decode()
    assert b"Traceback" not in errors
    assert len(processes) == 2, "the operator and the page"
    assert not any(map(is_running, processes))


async def test_a_scenario_that_holds_ends_well_with_a_line_for_each_transition(
    tmp_path: Path,
) -> None:
    arguments = ("--headless", "--for", "30s", "--scenario", scenario(tmp_path, "Active"))
    async with started("--without-web", *arguments) as process:
        output, errors = await process.communicate()
    lines = output.decode().splitlines()

    assert process.returncode == 0, errors.decode()
    assert lines[0].startswith("export KUBECONFIG=")
    assert lines[-1] == "scenario tiny: passed"
    assert [line.split()[1].rpartition("-")[0] for line in lines[1:-1]] == [
        "tiny/job-training" for _ in lines[1:-1]
    ]
    assert any(" -> Active  " in line for line in lines)
    # Once, not again in the operator's log.
    assert "-> Active" not in errors.decode()


async def test_a_cluster_that_is_kept_is_taken_up_as_it_was_left(tmp_path: Path) -> None:
    data = tmp_path / "data"
    kept = ("--headless", "--data", str(data))
    async with started(*kept, "--scenario", scenario(tmp_path, "Active")) as process:
        await line_with(process, "scenario tiny: passed")
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert process.returncode == 0

    async with started(*kept) as process:
        await line_with(process, "- -> Active")
        client = connect(await load_connection(str(data / "kubeconfig")), SystemClock())
        namespaces = await client.list(NAMESPACES, dict)
        workloads = await client.list(GPU_WORKLOADS, dict)
        await client.close()
        process.send_signal(signal.SIGTERM)
        await process.communicate()

    assert process.returncode == 0
    assert "tiny" in [item["metadata"]["name"] for item in namespaces.items]
    assert [item["spec"]["workloadRef"]["name"] for item in workloads.items] == ["training"]


async def test_an_assertion_that_fails_is_named_and_is_the_exit_code(tmp_path: Path) -> None:
    arguments = ("--headless", "--for", "60s", "--scenario", scenario(tmp_path, "Idle", 3))
    async with started(*arguments) as process:
        _, errors = await process.communicate()

    assert process.returncode == 1
    assert (
        "scenario tiny: failed: step 3 (wait_gpuworkload Job/training Idle): not seen within 3 s"
        in errors.decode()
    )
    assert b"Traceback" not in errors


async def test_a_scenario_that_is_not_finished_in_time_has_not_held(tmp_path: Path) -> None:
    arguments = ("--headless", "--for", "2s", "--scenario", scenario(tmp_path, "Idle"))
    async with started(*arguments) as process:
        _, errors = await process.communicate()

    assert process.returncode == 1
    assert "scenario tiny was not finished in time" in errors.decode()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--for", "3x"], "'--for': '3x' is not a duration; accepted: Go durations such as"),
        (["--for", "0s"], "'--for': '0s' is not longer than nothing; accepted: such as 60s, 5m"),
        (["--port", "70000"], "'--port': 70000 is not in the range 0<=x<=65535"),
        (["--port", "http"], "'--port': 'http' is not a valid integer range"),
        (["--scenario", "none"], "no scenario 'none'; accepted: a file, or one of "),
        (["--feature-gates", "Foo=true"], "--feature-gates: unknown feature gate 'Foo'; accepted"),
        (["--data", "/proc/none"], "/proc/none: No such file or directory; accepted for --data"),
        (["--speed", "30"], "'--speed': 30.0 is not in the range 0.5<=x<=20"),
        (["--nodes", "2", "--speed", "3"], "--speed and --seed are of the demo; accepted: without"),
        (["--fast"], "No such option '--fast'"),
    ],
)
def test_a_bad_flag_ends_with_code_2_and_says_what_is_accepted(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["reprieve", "up", *arguments])
    with pytest.raises(SystemExit) as end:
        main()

    assert end.value.code == 2
    assert message in capsys.readouterr().err


async def test_a_port_that_is_taken_is_the_callers_to_change(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with (
        server,
        started("--port", str(port), "--scenario", scenario(tmp_path, "Active")) as process,
    ):
        _, errors = await process.communicate()

    assert process.returncode == 2
    assert errors.decode() == (
        f"Error: --port {port}: already in use; accepted: a free port, or 0 for any\n"
    )


async def test_a_port_of_the_page_that_is_taken_is_the_callers_to_change(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    arguments = ("--web-port", str(port), "--scenario", scenario(tmp_path, "Active"))
    async with server, started(*arguments) as process:
        _, errors = await process.communicate()

    assert process.returncode == 2
    assert errors.decode().startswith(f"Error: --web-port {port}: cannot listen: ")


async def test_the_page_ends_with_the_cluster_though_that_is_killed(tmp_path: Path) -> None:
    if not is_running(os.getpid()):
        pytest.skip("needs /proc to look for processes that are left")
    async with started("--scenario", scenario(tmp_path, "Active")) as process:
        await line_with(process, "/?token=")
        page = children(process.pid)[0]
        process.kill()
        async with asyncio.timeout(60):
            while is_running(page):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def test_an_empty_cluster_has_the_nodes_that_were_asked_for(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    arguments = ("--nodes", "3", "--gpus", "2", "--kubeconfig-out", str(kubeconfig))
    async with started(*arguments) as process:
        assert process.stdout is not None
        await process.stdout.readline()
        client = connect(await load_connection(str(kubeconfig)), SystemClock())
        nodes = await client.list(NODES, dict)
        await client.close()
        await line_with(process, "scenario playground: passed")
        process.send_signal(signal.SIGTERM)
        _, errors = await process.communicate()

    assert process.returncode == 0, errors.decode()
    gpus = {n["metadata"]["name"]: n["status"]["allocatable"]["amd.com/gpu"] for n in nodes.items}
    assert gpus == {"node-0": "2", "node-1": "2", "node-2": "2"}


def test_nodes_of_ones_own_and_a_scenario_exclude_each_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["reprieve", "up", "--scenario", "idle-guide", "--nodes", "2"]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "accepted: either --scenario, or --nodes and --gpus" in capsys.readouterr().err


CONFIGURED = """
name: configured
namespace: configured
operator_env: {{}}
controllers: [scheduling]
operator_config:
  scheduling:
    configuration:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: {kind}
      profiles: [{{schedulerName: mine}}]
cluster: {{nodes: [{{name: node-0, allocatable: {{cpu: '4'}}}}]}}
steps:
- apply:
    object:
      apiVersion: v1
      kind: Pod
      metadata: {{name: small}}
      spec:
        schedulerName: mine
        containers: [{{name: main, image: 'registry.example/main:1'}}]
"""


@pytest.mark.parametrize(
    ("kind", "more", "last", "code"),
    [
        (
            "KubeSchedulerConfiguration",
            "- wait_bound: {count: 1, timeout: 60}\n",
            "scenario configured: passed",
            0,
        ),
        # Nothing is waited for, and the operator ends at once.
        ("SomethingElse", "", "scenario configured: failed", 1),
    ],
)
async def test_a_scheduler_configuration_of_a_scenario_is_in_force(
    tmp_path: Path, kind: str, more: str, last: str, code: int
) -> None:
    file = tmp_path / "configured.yaml"
    file.write_text(CONFIGURED.format(kind=kind) + more, encoding="utf-8")
    arguments = ("--headless", "--for", "30s", "--scenario", str(file), "--without-web")
    async with started(*arguments) as process:
        output, errors = await process.communicate()
    said = (output + errors).decode()
    assert (process.returncode, last in said) == (code, True), said


async def test_the_demo_moves_at_once_and_goes_on_until_a_signal() -> None:
    async with started("--speed", "10", "--without-web") as process:
        assert process.stdout is not None
        assert (await process.stdout.readline()).startswith(b"export KUBECONFIG=")
        seen = (await process.stdout.readline()).decode()
        assert seen.startswith("What to see there: ")
        await line_with(process, "reclaimed its quota")
        process.send_signal(signal.SIGINT)
        _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    assert errors.decode() == "starting a cluster of 12 nodes and its web page ...\n"
