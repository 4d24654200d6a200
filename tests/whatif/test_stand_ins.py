"""What stands in for other controllers does things in their order."""

from __future__ import annotations

import asyncio

import msgspec

from reprieve.kube.resource import PODS
from reprieve.units.instants import Nanos
from reprieve.whatif.overlay import Overlay
from reprieve.whatif.snapshot import Listed, Snapshot
from reprieve.whatif.stand_ins import StandIns
from reprieve.whatif.virtual_loop import LoopClock, run_virtually


def _pod(name: str, created: str, version: int) -> bytes:
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": name,
        "creationTimestamp": created,
        "resourceVersion": str(version),
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j"}],
    }
    return msgspec.json.encode({"metadata": metadata, "spec": {}})


def test_pods_of_one_owner_come_in_the_order_in_which_they_were_made() -> None:
    pods = {
        ("team", "j-a"): _pod("j-a", "2026-01-01T00:00:01Z", 5),
        ("team", "j-b"): _pod("j-b", "2026-01-01T00:00:00Z", 10),
        ("team", "j-c"): _pod("j-c", "2026-01-01T00:00:00Z", 9),
    }
    snapshot = Snapshot(Nanos(0), {("", "pods"): Listed(PODS, pods, 10)})

    async def main() -> list[str]:
        clock = LoopClock(asyncio.get_running_loop(), Nanos(0))
        overlay = Overlay(snapshot, clock)
        stand_ins = StandIns(overlay, clock)
        # Who owns what in a namespace is read once something changes there.
        overlay.create(PODS, {"metadata": {"name": "other", "namespace": "team"}})
        return [pod["metadata"]["name"] for pod in stand_ins.owned.below("j")]

    assert run_virtually(main) == ["j-c", "j-b", "j-a"]
