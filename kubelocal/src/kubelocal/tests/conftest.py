"""The embedded cluster is tried in virtual time, but for tests that start processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from kubelocal.tests.kubectl_binary import find_kubectl
from kubelocal.tests.virtual_time import loop_factories

# Tests assert no times: how long one example takes states something of the machine.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def kubectl() -> Path:
    """The path of a real kubectl; tests that want one are skipped where there is none."""
    found = find_kubectl()
    if found is None:
        pytest.skip("no kubectl: set $KUBECTL, or put 1.32 or newer on PATH")
    return found


def pytest_configure() -> None:
    # Else pytest-asyncio's first look for a loop makes one that nobody closes, and whichever test
    # runs when it is collected fails.
    asyncio.set_event_loop(None)


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return loop_factories(item)
