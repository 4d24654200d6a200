"""A real browser for tests: Debian's Chromium, driven by Playwright.

`python -m tests.browser` says which was found, and ends with 1 where there is none.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from playwright.async_api import Browser, async_playwright

__all__ = ["MISSING", "chromium", "running"]

MISSING = "no Chromium: neither in $CHROMIUM nor on PATH (apt-get install chromium)"
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> Path | None:
    """Return the browser's program, None where there is none."""
    if named := os.environ.get("CHROMIUM"):
        return Path(named)
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    return None if found is None else Path(found)


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Browser]:
    """Yield a browser without a window, gone afterwards."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium())
        try:
            yield browser
        finally:
            await browser.close()


if __name__ == "__main__":
    found = chromium()
    print(found or MISSING)
    sys.exit(0 if found else 1)
