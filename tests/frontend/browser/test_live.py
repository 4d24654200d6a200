"""What changes on the server changes in the page, through whatever happens to the connection."""

from __future__ import annotations

from playwright.async_api import Page

from tests.frontend.browser.conftest import Site

TICK = "dl.facts div:has(dt:text-is('Tick')) dd:text-is('{}')"


async def tick(page: Page, number: int) -> None:
    await page.wait_for_selector(TICK.format(number))


async def test_a_change_is_shown_and_the_view_stays_where_it_was(site: Site) -> None:
    async with site.window() as (_, page):
        await page.goto(site.address + "/?by=table&sort=holders:unit")
        await tick(page, 0)
        await page.focus("table[role=grid]")
        for _ in range(3):
            await page.keyboard.press("j")
        chosen = await page.inner_text("tr[aria-selected=true] td:first-child")
        for number in (1, 2, 3):
            await site.server.advance()
            await tick(page, number)
        assert await page.inner_text("tr[aria-selected=true] td:first-child") == chosen
        amount = site.server.made("now")[1]["holders"][1]["h0"][3]
        row = page.locator("tr", has=page.locator("text=train-0")).first
        assert await row.locator("td").nth(1).inner_text() == str(amount)
    assert site.server.opened == [""]


async def test_two_windows_of_a_page_read_one_stream_and_either_may_close(site: Site) -> None:
    async with site.window() as (context, first):
        await first.goto(site.address + "/")
        await tick(first, 0)
        second = await site.page(context)
        await second.goto(site.address + "/")
        await tick(second, 0)
        await site.server.advance()
        await tick(first, 1)
        await tick(second, 1)
        assert site.server.opened == [""]
        await first.close()
        # It reads on itself, from where it was, once the browser has let go of the other.
        number = 1
        while len(site.server.opened) < 2:
            number += 1
            await site.server.advance()
            await tick(second, number)
        assert site.server.opened[1:] in ([f"e1.{number - 1}"], [f"e1.{number}"])


async def test_another_epoch_is_another_snapshot(site: Site) -> None:
    async with site.window() as (_, page):
        await page.goto(site.address + "/")
        await tick(page, 0)
        site.server.epoch = "e2"
        site.server.tick = 6
        await site.server.advance()
        await tick(page, 7)
        await site.server.advance()
        await tick(page, 8)


async def test_a_right_that_ends_wipes_the_page(site: Site) -> None:
    async with site.window() as (context, page):
        await page.goto(site.address + "/")
        await tick(page, 0)
        other = await site.page(context)
        await other.goto(site.address + "/")
        await tick(other, 0)
        await site.server.end()
        for each in (page, other):
            await each.wait_for_selector("h1:has-text('You may no longer see this')")
            assert "train-" not in await each.content()


async def test_what_is_not_there_is_said_to_be_missing_or_hidden(site: Site) -> None:
    async with site.window() as (_, page):
        await page.goto(site.address + "/workload/job/team-a/missing")
        await page.wait_for_selector("h1:has-text('There is no workload')")


async def test_a_session_that_is_over_wipes_the_page_and_asks_for_another_login(site: Site) -> None:
    async with site.window() as (_, page):
        await page.goto(site.address + "/")
        await tick(page, 0)
        site.server.session = None
        await site.server.end()
        await page.wait_for_selector("#token")
        assert "train-" not in await page.content()
