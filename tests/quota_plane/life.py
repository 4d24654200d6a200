"""What turns in the lives of queued jobs and pods have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kubeworld.objects.paths import first
from reprieve.kube.errors import NotFound
from reprieve.kube.resource import Resource
from tests.quota_plane.gated_site import CLASS, QUEUE
from tests.quota_plane.kind_stories import LOOK_S, PATIENCE_S, leaving, manifest, pods_labelled
from tests.quota_plane.site import NAMESPACE, WORKLOADS, Object, Site, job

PREFIX = "kueue.x-k8s.io/"
Conditions = dict[str, tuple[str, str, str]]


class Life:
    """One turn, in a queue of its own with 2 cpus."""

    def __init__(self, cluster: Site, name: str) -> None:
        self.cluster, self.client = cluster, cluster.client
        self.name, self.queue = name, f"q-{name}"

    async def tell(self) -> None:
        raise NotImplementedError

    async def until(self, what: str, holds: Callable[[], Awaitable[object]]) -> None:
        end = asyncio.get_running_loop().time() + PATIENCE_S
        while not await holds():
            if asyncio.get_running_loop().time() > end:
                raise AssertionError(f"{what} never held\n{await self.cluster._all()}")
            await asyncio.sleep(LOOK_S)

    def job(self, name: str, priority: str = "low", **more: Any) -> Object:
        return job(f"{self.name}-{name}", self.queue, priority=priority, **more)

    def pod(self, name: str, priority: str = "low", cpu: str = "2", **metadata: Any) -> Object:
        obj = manifest("Pod", f"{self.name}-{name}")
        labels = {QUEUE: self.queue, CLASS: priority, "life": self.name}
        obj["metadata"] |= {"labels": {**labels, **metadata.pop("labels", {})}, **metadata}
        obj["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
        return obj

    async def pods(self) -> dict[str, Object]:
        """Return the pods of this life by the end of their names."""
        found = await pods_labelled(self.cluster, f"life={self.name}")
        return {each["metadata"]["name"].removeprefix(f"{self.name}-"): each for each in found}

    async def phases(self) -> dict[str, str]:
        return {
            name: "leaving" if leaving(each) else str(first(each, "status.phase"))
            for name, each in (await self.pods()).items()
        }

    async def job_pods(self, name: str) -> list[Object]:
        found = await pods_labelled(
            self.cluster, f"batch.kubernetes.io/job-name={self.name}-{name}"
        )
        return [each for each in found if first(each, "status.phase") == "Running"]

    async def read(self, of: Resource, name: str) -> Object | None:
        try:
            found: Object = await self.client.get(of, NAMESPACE, name, dict)
        except NotFound:
            return None
        return found

    async def workload(self, stem: str) -> Object | None:
        """Return the Workload with this name, or this beginning of it."""
        page = await self.client.list(WORKLOADS, dict, namespace=NAMESPACE)
        found = [
            each
            for each in page.items
            if each["metadata"]["name"] == stem or each["metadata"]["name"].startswith(f"{stem}-")
        ]
        return found[-1] if found else None

    async def conditions(self, stem: str) -> Conditions:
        said = first(await self.workload(stem), "status.conditions") or ()
        return {each["type"]: (each["status"], each["reason"], each["message"]) for each in said}

    async def told(self, kind: str, name: str, reason: str, message: str) -> None:
        """Wait for an event about one object, whose message contains this."""

        async def holds() -> bool:
            about = await self.events(kind, name)
            return any(each == reason and message in text for each, text in about)

        await self.until(f"{reason} of {kind} {name}", holds)

    async def events(self, kind: str, name: str) -> set[tuple[str, str]]:
        """Return reasons and messages of the events about one object."""
        return {
            (reason, message)
            for about, named, _, reason, message in await self.cluster.events()
            if (about, named) == (kind, name)
        }
