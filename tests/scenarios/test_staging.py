"""A stage on an API server that the machines, too, reach through the client alone."""

from __future__ import annotations

from pathlib import Path

from kubelocal.cluster import EmbeddedCluster
from kubeworld.units.clock import SystemClock
from reprieve.scenarios.model import load
from reprieve.scenarios.result import Outcome
from reprieve.scenarios.runner import play_scenario
from reprieve.scenarios.staging import staged

SCENARIO = Path(__file__).parent / "own" / "makes-way-under-pressure.yaml"


async def test_a_scenario_holds_with_machines_that_know_only_the_client(tmp_path: Path) -> None:
    scenario = load(SCENARIO)
    kubeconfig = tmp_path / "kubeconfig"
    async with EmbeddedCluster() as cluster:
        cluster.write_kubeconfig(kubeconfig)
        async with staged(kubeconfig, kubeconfig, scenario.nodes, SystemClock()) as (stage, _):
            result = await play_scenario(scenario, stage)

    assert result.outcome is Outcome.PASSED, result.text()
