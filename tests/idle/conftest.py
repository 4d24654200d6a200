"""A site for each test, in virtual time but where a test needs processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from tests.idle.site import Site, open_site
from tests.virtual_time import loop_factories


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """One node with 8 GPUs, no operator yet."""
    async with open_site(tmp_path) as opened:
        yield opened


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return loop_factories(item)
