"""What an operator says at its start and with `-v 6`, read from its own output."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.controllers.sample_package import OFFERED, install
from tests.scheduling.site import Site, node, pod, site

CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "plugins": {"postFilter": {"enabled": [{"name": "PodsOnly"}]}},
        }
    ],
}


async def _refusals(cluster: Site) -> list[str]:
    return [line for line in cluster.lines if "refuses its reprieve" in line]


@pytest.mark.real_time  # an installed package is found on the path of a process
async def test_with_v_6_each_victim_is_logged_with_the_filter_that_refused_its_reprieve(
    tmp_path: Path,
) -> None:
    install(tmp_path, OFFERED)
    config = tmp_path / "scheduler.yaml"
    config.write_text(yaml.safe_dump(CONFIGURATION))
    async with site([node("node-0"), node("node-1")], tmp_path) as cluster:
        await cluster.operator_process(
            *("-v", "6", "--scheduler-config", str(config)),
            names=(),
            environment={"PYTHONPATH": str(tmp_path)},
        )
        await cluster.filled()
        await cluster.gang(1, 2)
        (victim,) = await cluster.until_victims(1)
        await cluster.until("its filter is logged", lambda: _refusals(cluster))
        refused = await _refusals(cluster)
        assert len(refused) == 1
        assert "DETAIL reprieve.scheduling" in refused[0]
        assert (
            f"team/{victim}, a unit of 1, is a victim of team/high (lower priority): "
            "NodeResourcesFit refuses its reprieve"
        ) in refused[0]
        (told,) = [line for line in cluster.lines if "PodsOnly" in line and " ERROR " in line]
        assert "has PostFilter but not PodGroupPostFilter" in told


async def test_without_it_no_unit_is_logged(tmp_path: Path) -> None:
    async with site([node("node-0"), node("node-1")], tmp_path) as cluster:
        await cluster.operator()
        await cluster.filled()
        await cluster.gang(1, 2)
        await cluster.until_victims(1)
        assert [line for line in cluster.lines if "DETAIL" in line or "refuses" in line] == []


async def test_victims_of_a_single_pod_are_logged_with_their_filter_too(tmp_path: Path) -> None:
    async with site([node("node-0")], tmp_path) as cluster:
        await cluster.operator("--verbosity", "6")
        await cluster.filled(count=2)
        await cluster.create(pod("single", 2, priority="high"))
        (victim,) = await cluster.until_victims(1)
        await cluster.until("its filter is logged", lambda: _refusals(cluster))
        (line,) = await _refusals(cluster)
        assert (
            f"team/{victim}, a unit of 1, is a victim of team/single (lower priority): "
            "NodeResourcesFit"
        ) in line
