"""A cluster for each test, in memory and on a free port, with a small HTTP client."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kubelocal.cluster import EmbeddedCluster
from kubelocal.tests.server.builders import Client


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as running:
        yield running


@pytest.fixture
async def client(cluster: EmbeddedCluster) -> AsyncIterator[Client]:
    async with Client(cluster) as open_client:
        yield open_client
