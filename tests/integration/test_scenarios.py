"""Scenarios of our own on a real API server; the embedded cluster plays them in tests/scenarios."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprieve.scenarios.model import load
from reprieve.scenarios.result import Outcome
from reprieve.scenarios.runner import play_scenario
from tests.integration.conftest import LEASE
from tests.integration.control_plane import ControlPlane
from tests.integration.site import real_site

OWN = Path(__file__).parents[1] / "scenarios" / "own"
PLAYED = (
    "makes-way-under-pressure",
    "recreated-root-is-another-workload",
    "restart-in-the-middle",
    "silence-is-not-idleness",
)


@pytest.mark.parametrize("name", PLAYED)
async def test_a_scenario_holds_on_a_real_api_server(
    name: str, real_cluster: ControlPlane, tmp_path: Path
) -> None:
    scenario = load(OWN / f"{name}.yaml")
    async with real_site(real_cluster, tmp_path, *LEASE, nodes=scenario.nodes) as site:
        result = await play_scenario(scenario, site.stage)

    assert result.outcome is Outcome.PASSED, result.text()
