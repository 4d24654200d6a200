"""A site for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.idle.site import Site, open_site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """One node with 8 GPUs, no operator yet."""
    async with open_site(tmp_path) as opened:
        yield opened
