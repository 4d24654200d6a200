"""The benches that run on any cluster run on a real API server, and say what it had to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.control_plane import ADMINISTRATOR, ControlPlane

pytestmark = pytest.mark.slow


@pytest.fixture
def kubeconfig(real_cluster: ControlPlane, tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    real_cluster.write_kubeconfig(path, ADMINISTRATOR)
    return path


def test_the_load_of_the_quota_plane_counts_the_requests_of_a_real_api_server(
    kubeconfig: Path,
) -> None:
    figures = _result("bench.quota_load", kubeconfig)
    requests = figures["requests"]
    # Each of the 32 Workloads is created once and finished by one apply, of which a conflict is
    # another answer.
    assert figures["api_server"] == "given"
    assert requests["POST workloads 201"] == requests["APPLY workloads/status 200"] == 32
    assert requests["PATCH workloads/status 200"] >= 32
    assert figures["api_server_cpu_s"] > 0
    assert set(figures["mean_wait_s"]) == {"small", "medium", "large"}


def test_bindings_are_counted_by_a_real_api_server(kubeconfig: Path) -> None:
    figures = _result("bench.bindings", kubeconfig)
    assert figures["requests"]["POST pods/binding 201"] == figures["pods"] == 40
    assert figures["api_server_cpu_s"] > 0
    assert figures["cpu_ms"] > 0


@pytest.mark.usefixtures("real_cluster")  # Skips where there are no binaries.
def test_one_command_runs_the_benches_on_a_control_plane_of_its_own() -> None:
    command = [sys.executable, "-m", "bench.real_api_server", "--quick", "bindings"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["requests"]["POST pods/binding 201"] == 40


def _result(module: str, kubeconfig: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", module, "--quick", "--kubeconfig", str(kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
