"""The configuration in a ConfigMap: read at the start, followed while the plane runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprieve.kube.resource import EVENTS
from reprieve.planes.common.config_map import CONFIG_MAPS
from reprieve.planes.quota.context import QuotaOptions
from reprieve.planes.quota.live_configuration import (
    LiveConfiguration,
    StoredSettings,
    stored_settings,
)
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE
from reprieve.settings.quota import QuotaSource
from reprieve.settings.quota_configuration import CONFIG_MAP_KEY
from reprieve.units.errors import UsageError
from tests.background import ended
from tests.quota_plane.site import Object, Site, job, site
from tests.quota_plane.test_jobs import base

NAME = "kueue-manager-config"
PLACE = f"ConfigMap {OPERATOR_NAMESPACE}/{NAME}"
SOURCE = QuotaSource({"configurationMap": NAME}, "--config", OPERATOR_NAMESPACE)
CHANGED = (
    'integrations.frameworks: unset -> ["batch/job","jobset.x-k8s.io/jobset"] '
    "(when the operator restarts); "
    'resources.excludeResourcePrefixes: unset -> ["example.com/"]'
)
UNKNOWN = "fairSharing.enable"


def configuration(**keys: Any) -> str:
    head = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    return yaml.safe_dump({**head, **keys})


def config_map(text: str, key: str = CONFIG_MAP_KEY) -> Object:
    return {"metadata": {"name": NAME, "namespace": OPERATOR_NAMESPACE}, "data": {key: text}}


async def write(cluster: Site, text: str) -> None:
    patch = {"data": {CONFIG_MAP_KEY: text}}
    await cluster.client.patch(CONFIG_MAPS, OPERATOR_NAMESPACE, NAME, patch, dict)


async def told(cluster: Site) -> list[tuple[str, str, str]]:
    """Return type, reason and message of the events about the ConfigMap."""
    page = await cluster.client.list(EVENTS, dict, namespace=OPERATOR_NAMESPACE)
    return [
        (each["type"], each["reason"], each["message"])
        for each in page.items
        if each["involvedObject"]["kind"] == "ConfigMap"
    ]


async def test_a_configuration_is_followed_and_a_bad_one_loses_nothing(tmp_path: Path) -> None:
    greedy = job("greedy", pods=1)
    (container,) = greedy["spec"]["template"]["spec"]["containers"]
    for bound in ("requests", "limits"):
        container["resources"].setdefault(bound, {})["example.com/licence"] = "1"
    async with site(tmp_path, *base(4), start=False) as cluster:
        await cluster.client.create(CONFIG_MAPS, config_map(configuration()), dict)
        stored = await stored_settings(cluster.client, SOURCE)
        plane = await cluster.start(QuotaOptions.of(stored.settings))
        live = LiveConfiguration(plane.context, stored, plane.reconfigure)
        following = asyncio.create_task(live.run())
        try:
            await cluster.create(greedy)

            async def refused() -> bool:
                found = (await cluster.conditions("greedy")).get("QuotaReserved", ("", "", ""))
                return "example.com/licence" in found[2]

            await cluster.until("there is no quota for licences", refused, 60)

            excluded = {"excludeResourcePrefixes": ["example.com/"]}
            frameworks = {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]}
            await write(cluster, configuration(resources=excluded, integrations=frameworks))

            async def admitted() -> bool:
                return await cluster.admitted() == {"greedy"}

            await cluster.until("licences do not count any more", admitted, 60)

            await write(cluster, configuration(fairSharing={"enable": True}))

            async def warned() -> bool:
                return ("Warning", "InvalidConfiguration") in {
                    each[:2] for each in await told(cluster)
                }

            await cluster.until("the bad one is told", warned, 60)
            await cluster.create(job("next", pods=1))

            async def goes_on() -> bool:
                return await cluster.admitted() == {"greedy", "next"}

            await cluster.until("everything goes on", goes_on, 60)
            await cluster.client.delete(CONFIG_MAPS, OPERATOR_NAMESPACE, NAME)

            async def missed() -> bool:
                return len(await told(cluster)) == 3

            await cluster.until("its end is told", missed, 60)
        finally:
            await ended(following)
        assert await told(cluster) == [
            (
                "Normal",
                "ConfigurationChanged",
                CHANGED,
            ),
            (
                "Warning",
                "InvalidConfiguration",
                f'{PLACE}: {CONFIG_MAP_KEY}: strict decoding error: unknown field "{UNKNOWN}"',
            ),
            (
                "Warning",
                "InvalidConfiguration",
                f"it has no {CONFIG_MAP_KEY}: the configuration stays as it was read last",
            ),
        ]


async def test_a_start_without_a_usable_config_map_says_what_is_wrong(tmp_path: Path) -> None:
    async with site(tmp_path, start=False) as cluster:
        client = cluster.client

        async def refusal() -> str:
            with pytest.raises(UsageError) as raised:
                await stored_settings(client, SOURCE)
            return str(raised.value)

        assert await refusal() == (
            f"quota.configurationMap: {PLACE} does not exist; accepted: a ConfigMap of the "
            f"operator's namespace with the key {CONFIG_MAP_KEY}"
        )
        await client.create(CONFIG_MAPS, config_map("x", key="other"), dict)
        assert await refusal() == f"quota.configurationMap: {PLACE} has no key {CONFIG_MAP_KEY}"
        await write(cluster, configuration(queueVisibility={}))
        assert await refusal() == (
            f'{PLACE}: {CONFIG_MAP_KEY}: strict decoding error: unknown field "queueVisibility"'
        )
        none: StoredSettings = await stored_settings(client, QuotaSource())
        assert none.content is None
