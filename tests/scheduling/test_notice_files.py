"""Notice by a file: an annotation that a downwardAPI volume shows, for pods that ask for it.

Two nodes of four cpus are filled by a gang of four pods of low priority that goes as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import parse_instant
from reprieve.kube.resource import PODS
from reprieve_notice.file import FileSource
from tests.scheduling.site import NAMESPACE, Site, group, node, pod, site

_LOWS = [f"low-{number}" for number in range(4)]
_TOLD = "reprieve.dev/notice-told"


@asynccontextmanager
async def training(folder: Path, *flags: str) -> AsyncIterator[Site]:
    """The gang runs; all pods but the last ask for a file."""
    config = folder / "config.yaml"
    config.write_text("scheduling: {notice: {max: 10m}}\n")
    async with site([node("node-0"), node("node-1")], folder / "cluster") as cluster:
        await cluster.classes()
        await cluster.create(group("low", min_count=4, mode="all", priority="low"))
        for name in _LOWS:
            each = pod(name, 2, group="low", priority="low")
            each["metadata"]["annotations"] = {"reprieve.dev/notice": "1m"}
            if name != _LOWS[-1]:
                each["metadata"]["annotations"]["reprieve.dev/notice-file"] = "true"
            await cluster.create(each)
        await cluster.operator("--config", str(config), *flags)
        await cluster.until_placed(set(_LOWS))
        await cluster.run()
        yield cluster


async def files(cluster: Site, folder: Path) -> dict[str, FileSource]:
    """Return what the pods that were told read, as their kubelets show it."""
    found = {}
    clock = cluster.embedded.cluster.api.clock
    for name, each in (await cluster.pods()).items():
        text = (each["metadata"].get("annotations") or {}).get(_TOLD)
        if text is not None:
            path = folder / name
            path.write_text(text)
            found[name] = FileSource(
                path, monotonic=lambda: 0.0, wall=lambda: clock.wall() / SECOND
            )
    return found


async def until_told(cluster: Site, folder: Path) -> dict[str, FileSource]:
    async def told() -> bool:
        return len(await files(cluster, folder)) == 3

    await cluster.until("three pods are told", told)
    return await files(cluster, folder)


async def test_who_asks_for_a_file_is_told_there_and_given_the_time_that_it_takes(
    tmp_path: Path,
) -> None:
    async with training(tmp_path, "--notice-files") as cluster:
        await cluster.gang()
        told = await until_told(cluster, tmp_path)

        assert set(told) == set(_LOWS[:3])
        (intent,) = await cluster.intents()
        victims = intent["spec"]["victims"]
        (deadline,) = {parse_instant(each["notice"]["deadline"]) for each in victims}
        begun = parse_instant(intent["spec"]["decidedAt"])
        assert 149 * SECOND <= deadline - begun <= 151 * SECOND, "a minute, and 90 s for the file"
        notices = [each.ask() for each in told.values()]
        assert len({each.id for each in notices if each is not None}) == 1
        now = cluster.embedded.cluster.api.clock.wall()
        left = {round(each.due) for each in notices if each is not None}
        assert left == {round((deadline - now) / SECOND)}


async def test_a_unit_that_is_told_by_files_is_released_when_its_pods_have_ended(
    tmp_path: Path,
) -> None:
    async with training(tmp_path, "--notice-files") as cluster:
        high = await cluster.gang()
        await until_told(cluster, tmp_path)
        (intent,) = await cluster.intents()
        for name in _LOWS:
            assert not await cluster.victims()
            ended: Any = {"status": {"phase": "Succeeded"}}
            await cluster.client.patch(PODS, NAMESPACE, name, ended, dict, subresource="status")

        await cluster.until_placed(high)
        now = cluster.embedded.cluster.api.clock.wall()
        assert now < parse_instant(intent["spec"]["victims"][0]["notice"]["deadline"])


async def test_who_stays_reads_that_the_notice_is_withdrawn(tmp_path: Path) -> None:
    async with training(tmp_path, "--notice-files") as cluster:
        names = await cluster.gang()
        told = await until_told(cluster, tmp_path)
        assert None not in [each.ask() for each in told.values()]
        for name in names:
            await cluster.client.delete(PODS, NAMESPACE, name)

        async def withdrawn() -> bool:
            return all(each.ask() is None for each in (await files(cluster, tmp_path)).values())

        await cluster.until("the files say so", withdrawn)
        assert not await cluster.victims()


async def test_without_the_option_no_pod_is_written(tmp_path: Path) -> None:
    async with training(tmp_path) as cluster:
        await cluster.gang()
        await asyncio.sleep(140)
        assert len(await cluster.until_victims(4)) == 4
        assert await files(cluster, tmp_path) == {}
