"""A number in a manifest, or one that a tenant stored, makes a bounded number of pods."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from kubeworld.time import LoopClock, run_virtually
from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos
from reprieve.kube.resource import PODS, Resource
from reprieve.units.errors import UsageError
from reprieve.whatif.controllers.made_pods import MOST_PODS, MadePods
from reprieve.whatif.controllers.stand_ins import StandIns
from reprieve.whatif.copy.overlay import Overlay
from reprieve.whatif.snapshots.snapshot import Listed, Snapshot

Object = dict[str, Any]
ENDLESS = 2**31 - 1
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}
KINDS = {
    "Job": Resource("batch", "v1", "jobs", "Job"),
    "Deployment": Resource("apps", "v1", "deployments", "Deployment"),
    "ReplicaSet": Resource("apps", "v1", "replicasets", "ReplicaSet"),
    "StatefulSet": Resource("apps", "v1", "statefulsets", "StatefulSet"),
    "LeaderWorkerSet": Resource(
        "leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet"
    ),
    "JobSet": Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"),
}
SPECS: dict[str, Object] = {
    "Job": {"parallelism": ENDLESS, "template": TEMPLATE},
    "Deployment": {"replicas": ENDLESS, "template": TEMPLATE},
    "ReplicaSet": {"replicas": ENDLESS, "template": TEMPLATE},
    "StatefulSet": {"replicas": ENDLESS, "template": TEMPLATE},
    "LeaderWorkerSet": {
        "replicas": 1,
        "leaderWorkerTemplate": {"size": ENDLESS, "workerTemplate": TEMPLATE},
    },
    "JobSet": {
        "replicatedJobs": [
            {
                "name": "r",
                "replicas": ENDLESS,
                "template": {"spec": {"parallelism": 1, "template": TEMPLATE}},
            }
        ]
    },
}


def owner(kind: str, name: str = "big", **spec: Any) -> Object:
    """Return work of a kind that wants endlessly many pods, but for what is said."""
    metadata = {"name": name, "namespace": "team", "uid": name}
    body = {"metadata": metadata, "spec": {**SPECS[kind], **spec}}
    return {"apiVersion": KINDS[kind].api_version, "kind": kind, **body}


def pods_of(*submitted: Object, stored: tuple[Object, ...] = ()) -> list[str]:
    """Return the pods that are made when this is submitted, and what is stored is looked at."""
    kinds = {
        (each.group, each.plural): Listed(
            each,
            {("team", one["metadata"]["name"]): msgspec.json.encode(one) for one in stored}
            if (each.kind == (stored[0]["kind"] if stored else ""))
            else {},
            1,
        )
        for each in (PODS, *KINDS.values())
    }

    async def main() -> list[str]:
        clock = LoopClock(asyncio.get_running_loop(), Nanos(0))
        overlay = Overlay(Snapshot(Nanos(0), kinds), clock)
        stand_ins = StandIns(overlay, clock)
        task = asyncio.create_task(stand_ins.run())
        for number, obj in enumerate(submitted):
            made = overlay.create(KINDS[obj["kind"]], obj)
            stand_ins.made_pods.submitted(made, f"work.yaml, line {number + 1}")
        for obj in stored:
            found = overlay.get(KINDS[obj["kind"]], "team", obj["metadata"]["name"])
            assert found is not None
            labels = {"seen": "again"}
            overlay.change(
                KINDS[obj["kind"]], {**found, "metadata": {**found["metadata"], "labels": labels}}
            )
        await clock.sleep(MINUTE)
        if task.done():
            task.result()
        task.cancel()
        return [name for (_, name), _ in overlay.raw(PODS)]

    return run_virtually(main)


@pytest.mark.parametrize("kind", KINDS)
def test_work_that_wants_endlessly_many_pods_is_refused_with_its_place(kind: str) -> None:
    with pytest.raises(UsageError) as error:
        pods_of(owner(kind))

    said = str(error.value)
    # A Deployment's pods are those of the set that is made for it.
    title = "ReplicaSet team/big-" if kind == "Deployment" else f"{kind} team/big: "
    assert said.startswith(f"work.yaml, line 1: {title}")
    assert said.endswith(f"{ENDLESS} pods; accepted: at most {MOST_PODS} in all of a plan")


def test_work_that_is_small_by_itself_is_counted_together() -> None:
    few = owner("ReplicaSet", "few", replicas=3)
    rest = owner("ReplicaSet", "rest", replicas=MOST_PODS - 2)

    with pytest.raises(UsageError) as error:
        pods_of(few, rest)

    assert str(error.value) == (
        f"work.yaml, line 2: ReplicaSet team/rest: {MOST_PODS - 2} pods, {MOST_PODS + 1} with "
        f"those before; accepted: at most {MOST_PODS} in all of a plan"
    )


def test_what_is_within_the_bound_is_made_whole() -> None:
    assert len(pods_of(owner("ReplicaSet", replicas=5), owner("Job", "job", parallelism=4))) == 9


def test_pods_that_are_submitted_count_as_well() -> None:
    made = MadePods(most=2)
    pods = [{"kind": "Pod", "metadata": {"name": str(n), "uid": str(n)}} for n in range(3)]
    for pod in pods[:2]:
        made.submitted(pod, "work.yaml")

    with pytest.raises(UsageError, match="Pod /2: 1 pod, 3 with those before; accepted: at most 2"):
        made.submitted(pods[2], "work.yaml")


@pytest.mark.parametrize("kind", [each for each in KINDS if each not in ("Deployment", "JobSet")])
def test_a_tenants_endless_work_that_is_stored_keeps_nobody_from_a_plan(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    stored = owner(kind, podManagementPolicy="Parallel")

    with caplog.at_level(logging.WARNING):
        made = pods_of(owner("ReplicaSet", "mine", replicas=2), stored=(stored,))

    assert [name.startswith("mine-") for name in made] == [True, True]
    said = (
        f"{kind} team/big lacks {ENDLESS} pods, which are not made: at most {MOST_PODS} are, of "
        "work that is there"
    )
    assert [record.getMessage() for record in caplog.records] == [said]


def test_names_that_are_made_are_never_taken_already() -> None:
    async def main() -> int:
        clock = LoopClock(asyncio.get_running_loop(), Nanos(0))
        overlay = Overlay(Snapshot(Nanos(0), {("", "pods"): Listed(PODS, {}, 1)}), clock)
        for _ in range(10_000):
            metadata = {"namespace": "team", "generateName": "big-"}
            overlay.create(PODS, {"metadata": metadata, "spec": {}})
        return sum(1 for _ in overlay.raw(PODS))

    assert run_virtually(main) == 10_000
