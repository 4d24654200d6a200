"""`helm test`: a pod that asks the operator whether it is ready, with the image of the operator."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.chart.helm import render
from tests.scraper.servers import serving

QUOTA: dict[str, Any] = {"controllers": ["quota"]}


def test_the_pod_asks_the_service_of_the_release_over_what_it_serves(tmp_path: Path) -> None:
    assert render(tmp_path).all("Pod") == [], "nothing runs by default"
    for protected, scheme in ((False, "http"), (True, "https")):
        rendered = render(tmp_path, {**QUOTA, "metrics": {"authentication": protected}})
        pod = rendered.one("Pod")
        assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
        (container,) = pod["spec"]["containers"]
        assert container["image"] == rendered.container["image"]
        service = next(
            each["metadata"]["name"]
            for each in rendered.all("Service")
            if each["spec"]["ports"][0]["name"] == "http"
        )
        assert container["args"][1] == f"{scheme}://{service}.ops.svc:8080/readyz"
        for each in rendered.all("Service"):
            selected = each["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
            assert not selected, "the test's pod would be asked itself"
    without = {**QUOTA, "metrics": {"service": {"enabled": False}}}
    assert render(tmp_path, without).all("Pod") == []


async def test_its_program_ends_as_the_operator_is(tmp_path: Path) -> None:
    (container,) = render(tmp_path, QUOTA).one("Pod")["spec"]["containers"]
    program = container["args"][0]

    async def ends(status: int) -> tuple[int | None, str]:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(status=status, text="lists: synced")

        async with serving(answer) as url:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                program,
                url,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            said, _ = await process.communicate()
            return process.returncode, said.decode()

    assert await ends(200) == (0, "lists: synced\n")
    assert await ends(503) == (1, "")
