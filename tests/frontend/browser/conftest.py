"""A page in a real browser, on a stand-in of the server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page

from tests.browser import MISSING, chromium, running
from tests.frontend.stand_in import STATIC, StandIn, served


@dataclass(frozen=True)
class Site:
    """A server, a browser, and all that pages complained about."""

    address: str
    server: StandIn
    browser: Browser
    complaints: list[str]

    @contextlib.asynccontextmanager
    async def window(self, **options: Any) -> AsyncIterator[tuple[BrowserContext, Page]]:
        context = await self.browser.new_context(**options)
        try:
            yield context, await self.page(context)
        finally:
            await context.close()

    async def page(self, context: BrowserContext) -> Page:
        page = await context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on(
            "console",
            lambda said: self.complaints.append(said.text) if said.type == "error" else None,
        )
        return page


@pytest.fixture
def size() -> str:
    return "small"


@pytest.fixture
async def site(size: str) -> AsyncIterator[Site]:
    if chromium() is None:
        pytest.skip(MISSING)
    if not (STATIC / "index.html").exists():
        pytest.skip("built without the web page (REPRIEVE_WITHOUT_WEB)")
    server = StandIn(size)
    async with served(server) as address, running() as browser:
        yield Site(address, server, browser, [])
