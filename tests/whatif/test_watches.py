"""What a plane sees of a what-if's objects, and when."""

from __future__ import annotations

import asyncio

import msgspec

from kubeworld.time import LoopClock, run_virtually
from kubeworld.units.durations import MILLISECOND
from kubeworld.units.instants import Nanos
from reprieve.kube.resource import PODS
from reprieve.kube.transport import Request
from reprieve.whatif.copy.overlay import Overlay
from reprieve.whatif.copy.wire import OverlayWire
from reprieve.whatif.snapshots.snapshot import Listed, Snapshot


def test_new_objects_are_seen_one_after_the_other_and_changes_at_once() -> None:
    snapshot = Snapshot(Nanos(0), {("", "pods"): Listed(PODS, {}, 1)})

    async def main() -> list[tuple[str, str, int]]:
        clock = LoopClock(asyncio.get_running_loop(), Nanos(0))
        overlay = Overlay(snapshot, clock)
        request = Request("GET", "/api/v1/pods", query={"watch": "1", "resourceVersion": "1"})
        answer = await OverlayWire(overlay).send(request, True, False)
        # As one turn of a controller makes them, with names that are against their order.
        pods = [
            overlay.create(PODS, {"metadata": {"name": name, "namespace": "team"}})
            for name in ("work-b", "work-a", "work-c")
        ]
        for pod in pods[:2]:
            overlay.change(PODS, {**pod, "status": {"phase": "Running"}})
        seen: list[tuple[str, str, int]] = []
        async for line in answer.lines():
            event = msgspec.json.decode(line)
            seen.append((event["type"], event["object"]["metadata"]["name"], clock.monotonic()))
            if len(seen) == 5:
                break
        return seen

    assert run_virtually(main) == [
        ("ADDED", "work-b", 0),
        ("ADDED", "work-a", MILLISECOND),
        ("ADDED", "work-c", 2 * MILLISECOND),
        ("MODIFIED", "work-b", 2 * MILLISECOND),
        ("MODIFIED", "work-a", 2 * MILLISECOND),
    ]
