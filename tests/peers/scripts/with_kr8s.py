"""`python with_kr8s.py KUBECONFIG`: one story with kr8s; prints what it saw as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import kr8s.asyncio
from kr8s import ServerError
from kr8s.asyncio.objects import ConfigMap, Pod

LABELS = {"app": "story"}


def config_map(name: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "labels": LABELS}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def apply(api: Any, obj: dict[str, Any], manager: str, force: bool = False) -> Any:
    """Return the applied object, or the code and the reason of the refusal.

    kr8s has no call of its own for a server-side apply, only its general one.
    """
    try:
        async with api.call_api(
            "PATCH",
            namespace="default",
            url=f"configmaps/{obj['metadata']['name']}",
            params={"fieldManager": manager, "force": str(force).lower()},
            headers={"Content-Type": "application/apply-patch+yaml"},
            content=json.dumps(obj),
        ) as response:
            return response.json()
    except ServerError as error:
        assert error.response is not None
        status = error.response.json()
        return f"{status['code']} {status['reason']}"


async def main(kubeconfig: str) -> None:
    api: Any = await kr8s.asyncio.api(kubeconfig=kubeconfig)
    for number in (2, 0, 1):
        created = await ConfigMap(config_map(f"plan-{number}", step="created"), api=api)
        await created.create()
    found = [one async for one in api.get("configmaps", label_selector=LABELS)]
    listed = [one.name for one in found]

    events: list[list[str]] = []
    started = asyncio.Event()

    async def watch() -> None:
        async for event, seen in api.watch("configmaps", label_selector=LABELS):
            events.append([event, seen.name, seen.raw.get("data", {}).get("step", "")])
            if len(events) == len(listed):
                started.set()
            if event == "DELETED":
                return

    watching = asyncio.create_task(watch())
    await asyncio.wait_for(started.wait(), 60)
    applied = await apply(api, config_map("plan-3", step="applied"), "kr8s-story")
    conflict = await apply(api, config_map("plan-3", step="taken"), "someone-else")
    forced = await apply(api, config_map("plan-3", step="taken"), "someone-else", force=True)
    patched = next(one for one in found if one.name == "plan-0")
    await patched.patch({"data": {"step": "patched"}})
    worker = await Pod(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "worker", "namespace": "default"},
            "spec": {"containers": [{"name": "main", "image": "example.com/worker:1"}]},
        },
        api=api,
    )
    await worker.create()
    await worker.patch({"status": {"phase": "Running"}}, subresource="status")
    await next(one for one in found if one.name == "plan-1").delete()
    await asyncio.wait_for(watching, 60)
    print(
        json.dumps(
            {
                "listed": listed,
                "applied": applied["data"],
                "conflict": conflict,
                "forced": forced["data"],
                "patched": patched.raw["data"],
                "phase": worker.status.phase,
                "events": events,
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
