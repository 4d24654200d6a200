"""Counts what goes below whom, as a watch of the pods and Workloads of a namespace sees it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from reprieve.kube.client import Client
from reprieve.kube.resource import PODS, Resource
from tests.quota_plane.site import NAMESPACE, WORKLOADS, Object

#: Nobody's owner loses more in a minute, whatever its kind; a storm makes hundreds.
MOST = 20
#: Kind of what went, kind and name of what owned it.
Owner = tuple[str, str, str]


@dataclass
class Deletions:
    """By owner and minute since the beginning."""

    by_minute: Counter[tuple[Owner, int]] = field(default_factory=Counter)

    def total(self, kind: str, owner: str) -> int:
        """Return how many of a kind went below the owner with this name."""
        return sum(
            n for ((k, _, name), _), n in self.by_minute.items() if (k, name) == (kind, owner)
        )

    def most(self) -> int:
        """Return the most that one owner has lost in a minute."""
        return max(self.by_minute.values(), default=0)


@asynccontextmanager
async def counted_deletions(client: Client) -> AsyncIterator[Deletions]:
    """Count until the end of the block."""
    found, begun = Deletions(), asyncio.get_running_loop().time()

    async def count(resource: Resource) -> None:
        version = (await client.list(resource, dict, namespace=NAMESPACE)).resource_version
        async for event in client.watch(
            resource, dict, resource_version=version, namespace=NAMESPACE, timeout_seconds=1_800
        ):
            if event.type == "DELETED" and event.object is not None:
                minute = int(asyncio.get_running_loop().time() - begun) // 60
                found.by_minute[(_owner(resource.kind, event.object), minute)] += 1

    tasks = [asyncio.create_task(count(each)) for each in (PODS, WORKLOADS)]
    try:
        yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _owner(kind: str, obj: Object) -> Owner:
    owners = obj["metadata"].get("ownerReferences") or [
        {"kind": "", "name": obj["metadata"]["name"]}
    ]
    return kind, str(owners[0]["kind"]), str(owners[0]["name"])


@asynccontextmanager
async def told_at_a_pace(
    client: Client, stories: Collection[asyncio.Task[None]]
) -> AsyncIterator[None]:
    """Let stories be told, which delete no more pods a minute than may be; then end them."""
    try:
        async with counted_deletions(client) as found:
            yield
            assert 0 < found.most() <= MOST, found.by_minute.most_common(5)
    finally:
        for task in stories:
            task.cancel()
        await asyncio.gather(*stories, return_exceptions=True)
