"""An embedded cluster that serves Kueue's kinds; webhooks where a test asks for them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kubelocal.cluster import EmbeddedCluster
from kubelocal.tests.server.builders import Client
from reprieve.api.crds import kueue_crds

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as running:
        yield running


@pytest.fixture
async def client(cluster: EmbeddedCluster) -> AsyncIterator[Client]:
    """The definitions are there, and nobody answers for the webhooks."""
    async with Client(cluster) as opened:
        for crd in kueue_crds():
            await opened.create(DEFINITIONS, crd)
        yield opened
