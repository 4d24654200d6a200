"""A cluster that runs: on the caller's loop, in a thread, and from the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from kubelocal.errors import UsageError
from kubelocal.running import Running, Settings, running, running_in_thread

pytestmark = pytest.mark.real_time


def nodes_of(url: str) -> list[str]:
    with urllib.request.urlopen(f"{url}/api/v1/nodes", timeout=30) as answer:
        return [item["metadata"]["name"] for item in json.load(answer)["items"]]


def test_in_a_thread_it_answers_plain_code_and_leaves_nothing_behind() -> None:
    with running_in_thread(Settings(nodes=2, gpus=8)) as started:
        assert nodes_of(started.url) == ["node-0", "node-1"]
        assert started.kubeconfig.exists()
        assert started.metrics_url is not None
    assert not started.kubeconfig.exists()
    with pytest.raises(OSError, match="refused"):
        nodes_of(started.url)


def test_without_machines_there_is_the_server_alone() -> None:
    with running_in_thread(Settings(machines=False)) as started:
        assert nodes_of(started.url) == []
        assert started.metrics_url is None


def test_what_cannot_be_started_is_raised_where_it_was_asked_for() -> None:
    with (
        pytest.raises(UsageError, match="feature gate NoSuchGate; accepted: "),
        running_in_thread(Settings(feature_gates={"NoSuchGate": True})),
    ):
        pass


async def test_the_kubeconfig_stays_where_it_was_wanted(tmp_path: Path) -> None:
    async with running(Settings(nodes=0), kubeconfig=tmp_path / "config") as started:
        assert started.kubeconfig == tmp_path / "config"
        assert started.url in started.kubeconfig.read_text()
    assert (tmp_path / "config").exists()


@pytest.mark.kubelocal(nodes=1, gpus=2)
def test_the_fixtures_play_a_job_on_nodes_with_gpus_with_the_real_kubectl(
    kubectl: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("KUBECTL", str(kubectl))
    run: Callable[..., str] = request.getfixturevalue("kubelocal_kubectl")
    cluster: Running = request.getfixturevalue("kubelocal_cluster")
    assert nodes_of(cluster.url) == ["node-0"]
    run("create", "job", "hello", "--image=busybox")
    waited = run(
        "wait", "--for=jsonpath={.status.phase}=Running", "pod", "-l", "job-name=hello",
        "--timeout=60s",
    )  # fmt: skip
    assert waited.endswith("condition met\n")
    room = run("get", "node", "node-0", "-o", r"jsonpath={.status.allocatable.nvidia\.com/gpu}")
    assert room == "2"


def test_the_command_says_where_it_is_until_it_is_told_to_stop(tmp_path: Path) -> None:
    config = tmp_path / "config"
    command = [sys.executable, "-m", "kubelocal", "--nodes", "3", "--kubeconfig-out", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"export KUBECONFIG={config}\n"
        label, _, url = process.stdout.readline().strip().partition(": ")
        assert label == "API server"
        assert nodes_of(url) == ["node-0", "node-1", "node-2"]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--feature-gates", "A"], "--feature-gates: 'A'; accepted: such as A=true,B=false"),
        (["--feature-gates", "A=true"], "feature gate A; accepted: "),
        (["--faults", "often"], "--faults: "),
        (["--data", "/proc/nowhere"], "/proc/nowhere"),
    ],
)
def test_what_cannot_be_used_ends_with_exit_code_2_and_one_line(
    arguments: list[str], message: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "kubelocal", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"Error: {message}")
    assert ended.stderr.count("\n") == 1
