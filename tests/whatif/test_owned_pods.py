"""The numbers of an owner's pods are those that a look at all of them would find, at any time."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest

from kubeworld.time import LoopClock, run_virtually
from kubeworld.units.instants import Nanos
from reprieve.kube.resource import PODS, Resource
from reprieve.whatif.controllers.owned_pods import COMPLETION_INDEX, facts_in, facts_of
from reprieve.whatif.controllers.stand_ins import StandIns
from reprieve.whatif.copy.overlay import Overlay
from reprieve.whatif.snapshots.snapshot import Listed, Snapshot

Object = dict[str, Any]
SETS = Resource("example.org", "v1", "sets", "Set")
OWNERS = [f"set-{number}" for number in range(5)]


def body(name: str, owners: list[str], **more: Any) -> Object:
    """Return an object whose uid is its name, as those of its owners are theirs."""
    refs = [{"apiVersion": "example.org/v1", "kind": "Set", "name": o, "uid": o} for o in owners]
    metadata = {"name": name, "namespace": "team", "uid": name, "ownerReferences": refs}
    return {"metadata": metadata | more.pop("metadata", {}), **more}


def a_pod(random: Random, name: str) -> Object:
    """Return a pod of any state and owners."""
    metadata: Object = {"labels": {COMPLETION_INDEX: str(random.randrange(3))}}
    if random.random() < 0.3:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        metadata["finalizers"] = ["example.org/held"]
    ready = {"type": "Ready", "status": random.choice(("True", "False"))}
    phase = random.choice(("Pending", "Running", "Succeeded", "Failed"))
    status = {"phase": phase, "conditions": [ready]}
    owners = random.sample(OWNERS, random.randrange(3))
    return body(name, owners, metadata=metadata, spec={}, status=status)


def counted(stand_ins: StandIns, uid: str) -> tuple[object, ...]:
    """Return an owner's numbers, of all its pods one by one; a pod counts once."""
    pods = {pod["metadata"]["name"]: facts_of(pod) for pod in stand_ins.owned.below(uid)}
    facts = list(pods.values())
    active = [each for each in facts if not each.over and not each.leaving]
    return (
        len(facts),
        len(active),
        sum(each.ready for each in active),
        sum(each.leaving for each in facts),
        sum(each.succeeded for each in facts),
        {name: each.ready for name, each in pods.items()},
        Counter(each.index for each in facts if each.index and (each.over or not each.leaving)),
    )


def told(stand_ins: StandIns, uid: str) -> tuple[object, ...]:
    """Return an owner's numbers as they are kept."""
    of = stand_ins.owned.of(uid)
    return of.pods, of.active, of.ready, of.leaving, of.succeeded, of.names, of.chosen


@pytest.mark.parametrize("seed", range(20))
def test_numbers_are_those_of_a_look_at_all_pods(seed: int) -> None:
    random = Random(seed)
    seen: Counter[str] = Counter()

    def a_set(name: str) -> Object:
        # Those of smaller numbers stand above, so that nothing owns itself.
        above = OWNERS[: OWNERS.index(name)]
        return body(name, random.sample(above, random.randrange(min(2, len(above)) + 1)))

    first = {each: a_set(each) for each in OWNERS if random.random() < 0.6}
    pods = {f"pod-{number}": a_pod(random, f"pod-{number}") for number in range(8)}

    def listed(resource: Resource, objects: dict[str, Object]) -> Listed:
        raw = {("team", name): msgspec.json.encode(each) for name, each in objects.items()}
        return Listed(resource, raw, 1)

    def change(overlay: Overlay) -> str:
        resource = random.choice((SETS, PODS, PODS, PODS))
        name = random.choice(OWNERS) if resource == SETS else f"pod-{random.randrange(16)}"
        new = a_set(name) if resource == SETS else a_pod(random, name)
        if overlay.get(resource, "team", name) is None:
            overlay.create(resource, new)
            return f"{resource.kind} made"
        if random.random() < 0.3:
            old = overlay.get(resource, "team", name)
            assert old is not None
            free = {**old, "metadata": {**old["metadata"], "finalizers": []}}
            overlay.change(resource, free)
            if overlay.get(resource, "team", name) is not None:
                key = (resource.group, resource.plural)
                overlay.delete(key, ("team", name), {"gracePeriodSeconds": 0})
            return f"{resource.kind} gone"
        overlay.change(resource, new)
        return f"{resource.kind} changed"

    async def main() -> None:
        clock = LoopClock(asyncio.get_running_loop(), Nanos(0))
        kinds = {("", "pods"): listed(PODS, pods), ("example.org", "sets"): listed(SETS, first)}
        overlay = Overlay(Snapshot(Nanos(0), kinds), clock)
        stand_ins = StandIns(overlay, clock)
        for _ in range(300):
            for uid in OWNERS:
                assert told(stand_ins, uid) == counted(stand_ins, uid)
                seen["counted"] += stand_ins.owned.of(uid).pods > 0
            seen[change(overlay)] += 1

    run_virtually(main)
    assert min(seen[f"{kind} {what}"] for kind in ("Set", "Pod") for what in
               ("made", "changed", "gone")) >= 5  # fmt: skip
    assert seen["counted"] > 300


@pytest.mark.parametrize("seed", range(50))
def test_a_pod_that_is_json_yet_is_read_as_one_that_is_not(seed: int) -> None:
    pod = a_pod(Random(seed), "pod")
    assert facts_in(msgspec.json.encode(pod)) == facts_of(pod)
