"""Takes the picture of the README from the demo: `python -m tests.frontend.picture`.

It writes docs/images/now.png and, beside it, what stands on the page in the picture: its pages,
sections and columns. `browser/test_picture.py` compares that with the page as it is, so that a
picture of a page that has changed since is found.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Page

from tests.browser import running

IMAGE: Final = Path(__file__).parents[2] / "docs" / "images" / "now.png"
STRUCTURE: Final = IMAGE.with_suffix(".json")
_OPEN: Final = "Open this page: "
_DEMO: Final = ("reprieve", "up", "--speed", "3", "--seed", "1", "--no-open", "--headless")
#: Something leaves, and somebody waits for it.
_WORTH_IT: Final = """() => /leaving\\s*[1-9]/.test(document.querySelector("main").textContent)
  && [...document.querySelectorAll("section[aria-label='Who waits'] tbody tr")].length > 2"""
_READ: Final = """() => {
  const words = (element) => element.textContent.trim().replace(/\\s+/g, " ");
  const own = (element) => [...element.childNodes].filter((each) => each.nodeType === 3)
    .map((each) => each.textContent.trim()).join(" ").trim() || words(element);
  const sections = [...document.querySelectorAll("main section[aria-label]")];
  return {
    pages: [...document.querySelectorAll("nav a")].map(words),
    sections: sections.map((each) => each.getAttribute("aria-label")),
    columns: Object.fromEntries(sections.map((each) => [
      each.getAttribute("aria-label"),
      [...each.querySelectorAll("thead th")]
        .map((head) => own(head.querySelector("button") ?? head)),
    ])),
  };
}"""


async def structure_of(page: Page) -> dict[str, Any]:
    """Return the pages, sections and columns that stand on a page."""
    await page.wait_for_selector("section[aria-label='Over time'] thead th")
    found: dict[str, Any] = await page.evaluate(_READ)
    return found


async def _take() -> None:
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *_DEMO), stdout=asyncio.subprocess.PIPE
    )
    assert demo.stdout is not None
    try:
        address = ""
        async for line in demo.stdout:
            if _OPEN in (said := line.decode()):
                address = said.partition(_OPEN)[2].strip()
                break
        async with running() as browser:
            page = await browser.new_page(viewport={"width": 1280, "height": 1250})
            await page.goto(address)
            await page.get_by_role("button", name="Not now").click()
            await asyncio.sleep(60)  # the lines over time are to show something
            await page.wait_for_function(_WORTH_IT, timeout=180_000)
            IMAGE.parent.mkdir(exist_ok=True)
            await page.screenshot(path=IMAGE)
            found = json.dumps(await structure_of(page), indent=2)
            STRUCTURE.write_text(found + "\n", encoding="utf-8")
    finally:
        demo.terminate()
        await demo.communicate()


if __name__ == "__main__":
    asyncio.run(_take())
