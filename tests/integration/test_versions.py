"""Versions: stale writes are conflicts, watches resume, a forgotten version costs one list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeworld.units.clock import SystemClock
from reprieve.kube.errors import Conflict, Invalid
from reprieve.kube.reflector import Reflector
from tests.integration.site import CONFIG_MAPS, NAMESPACE, Object, Site


class Mirror:
    """The values of the ConfigMaps as last told, and how often all of them were."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.lists = 0
        self.told: list[str] = []

    def received(self, objects: list[Any]) -> list[Any]:
        return objects

    def replaced(self, objects: list[Any], resource_version: str) -> None:
        self.lists += 1
        for obj in objects:
            self._take(obj)
        names = {obj["metadata"]["name"] for obj in objects}
        self.values = {name: value for name, value in self.values.items() if name in names}

    def applied(self, obj: Object) -> None:
        self._take(obj)

    def deleted(self, obj: Object) -> None:
        self.values.pop(obj["metadata"]["name"], None)

    def _take(self, obj: Object) -> None:
        name, value = obj["metadata"]["name"], (obj.get("data") or {}).get("value", "")
        if self.values.get(name) != value:
            self.told.append(f"{name}={value}")
        self.values[name] = value


@asynccontextmanager
async def mirroring(site: Site) -> AsyncIterator[tuple[Mirror, list[str]]]:
    mirror, restarts = Mirror(), list[str]()
    reflector = Reflector(
        site.client,
        CONFIG_MAPS,
        dict,
        mirror,
        SystemClock(),
        namespace=NAMESPACE,
        label_selector="mirrored=yes",
        restarted=restarts.append,
    )
    task = asyncio.create_task(reflector.run())
    try:
        await reflector.synced.wait()
        yield mirror, restarts
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_stale_version_is_a_conflict_and_changes_nothing(site: Site) -> None:
    name = "stale"
    stored = await site.create(config_map(name, "1"))
    await site.client.replace(CONFIG_MAPS, with_value(stored, "2"), dict)

    with pytest.raises(Conflict):
        await site.client.replace(CONFIG_MAPS, with_value(stored, "3"), dict)
    with pytest.raises(Conflict):
        version = {"metadata": {"resourceVersion": stored["metadata"]["resourceVersion"]}}
        await site.client.patch(CONFIG_MAPS, NAMESPACE, name, version | data("3"), dict)
    with pytest.raises((Conflict, Invalid)):
        uid = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}}
        await site.client.patch(CONFIG_MAPS, NAMESPACE, name, uid | data("3"), dict)

    assert (await site.find(CONFIG_MAPS, name))["data"] == {"value": "2"}
    await site.delete(CONFIG_MAPS, name)


async def test_a_change_that_meets_a_conflict_is_made_on_the_newer_version(site: Site) -> None:
    name = "contested"
    await site.create(config_map(name, "0"))
    rounds = 0

    async def count_up() -> None:
        def change(current: Object) -> Object:
            nonlocal rounds
            rounds += 1
            return with_value(current, str(int(current["data"]["value"]) + 1))

        await site.client.modify(CONFIG_MAPS, NAMESPACE, name, change, attempts=40)

    await asyncio.gather(*(count_up() for _ in range(5)))

    assert (await site.find(CONFIG_MAPS, name))["data"] == {"value": "5"}
    assert rounds >= 5
    await site.delete(CONFIG_MAPS, name)


async def test_a_watch_that_is_cut_with_its_versions_forgotten_misses_nothing(site: Site) -> None:
    await site.create(config_map("kept", "1"), config_map("removed", "1"))
    async with mirroring(site) as (mirror, restarts):
        assert mirror.values == {"kept": "1", "removed": "1"}
        async with site.cut_watches():
            await site.delete(CONFIG_MAPS, "removed")
            await site.create(config_map("made", "1"))
        await site.client.patch(CONFIG_MAPS, NAMESPACE, "kept", data("2"), dict)

        async def equal() -> bool:
            return mirror.values == {"kept": "2", "made": "1"}

        await site.until(equal, "the mirror is equal")

        assert restarts != []
        assert mirror.lists == 1 + restarts.count("expired")
        assert sorted(mirror.told) == ["kept=1", "kept=2", "made=1", "removed=1"]
    for name in ("kept", "made"):
        await site.delete(CONFIG_MAPS, name)


async def test_a_watch_resumes_at_the_version_it_is_given(site: Site) -> None:
    first = await site.create(config_map("resumed", "1"))
    for value in ("2", "3"):
        await site.client.patch(CONFIG_MAPS, NAMESPACE, "resumed", data(value), dict)
    watch = site.client.watch(
        CONFIG_MAPS,
        dict,
        resource_version=first["metadata"]["resourceVersion"],
        namespace=NAMESPACE,
        timeout_seconds=30,
    )

    seen = []
    async for event in watch:
        if event.object is not None:
            seen.append((event.type, event.object["data"]["value"]))
        if len(seen) == 2:
            break
    await watch.aclose()

    assert seen == [("MODIFIED", "2"), ("MODIFIED", "3")]
    await site.delete(CONFIG_MAPS, "resumed")


async def test_a_list_in_pages_is_one_state(site: Site) -> None:
    names = [f"page-{number}" for number in range(7)]
    await site.create(*(config_map(name, "1") for name in names))
    seen: list[str] = []
    versions = set()
    async for page in site.client.list_pages(
        CONFIG_MAPS, dict, namespace=NAMESPACE, label_selector="mirrored=yes", page_size=3
    ):
        if not seen:
            await site.delete(CONFIG_MAPS, "page-6")
        seen += [item["metadata"]["name"] for item in page.items]
        versions.add(page.resource_version)

    assert seen == names
    assert len(versions) == 1
    for name in names[:-1]:
        await site.delete(CONFIG_MAPS, name)


def config_map(name: str, value: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"mirrored": "yes"}},
        **data(value),
    }


def data(value: str) -> Object:
    return {"data": {"value": value}}


def with_value(stored: Object, value: str) -> Object:
    return {**stored, **data(value)}
