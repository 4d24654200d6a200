"""Takes the picture of the README: `python -m tests.frontend.picture` writes docs/images/now.png.

A real operator on twelve nodes: services and a large gang, sweeps of low priority of which some
made way and one just does, and a gang that waits.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from pathlib import Path
from typing import Final

from playwright.async_api import expect

from tests.browser import running
from tests.frontend.browser.test_reprieve_up import gang, playground

IMAGE: Final = Path(__file__).parents[2] / "docs" / "images" / "now.png"
_CLASSES: Final = "".join(
    f"""---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {{name: {name}}}
value: {value}
"""
    for name, value in (("low", 100), ("normal", 500), ("high", 1000))
)
_NAMESPACES: Final = "".join(
    f"---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n"
    for name in ("vision", "speech", "language", "research")
)


def deployment(name: str, namespace: str, priority: str, replicas: int, gpus: int) -> str:
    """Return a Deployment."""
    return f"""---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      priorityClassName: {priority}
      terminationGracePeriodSeconds: 20
      containers:
      - name: main
        image: registry.example/main:1
        resources: {{limits: {{amd.com/gpu: {gpus}}}}}
"""


async def _take() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with playground(Path(folder), nodes=12, gpus=8) as cluster, running() as browser:
            await cluster.apply(_NAMESPACES + _CLASSES)
            await cluster.apply(gang("llm-70b", "language", "high", 4, 8))
            await cluster.apply(
                deployment("recognizer", "speech", "normal", 6, 2)
                + deployment("detector", "vision", "normal", 3, 4)
                + deployment("sweep-17", "vision", "low", 3, 8)
            )
            await asyncio.sleep(12)
            await cluster.apply(gang("evaluate", "speech", "low", 2, 8))
            await cluster.apply(gang("batch", "vision", "low", 1, 4))
            await cluster.apply(gang("pretrain", "research", "high", 3, 8))
            page = await browser.new_page(viewport={"width": 1280, "height": 850})
            expect.set_options(timeout=60_000)
            await page.goto(cluster.address)
            main = page.get_by_role("main")
            await expect(main).to_contain_text(re.compile(r"evaluate.*Full", re.DOTALL))
            await main.get_by_text("by namespace").click()
            await asyncio.sleep(6)
            # A sweep more makes way while the picture is taken.
            await cluster.apply(gang("tune", "language", "high", 1, 8))
            await expect(main).to_contain_text(re.compile(r"leaving\s*[1-9]"))
            IMAGE.parent.mkdir(exist_ok=True)
            await page.screenshot(path=IMAGE)


if __name__ == "__main__":
    asyncio.run(_take())
