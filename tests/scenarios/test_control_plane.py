"""Scenarios of our own on an API server that the machines reach through the client, as a real one.

The embedded server stands in for it always; a real one where `$KUBEBUILDER_ASSETS` has it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from reprieve.local.cluster import EmbeddedCluster
from reprieve.scenarios.model import load
from reprieve.scenarios.result import Outcome
from reprieve.scenarios.runner import play_scenario
from reprieve.scenarios.staging import staged
from reprieve.units.clock import SystemClock
from tests.scenarios.control_plane import assets, control_plane

OWN = Path(__file__).parent / "own"


@pytest.mark.parametrize(
    "name",
    [
        "makes-way-under-pressure",
        "recreated-root-is-another-workload",
        "restart-in-the-middle",
        "silence-is-not-idleness",
    ],
)
async def test_a_scenario_holds_on_a_real_api_server(name: str, tmp_path: Path) -> None:
    binaries = assets()
    if binaries is None:
        pytest.skip("KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver")
    async with control_plane(binaries, tmp_path) as kubeconfig:
        await assert_it_holds(name, kubeconfig)


async def test_a_scenario_holds_with_machines_that_know_only_the_client(tmp_path: Path) -> None:
    async with EmbeddedCluster() as cluster:
        cluster.write_kubeconfig(tmp_path / "kubeconfig")
        await assert_it_holds("makes-way-under-pressure", tmp_path / "kubeconfig")


async def assert_it_holds(name: str, kubeconfig: Path) -> None:
    scenario = load(OWN / f"{name}.yaml")
    async with staged(
        kubeconfig,
        kubeconfig,
        scenario.nodes,
        SystemClock(),
        operator_arguments=("--lease-duration", "5s"),
    ) as (stage, _):
        result = await play_scenario(scenario, stage)

    assert result.outcome is Outcome.PASSED, result.text()
