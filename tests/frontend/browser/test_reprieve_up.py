"""What a newcomer does first: `reprieve up`, open the page, and see work being preempted.

A real browser, a real operator and kubectl. Every number on the way is compared with the record.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from kubelocal.tests.kubectl_binary import find_kubectl
from reprieve.scenarios import with_parent
from tests.browser import MISSING, chromium, running
from tests.frontend.stand_in import STATIC

pytestmark = pytest.mark.real_time
_READY_S = 120
_MANIFESTS = """
apiVersion: v1
kind: Namespace
metadata: {name: team-red}
---
apiVersion: v1
kind: Namespace
metadata: {name: team-blue}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: low}
value: 100
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
"""


def gang(name: str, namespace: str, priority: str, minimum: int = 2, gpus: int = 4) -> str:
    """Return a pod group and its pods."""
    pods = "".join(
        f"""---
apiVersion: v1
kind: Pod
metadata: {{name: {name}-{index}, namespace: {namespace}}}
spec:
  schedulingGroup: {{podGroupName: {name}}}
  priorityClassName: {priority}
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: registry.example/main:1
    resources: {{limits: {{amd.com/gpu: {gpus}}}}}
"""
        for index in range(minimum)
    )
    return f"""
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  priorityClassName: {priority}
  disruptionMode: {{all: {{}}}}
  schedulingPolicy: {{gang: {{minCount: {minimum}}}}}
{pods}"""


@dataclass(frozen=True)
class Playground:
    """An empty cluster, and the address of its page."""

    address: str
    kubectl: tuple[str, ...]

    async def apply(self, manifests: str) -> None:
        await self._run("apply", "-f", "-", given=manifests)

    async def records(self) -> list[dict[str, Any]]:
        said = await self._run("get", "preemptions.reprieve.dev", "-A", "-o", "json")
        return list(json.loads(said)["items"])

    async def _run(self, *arguments: str, given: str = "") -> str:
        process = await asyncio.create_subprocess_exec(
            *self.kubectl,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        told, wrong = await process.communicate(given.encode())
        assert process.returncode == 0, wrong.decode()
        return told.decode()


@asynccontextmanager
async def playground(folder: Path, nodes: int = 2, gpus: int = 4) -> AsyncIterator[Playground]:
    """Yield an empty cluster with its page; gone afterwards."""
    binary = find_kubectl()
    if binary is None:
        pytest.skip("no kubectl: set $KUBECTL, or put one on PATH")
    kubeconfig = folder / "kubeconfig"
    process = await asyncio.create_subprocess_exec(
        *with_parent.command("reprieve", "up"),
        *("--headless", "--nodes", str(nodes), "--gpus", str(gpus)),
        *("--kubeconfig-out", str(kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "HOME": str(folder)},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_READY_S):
            first = (await process.stdout.readline()).decode()
            second = (await process.stdout.readline()).decode().strip()
        assert first.startswith("export KUBECONFIG=")
        opened = re.fullmatch(r"Open this page: (http://127\.0\.0\.1:\d+/\S*)", second)
        assert opened is not None, second
        drain = asyncio.create_task(process.stdout.read())
        yield Playground(opened[1], (str(binary), "--kubeconfig", str(kubeconfig)))
    finally:
        process.send_signal(signal.SIGINT)
        await process.wait()
    await drain


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    if chromium() is None:
        pytest.skip(MISSING)
    if not (STATIC / "index.html").exists():
        pytest.skip("built without the web page (REPRIEVE_WITHOUT_WEB)")
    async with running() as browser:
        found = await browser.new_page(viewport={"width": 1400, "height": 900})
        found.set_default_timeout(60_000)
        expect.set_options(timeout=60_000)
        yield found


async def test_work_makes_way_in_a_browser_and_every_number_is_the_records(
    page: Page, tmp_path: Path
) -> None:
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    async with playground(tmp_path) as cluster:
        await cluster.apply(_MANIFESTS)
        await cluster.apply(gang("sweep", "team-red", "low"))
        await page.goto(cluster.address)
        main = page.get_by_role("main")
        await expect(main).to_contain_text("team-red/sweep")
        await expect(main).to_contain_text(re.compile(r"working\s*8"))

        # Who cannot start is told why.
        await cluster.apply(gang("second", "team-red", "low"))
        await page.get_by_role("link", name="Waiting", exact=True).click()
        row = main.get_by_role("row").filter(has_text="team-red/second").first
        await expect(row).to_contain_text(re.compile(r"Full|NoVictimsSuffice|VictimsProtected"))

        # Room is made for work of a higher priority.
        await cluster.apply(gang("train", "team-blue", "high"))
        await page.get_by_role("link", name="Preemptions", exact=True).click()
        row = main.get_by_role("row").filter(has_text="Completed").first
        await expect(row).to_contain_text("team-blue/train")
        [record] = await cluster.records()
        victims = record["spec"]["victims"]
        cells = await row.get_by_role("gridcell").all_inner_texts()
        gpus = sum(each["amounts"]["amd.com/gpu"] for each in victims)
        assert (len(victims), gpus) == (2, 8)
        assert {"1", "2", "8"} <= set(cells), cells

        # The decision, with its arithmetic, its victims and who was spared.
        await row.get_by_role("link").first.click()
        await expect(main).to_contain_text(record["metadata"]["name"])
        await expect(main).to_contain_text("needed 8")
        await expect(main).to_contain_text("irreducible")
        await expect(main).to_contain_text(re.compile("Decided again.*the same", re.DOTALL))

        # The victim's story: when it ran, for whom it went, what would have spared it.
        await main.get_by_role("link", name=re.compile("sweep")).first.click()
        await expect(main).to_contain_text(re.compile(r"team-red/\s*sweep"))
        await expect(main).to_contain_text("lower priority")
        await expect(main).to_contain_text(re.compile("spared", re.IGNORECASE))
        await expect(main).to_contain_text("team-blue/train")

        # The same way by keyboard alone.
        await page.keyboard.press("g")
        await page.keyboard.press("p")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Preemptions")
        await tab_to(page, "[role=grid]")
        await page.keyboard.press("Enter")
        await expect(main).to_contain_text("needed 8")
        await tab_to(page, "a[href*=sweep]")
        await page.keyboard.press("Enter")
        await expect(main).to_contain_text(re.compile("spared", re.IGNORECASE))
        await expect(main).to_contain_text("team-blue/train")
        assert complaints == []


async def tab_to(page: Page, selector: str) -> None:
    """Press Tab until what has the focus, or holds it, is what is looked for."""
    await expect(page.locator(selector).first).to_be_visible()
    for _ in range(60):
        if await page.evaluate(f"document.activeElement?.closest({selector!r}) != null"):
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"no key leads to {selector}")
