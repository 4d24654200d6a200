"""An embedded cluster with Kueue's kinds and our webhooks, as an operator sets them up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kubelocal.cluster import EmbeddedCluster
from kubeworld.units.clock import Clock, SystemClock
from reprieve.api.crds import kueue_crds
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS
from reprieve.planes.quota.webhooks.registration import Place
from reprieve.planes.quota.webhooks.reviews import Hook, kueue_hooks
from reprieve.planes.quota.webhooks.server import Standing, WebhookOptions, run_webhooks

OPTIONS = WebhookOptions(
    Place(namespace="default", url="https://127.0.0.1:0"), port=0, host="127.0.0.1"
)


@dataclass
class Site:
    cluster: EmbeddedCluster
    client: Client
    kubeconfig: Path


@asynccontextmanager
async def site(folder: Path, crds: bool = True) -> AsyncIterator[Site]:
    """A cluster with the definitions, and a client for it."""
    async with EmbeddedCluster() as cluster:
        kubeconfig = folder / "config"
        cluster.write_kubeconfig(kubeconfig)
        client = connect(await load_connection(str(kubeconfig)), SystemClock())
        try:
            for crd in kueue_crds() if crds else ():
                await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd, dict)
            yield Site(cluster, client, kubeconfig)
        finally:
            await client.close()


@asynccontextmanager
async def webhooks(
    client: Client,
    options: WebhookOptions = OPTIONS,
    hooks: Sequence[Hook] | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[None]:
    """Webhooks that are served and registered until the end of the block."""
    ready = asyncio.Event()

    def told(standing: Standing, why: str) -> None:
        if standing is Standing.REGISTERED:
            ready.set()

    served = hooks or kueue_hooks()
    task = asyncio.create_task(
        run_webhooks(client, options, served, clock or SystemClock(), reported=told)
    )
    waiting = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait([task, waiting], timeout=30, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        assert ready.is_set()
        yield
    finally:
        for each in (task, waiting):
            each.cancel()
        await asyncio.gather(task, waiting, return_exceptions=True)
