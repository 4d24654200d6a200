"""`python -m bench.web_paint [--quick]`: the page Now in a real browser, by its clocks.

The server of `bench.web`: 5,000 nodes, 50,000 pods. `paint`: first contentful paint, and when bar,
holders, waiters and every node are on the page, from the navigation's start; loopback, nothing
cached. `pixel`: from a change taken over by the server's mirror to its row in the document, while
100 other changes come each second. `scroll`: tasks above 50 ms while a table of 45,000 holders is
scrolled through, by the browser's long task timing.

Wants Chromium (`apt-get install chromium`); without one it says so and ends. `--quick` takes small
inputs and asserts results, never times.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from playwright.async_api import Page, async_playwright

from bench.measuring import print_line
from bench.web import served

__all__ = ["main"]

_COMPLETE: Final = """nodes => {
  const text = document.querySelector("main")?.innerText ?? "";
  return text.includes("Nodes\\n" + nodes) || text.includes("Nodes " + nodes)
    ? performance.now() : 0;
}"""
_WATCH_LONG_TASKS: Final = """() => {
  window.longTasks = [];
  new PerformanceObserver(list => {
    for (const each of list.getEntries()) window.longTasks.push(each.duration);
  }).observe({entryTypes: ["longtask"]});
}"""
_WATCH_MARKS: Final = """() => {
  window.marks = {};
  const look = () => {
    for (const [mark, at] of document.querySelector("main").innerText.matchAll(/mark-(\\d+)/g))
      window.marks[mark] ??= Date.now() - Number(at);
  };
  new MutationObserver(look).observe(
    document.body, {subtree: true, childList: true, characterData: true});
}"""


def main(arguments: list[str] | None = None) -> int:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.web_paint", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small inputs")
    chosen = parser.parse_args(arguments)
    browser = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if browser is None:
        print("no Chromium: neither in $CHROMIUM nor on PATH (apt-get install chromium)")
        return 0
    asyncio.run(_measure(browser, *((50, 3) if chosen.quick else (5_000, 40))))
    return 0


async def _measure(browser: str, nodes: int, marks: int) -> None:
    async with served(nodes) as (process, address), _page(browser) as page:
        assert process.stdin is not None
        await _paint(page, address, nodes)
        # What is looked for is in sight, however many there are.
        await page.goto(f"{address}/?search=mark-")
        await page.get_by_text("as a table").first.click()
        process.stdin.write(b"changes\n")
        await _pixel(page, process, marks)
    async with served(nodes, pods_of_job=1) as (process, address), _page(browser) as page:
        await page.goto(f"{address}/?token=bench")
        await page.get_by_text("as a table").first.click()
        await _scroll(page)


@asynccontextmanager
async def _page(browser: str) -> AsyncIterator[Page]:
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = await running.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(120_000)
        yield page
        await running.close()


async def _paint(page: Page, address: str, nodes: int) -> None:
    # The first visit turns the token into a cookie; the second is the one that is measured.
    await page.goto(f"{address}/?token=bench")
    client = await page.context.new_cdp_session(page)
    await client.send("Network.enable")
    await client.send("Network.setCacheDisabled", {"cacheDisabled": True})
    await page.goto("about:blank")
    await page.goto(f"{address}/", wait_until="commit")
    complete = await page.wait_for_function(_COMPLETE, arg=f"{nodes:,}", polling=10)
    # The browser notes a paint some time after it happened.
    first = await page.wait_for_function(
        "performance.getEntriesByName('first-contentful-paint')[0]?.startTime", polling=10
    )
    print_line(
        "web",
        "paint",
        nodes=nodes,
        first_paint_ms=round(await first.json_value()),
        complete_ms=round(await complete.json_value()),
    )


async def _pixel(page: Page, process: asyncio.subprocess.Process, marks: int) -> None:
    assert process.stdin is not None
    await page.evaluate(_WATCH_MARKS)
    for _ in range(marks):
        process.stdin.write(b"mark\n")
        await asyncio.sleep(1.0)
    await asyncio.sleep(3.0)
    seen: dict[str, Any] = await page.evaluate("window.marks")
    took = sorted(seen.values())
    assert took, "no change was seen"
    print_line(
        "web",
        "pixel",
        marks=marks,
        seen=len(took),
        p50_ms=took[len(took) // 2],
        p95_ms=took[int(len(took) * 0.95)],
        longest_ms=took[-1],
    )


async def _scroll(page: Page) -> None:
    grid = page.get_by_role("grid").first
    await grid.get_by_role("row").nth(2).wait_for()
    rows = int(await grid.get_attribute("aria-rowcount") or 0)
    await page.evaluate(_WATCH_LONG_TASKS)
    box = await grid.bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + 50, box["y"] + min(150, box["height"] / 2))
    for _ in range(100):
        await page.mouse.wheel(0, 12_000)
        await asyncio.sleep(0.05)
    tasks: list[float] = await page.evaluate("window.longTasks")
    print_line(
        "web",
        "scroll",
        rows=rows,
        tasks_above_50_ms=len(tasks),
        longest_ms=round(max(tasks, default=0)),
    )


if __name__ == "__main__":
    sys.exit(main())
