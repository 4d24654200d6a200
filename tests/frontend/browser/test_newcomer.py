"""Somebody who has never seen the page finds by clicks who holds, who waits and why, and for whom.

Nothing is typed: the answers are reached from the first page by what stands there to be clicked.
"""

from __future__ import annotations

from tests.frontend.browser.conftest import Site


async def test_the_tour_shows_in_three_clicks_who_holds_who_waits_and_who_was_preempted(
    site: Site,
) -> None:
    async with site.window() as (context, page):
        await page.goto(site.address + "/")
        await page.click("aside.tour button:has-text('Begin')")
        await page.wait_for_selector("aside.tour:has-text('1 of 3: Who holds GPUs')")
        await page.wait_for_selector("section.toured[aria-label='Who holds']")
        await page.click("aside.tour button:has-text('Next: Who waits, and why')")
        await page.wait_for_selector("h1:has-text('Waiting')")
        await page.wait_for_selector("section.toured[aria-label='Who waits']")
        await page.click("aside.tour button:has-text('Next: Who was preempted')")
        await page.wait_for_selector("section.toured[aria-label='Decisions']")
        await page.click("aside.tour button:has-text('Done')")
        await page.wait_for_selector("aside.tour", state="detached")

        again = await site.page(context)
        await again.goto(site.address + "/")
        await again.wait_for_selector("section[aria-label='Who holds']")
        assert await again.query_selector("aside.tour") is None


async def test_a_tour_that_was_not_wanted_never_comes_again(site: Site) -> None:
    async with site.window() as (_, page):
        await page.goto(site.address + "/")
        await page.click("aside.tour button:has-text('Not now')")
        await page.wait_for_selector("aside.tour", state="detached")
        await page.reload()
        await page.wait_for_selector("section[aria-label='Who holds']")
        assert await page.query_selector("aside.tour") is None


async def test_a_newcomer_answers_who_waits_why_and_what_was_preempted_by_clicks(
    site: Site,
) -> None:
    async with site.window() as (_, page):
        await page.goto(site.address + "/")
        waits = page.locator("section[aria-label='Who waits']")
        await waits.locator("tbody tr").first.wait_for()
        await waits.get_by_role("link", name="What is missing").click()
        first = page.locator("section[aria-label='Who waits'] tbody tr").first
        assert "64 GPUs are wanted, 24 are free" in await first.inner_text()
        assert "ask for fewer GPUs, or wait" in await first.inner_text()

        await page.get_by_role("navigation").get_by_role("link", name="Preemptions").click()
        await page.locator(
            "section[aria-label='Decisions'] tbody a[href^='/preemption/']"
        ).first.click()
        await page.wait_for_selector("section[aria-label='Preempted']")
        assert "sweep-17" in await page.inner_text("main")
        await page.locator("main a[href^='/workload/']").first.click()
        await page.wait_for_selector("section[aria-label='Displacements']")
        current = page.locator("nav a[aria-current]")
        assert await current.count() == 0

        await page.get_by_role("button", name="Events").click()
        await page.wait_for_selector(".object pre")
        assert "events of" in await page.inner_text(".object pre")
        await page.get_by_label("Of which object").select_option(index=1)
        await page.get_by_role("button", name="Logs").click()
        await page.wait_for_selector(".object pre:has-text('logs of')")


async def test_in_a_narrow_window_the_reason_stands_in_sight(site: Site) -> None:
    async with site.window(viewport={"width": 390, "height": 844}) as (_, page):
        for path in ("/", "/waiting", "/mine"):
            await page.goto(site.address + path)
            cell = page.locator("td.c-reason").first
            await cell.wait_for()
            box = await cell.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
