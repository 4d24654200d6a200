"""Pods, groups of pods and what stands on them: gated, let go, ended, and gated again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from reprieve.controllers.quota.context import QuotaOptions
from reprieve.controllers.webhook_jobs import JobRules, job_hooks
from reprieve.controllers.webhook_tenancy import PlaneTenancy
from reprieve.engine.quota.model import LabelSelector
from reprieve.jobs.paths import first
from reprieve.jobs.table import queued_kinds
from reprieve.kube.resource import PODS
from tests.kueue.webhooks import webhooks
from tests.quota_plane.site import NAMESPACE, Object, Site, site
from tests.quota_plane.test_jobs import LOWER, base

QUEUE, CLASS = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"


@asynccontextmanager
async def gates(folder: Path, *objects: Object, **options: Any) -> AsyncIterator[Site]:
    """A cluster whose plane queues pods, with the webhooks that gate them."""
    kinds = options.pop("kinds", None) or queued_kinds(("batch/job", "pod"), {})
    async with site(folder, *objects, options=QuotaOptions(kinds=kinds), **options) as cluster:
        assert cluster.plane is not None
        plane = cluster.plane
        selector = LabelSelector()
        tenancy = PlaneTenancy(plane.watches, plane.state, plane.lookup, selector, (), plane.settle)
        hooks = job_hooks(kinds, tenancy, JobRules(selector=None))
        async with webhooks(cluster.client, hooks=hooks):
            yield cluster


def pod(name: str, priority: str = "low", cpu: str = "2", **metadata: Any) -> Object:
    labels = {QUEUE: "q", CLASS: priority, **metadata.pop("labels", {})}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels, **metadata},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }


async def phase(cluster: Site, name: str) -> str:
    try:
        found: Object = await cluster.client.get(PODS, NAMESPACE, name, dict)
    except Exception:
        return "gone"
    if first(found, "metadata.deletionTimestamp"):
        return "leaving"
    if first(found, "spec.schedulingGates"):
        return "gated"
    return str(first(found, "status.phase"))


async def test_a_pod_is_gated_let_go_and_lost_when_it_makes_way(tmp_path: Path) -> None:
    async with gates(tmp_path, *base(2, preemption=LOWER)) as cluster:
        await cluster.client.create(PODS, pod("low"), dict)

        def is_(name: str, *wanted: str) -> Any:
            async def holds() -> bool:
                return await phase(cluster, name) in wanted

            return holds

        await cluster.until("low runs", is_("low", "Running"), 60)
        await cluster.client.create(PODS, pod("wait"), dict)
        await cluster.client.create(PODS, pod("high", "high"), dict)
        await cluster.until("high runs", is_("high", "Running"), 60)
        await cluster.until("low is gone", is_("low", "gone"), 60)
        assert await phase(cluster, "wait") == "gated"
