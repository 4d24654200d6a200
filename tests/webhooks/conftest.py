"""Tests of the webhooks' server run on the loop that the operator runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the loop of `reprieve run`."""
    return {"uvloop": uvloop.new_event_loop}
