"""Everything by keyboard alone."""

from __future__ import annotations

from tests.frontend.browser.conftest import Site


async def test_pages_are_reached_searched_and_opened_by_keys(site: Site) -> None:
    async with site.window() as (_, page):
        keys = page.keyboard
        await page.goto(site.address + "/")
        await page.wait_for_selector("[role=treegrid]")
        await keys.press("g")
        await keys.press("w")
        await page.wait_for_selector("h1:has-text('Waiting')")
        await keys.press("/")
        await keys.type("next-3")
        await page.wait_for_url("**/waiting?search=next-3")
        await keys.press("Escape")
        grid = page.locator("section[aria-label='Who waits'] table")
        await grid.locator("tbody tr").first.wait_for()
        assert await grid.locator("tbody tr").count() == 1
        await grid.focus()
        await keys.press("Enter")
        await page.wait_for_url("**/workload/job/*/next-3")


async def test_a_displacement_is_a_key_away_from_its_decision(site: Site) -> None:
    async with site.window() as (_, page):
        await page.goto(site.address + "/workload/job/team-b/sweep-17")
        await page.focus(".life a")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("h1:has-text('Preemption quota-7c21')")
        said = await page.inner_text("main")
        assert "needed 64 − free 24 = 40" in said


async def test_the_first_tab_skips_to_the_content_and_the_keys_are_listed(site: Site) -> None:
    async with site.window() as (_, page):
        await page.goto(site.address + "/")
        await page.wait_for_selector("[role=treegrid]")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.textContent") == "Skip to the content"
        await page.keyboard.press("Enter")
        assert await page.evaluate("document.activeElement.id") == "main"
        await page.keyboard.press("?")
        await page.wait_for_selector("dialog[open] h2:has-text('Keys')")
        await page.keyboard.press("Escape")
        await page.wait_for_selector("dialog:not([open])", state="attached")


async def test_the_map_is_walked_by_arrows_and_stands_in_a_table_too(site: Site) -> None:
    async with site.window() as (_, page):
        await page.goto(site.address + "/")
        await page.focus("canvas")
        await page.keyboard.press("ArrowRight")
        await page.keyboard.press("ArrowRight")
        said = await page.inner_text(".node-said")
        names = sorted(site.server.made("now")[1]["nodes"][1].values(), key=lambda row: row[1])
        assert said.startswith(names[2][0])
        await page.get_by_role("group", name="Nodes").get_by_text("as a table").press("Enter")
        await page.wait_for_selector("section[aria-label=Nodes] table")
        assert await page.locator("section[aria-label=Nodes] tbody tr").count() == 8


async def test_a_theme_is_kept_and_single_keys_can_be_turned_off(site: Site) -> None:
    async with site.window(color_scheme="light") as (_, page):
        await page.goto(site.address + "/")
        await page.wait_for_selector("[role=treegrid]")
        await page.keyboard.press("t")
        await page.reload()
        await page.wait_for_selector("html[data-theme=dark]")
        await page.keyboard.press("?")
        await page.get_by_label("Single keys do something").press("Space")
        await page.keyboard.press("Escape")
        await page.keyboard.press("t")
        assert await page.get_attribute("html", "data-theme") == "dark"


async def test_a_filter_keeps_the_field_and_stands_in_the_address(site: Site) -> None:
    async with site.window() as (_, page):
        await page.goto(site.address + "/")
        await page.wait_for_selector("[role=treegrid]")
        field = page.get_by_label("Namespace to show")
        await field.fill("team-a")
        await field.press("Enter")
        await page.wait_for_url("**/?ns=team-a")
        await page.wait_for_selector("[role=treegrid]")
        assert await page.evaluate("document.activeElement.placeholder") == "namespace"
        await page.get_by_role("link", name="Waiting").press("Enter")
        await page.wait_for_url("**/waiting?ns=team-a")
        await page.get_by_role("button", name="show other namespaces than team-a again").click()
        await page.wait_for_url("**/waiting")
