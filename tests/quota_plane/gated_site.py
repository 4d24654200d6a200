"""A quota plane with the webhooks that suspend jobs, gate pods and warn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from reprieve.engine.quota.model import LabelSelector
from reprieve.jobs.model import JobKind
from reprieve.planes.quota.context import QuotaOptions
from reprieve.planes.quota.webhooks.jobs import JobRules, job_hooks
from reprieve.planes.quota.webhooks.tenancy import PlaneTenancy
from tests.kueue.webhooks import webhooks
from tests.quota_plane.site import Object, Site, site

QUEUE, CLASS = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"


@asynccontextmanager
async def gated_site(
    folder: Path,
    *objects: Object,
    kinds: tuple[JobKind, ...],
    prepare: Callable[[Site], Awaitable[None]] | None = None,
    options: dict[str, Any] | None = None,
    **rest: Any,
) -> AsyncIterator[Site]:
    """Start a cluster, `prepare` it, then the plane for these kinds, and the webhooks."""
    async with site(folder, *objects, start=False, **rest) as cluster:
        if prepare is not None:
            await prepare(cluster)
        plane = await cluster.start(QuotaOptions(kinds=kinds, **(options or {})))
        external = plane.context.options.external
        tenancy = PlaneTenancy(
            plane.watches, plane.state, plane.lookup, LabelSelector(), external, plane.settle
        )
        hooks = job_hooks(kinds, tenancy, JobRules())
        async with webhooks(cluster.client, hooks=hooks):
            await cluster.until("the plane has seen all", _ready(cluster))
            yield cluster


def _ready(cluster: Site) -> Callable[[], Awaitable[object]]:
    async def holds() -> bool:
        assert cluster.plane is not None
        return cluster.plane.ready

    return holds
