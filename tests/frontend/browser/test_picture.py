"""The picture of the README shows the page as it is: the same pages, sections and columns."""

from __future__ import annotations

import json

from tests.frontend.browser.conftest import Site
from tests.frontend.picture import IMAGE, STRUCTURE, structure_of


async def test_the_picture_of_the_readme_has_the_structure_of_the_page(site: Site) -> None:
    async with site.window(viewport={"width": 1280, "height": 1250}) as (_, page):
        await page.goto(site.address + "/")
        found = await structure_of(page)
    assert found == json.loads(STRUCTURE.read_text(encoding="utf-8")), (
        "take the picture again: python -m tests.frontend.picture"
    )
    assert IMAGE.stat().st_size > 0
