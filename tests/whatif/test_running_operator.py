"""Without flags a plan is decided as the operator that is installed is set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from reprieve.cli.sessions.published_settings import PublishedSettings
from reprieve.cli.sessions.reading import reading_client
from reprieve.cli.sessions.running_operator import running_deciders
from reprieve.kube.client import Client
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import Resource
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE
from reprieve.whatif.deciders import Deciders
from tests.scheduling.site import node, site
from tests.virtual_time import LoopClock

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
CONFIG = {"quota": {"loopLimit": 7}}


def deployment(*arguments: str, **facts: Any) -> dict[str, Any]:
    """Return a Deployment of the operator, as the chart has it."""
    labels = {"app.kubernetes.io/part-of": "reprieve"}
    container = {
        "name": "operator",
        "image": "registry.example/reprieve:1",
        "args": ["run", *arguments, "--config", "/etc/reprieve/config.yaml"],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/reprieve"}],
        **facts,
    }
    volume = {"name": "config", "configMap": {"name": "reprieve"}}
    return {
        "metadata": {"name": "reprieve", "namespace": OPERATOR_NAMESPACE, "labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "volumes": [volume]},
            },
        },
    }


async def _found(tmp_path: Path, *objects: tuple[Resource, dict[str, Any]]) -> Deciders | None:
    async with site([node("node-0")], tmp_path) as cluster:
        for resource, obj in objects:
            await cluster.client.create(resource, obj, dict)
        connection = await load_connection(str(cluster.embedded.kubeconfig))
        client: Client = reading_client(connection, LoopClock())
        try:
            return await running_deciders(client)
        finally:
            await client.close()


CONFIG_MAP = {
    "metadata": {"name": "reprieve", "namespace": OPERATOR_NAMESPACE},
    "data": {"config.yaml": yaml.safe_dump(CONFIG)},
}


async def test_planes_names_and_file_of_the_operator_are_taken(tmp_path: Path) -> None:
    flags = ("--controllers", "idle,scheduling,quota", "--scheduler-name", "gpu-scheduler")
    found = await _found(tmp_path, (CONFIG_MAPS, CONFIG_MAP), (DEPLOYMENTS, deployment(*flags)))
    assert found is not None
    assert found.options.controllers == ("idle", "scheduling", "quota")
    assert found.scheduler_names == {"gpu-scheduler"}
    assert found.settings.start.operator_namespace == OPERATOR_NAMESPACE
    assert found.settings.quota is not None
    assert found.settings.quota.settings().loop_limit == 7


@pytest.mark.parametrize(
    "objects",
    [
        (),
        ((DEPLOYMENTS, deployment("--controllers", "quota")),),  # no ConfigMap
        ((DEPLOYMENTS, deployment("--controllers", "quota", "--from-the-future")),),
        ((DEPLOYMENTS, deployment(args=["webhooks"])),),
    ],
    ids=["none", "no file", "unknown flag", "another command"],
)
async def test_what_cannot_be_read_or_decided_here_is_left_to_flags(
    tmp_path: Path, objects: tuple[tuple[Resource, dict[str, Any]], ...]
) -> None:
    assert await _found(tmp_path, *objects) is None


async def test_an_operator_that_runs_as_a_process_publishes_how_it_is_set(tmp_path: Path) -> None:
    """As `reprieve up` runs it: without a Deployment, and with fair shares in a ConfigMap."""
    settings = PublishedSettings(
        OPERATOR_NAMESPACE,
        ("--controllers", "quota", "--config", "/not/read/here"),
        {
            "GPU_PREEMPTION_ENABLED": "true",
            "GPU_PREEMPTION_METRICS_ENDPOINT": "http://127.0.0.1:9/metrics",
        },
        yaml.safe_dump(CONFIG),
    )
    found = await _found(tmp_path, (CONFIG_MAPS, settings.config_map()))
    assert found is not None
    assert found.options.controllers == ("quota",)
    assert found.settings.quota is not None
    assert found.settings.quota.settings().loop_limit == 7


async def test_what_is_no_such_settings_decides_nothing(tmp_path: Path) -> None:
    broken = PublishedSettings(OPERATOR_NAMESPACE, (), {}, "").config_map()
    broken["data"]["arguments"] = "--controllers"
    assert await _found(tmp_path, (CONFIG_MAPS, broken)) is None
