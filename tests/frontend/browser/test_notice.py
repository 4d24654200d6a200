"""My work counts down to the deadline of work that may save, and says who has answered."""

from __future__ import annotations

from tests.frontend.browser.conftest import Site

_SECTION = "section[aria-label='What may save before it is evicted']"


async def test_a_deadline_is_counted_down_beside_the_pods_that_have_saved(site: Site) -> None:
    async with site.window() as (_, page):
        await page.goto(f"{site.address}/mine")
        row = page.locator(f"{_SECTION} tbody tr")
        before = await row.locator("time").inner_text()
        assert before.startswith("in 4 m ")
        assert "5 of 8" in await row.inner_text()
        await page.wait_for_function(
            f"""(before) => document.querySelector("{_SECTION} tbody time").innerText !== before""",
            arg=before,
        )
    assert site.complaints == []
