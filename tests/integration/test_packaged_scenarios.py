"""Every scenario that comes with Reprieve, of all planes, on a real control plane."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprieve.scenarios.catalogue import names, packaged
from reprieve.scenarios.result import Outcome
from reprieve.scenarios.runner import play_scenario
from tests.integration.control_plane import Binaries
from tests.integration.group_plane import group_plane, on_plane

#: As `reprieve up` runs the operator: it is the only scheduler.
_NAMES = ("default-scheduler", "reprieve-scheduler", "koord-scheduler")
_CONTROLLERS = ("idle", "scheduling")


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
async def test_a_packaged_scenario_holds_on_a_real_control_plane(
    name: str, with_pod_groups: Binaries, tmp_path: Path
) -> None:
    scenario = packaged(name)
    controllers = scenario.controllers or _CONTROLLERS
    schedulers = [part for each in _NAMES for part in ("--scheduler-name", each)]
    with group_plane(with_pod_groups, tmp_path) as plane:
        async with on_plane(
            plane,
            tmp_path,
            scenario.nodes,
            *("--controllers", ",".join(controllers), *schedulers),
            kueue="quota" in controllers,
        ) as stage:
            result = await play_scenario(scenario, stage)
    assert result.outcome is Outcome.PASSED, result.text()
