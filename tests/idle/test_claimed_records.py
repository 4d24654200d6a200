"""What the records of pods say of claims, whatever comes first and whoever goes first."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec
import pytest

from kubeworld.units.clock import VirtualClock
from reprieve.api.core import KueueWorkload, Pod
from reprieve.api.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate
from reprieve.engine.idle.vendors import NVIDIA
from reprieve.kube.resource import PODS
from reprieve.planes.common.mirrors.mirror import Mirror
from reprieve.planes.idle.watches import Watches
from tests.kube.fakes import Collection, FakeWire, client_over

GPU = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
DAY = "2026-01-01"
_versions = count(1)


class Cluster:
    """The caches of an idle plane, which a test fills by itself."""

    def __init__(self) -> None:
        clock = VirtualClock()
        wire = FakeWire(Collection(PODS).handle)
        mirror = Mirror(client_over(wire, clock), clock)
        self.watches = Watches(
            mirror, clock, (NVIDIA,), nodes=True, services=False, report=lambda _: None
        )

    def pod(self, name: str, claim: str = "c", *, phase: str = "Running", created: int = 0) -> None:
        self.watches.pods.cache.applied(
            msgspec.convert(
                {
                    "metadata": meta(name)
                    | {"creationTimestamp": f"2026-01-01T00:00:{created:02}Z"},
                    "spec": {"resourceClaims": [{"name": "gpus", "resourceClaimName": claim}]},
                    "status": {"phase": phase},
                },
                Pod,
            )
        )

    def claim(
        self,
        name: str = "c",
        *,
        device_class: str = "gpu.nvidia.com",
        driver: str = "",
        users: tuple[str, ...] = (),
        size: int = 1,
    ) -> None:
        exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": size}
        requests = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        results = [
            {"request": "r", "driver": driver, "pool": "p", "device": str(number)}
            for number in range(size)
        ]
        status: dict[str, Any] = {}
        if driver:
            status["allocation"] = {"devices": {"results": results}}
            status["reservedFor"] = [{"resource": "pods", "name": u, "uid": u} for u in users]
        self.watches.devices.claims.cache.applied(
            msgspec.convert(
                {"metadata": meta(name), "spec": requests, "status": status}, ResourceClaim
            )
        )

    def template(self, name: str, size: int) -> None:
        exactly = {"deviceClassName": "gpu.nvidia.com", "count": size}
        spec = {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
        self.watches.devices.templates.cache.applied(
            msgspec.convert({"metadata": meta(name), "spec": spec}, ResourceClaimTemplate)
        )

    def device_class(self, name: str, extended: str) -> None:
        spec = {"extendedResourceName": extended}
        self.watches.devices.classes.cache.applied(
            msgspec.convert({"metadata": {"name": name, **_version()}, "spec": spec}, DeviceClass)
        )

    def holds(self, name: str) -> dict[str, int]:
        found = self.watches.pods.cache.get(name)
        assert found is not None
        return dict(found.row.gpus)

    def shared(self, name: str) -> tuple[str, ...]:
        found = self.watches.pods.cache.get(name)
        assert found is not None
        return found.shared


def meta(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": "team", "uid": name, **_version()}


def _version() -> dict[str, str]:
    return {"resourceVersion": str(next(_versions))}


@pytest.mark.parametrize("first", ["pod", "claim"])
def test_a_pod_holds_what_its_claim_has_whichever_is_seen_first(first: str) -> None:
    cluster = Cluster()
    steps: list[Callable[[], None]] = [
        lambda: cluster.pod("a"),
        lambda: cluster.claim(driver="gpu.nvidia.com", size=2),
    ]
    for step in steps if first == "pod" else reversed(steps):
        step()
    assert cluster.holds("a") == {GPU: 2}


def test_a_claim_of_several_pods_counts_for_who_uses_it_longest() -> None:
    cluster = Cluster()
    for number, name in enumerate(("late", "early", "waits")):
        cluster.pod(name, created=number)
    cluster.claim(driver="gpu.nvidia.com", users=("early", "late"))
    assert [cluster.holds(name) for name in ("late", "early", "waits")] == [
        {GPU: 0},
        {GPU: 1},
        {GPU: 0},
    ]
    assert {cluster.shared(name) for name in ("late", "early", "waits")} == {("team/c",)}
    cluster.pod("early", phase="Succeeded", created=1)
    assert cluster.holds("late") == {GPU: 1}
    cluster.pod("waits", phase="Failed", created=2)
    assert cluster.shared("late") == ()


def test_who_waits_counts_a_claim_that_nobody_has_once() -> None:
    cluster = Cluster()
    cluster.pod("b", phase="Pending", created=1)
    cluster.pod("a", phase="Pending", created=2)
    cluster.claim()
    assert (cluster.holds("b"), cluster.holds("a")) == ({GPU: 1}, {GPU: 0})
    waiting = cluster.watches.pods.cache.get("a")
    assert waiting is not None
    assert waiting.claimed == {GPU}


def test_a_class_of_another_name_is_a_gpu_by_its_driver_or_its_extended_resource() -> None:
    cluster = Cluster()
    cluster.pod("a")
    cluster.claim(device_class="large")
    assert cluster.holds("a") == {}
    cluster.claim(device_class="large", driver="nic.example.com", users=("a",))
    assert cluster.holds("a") == {}
    cluster.claim(device_class="large", driver="gpu.nvidia.com", users=("a",))
    assert cluster.holds("a") == {"deviceclass.resource.kubernetes.io/large": 1}
    cluster.device_class("large", "nvidia.com/gpu")
    assert cluster.holds("a") == {"nvidia.com/gpu": 1}


def test_a_claim_that_was_released_is_held_by_nobody_and_one_that_moved_by_its_class() -> None:
    cluster = Cluster()
    cluster.pod("a")
    cluster.claim(driver="gpu.nvidia.com", users=("a",))
    assert cluster.watches.claimed.allocated() == {("gpu.nvidia.com", "p", "0")}
    cluster.claim(device_class="mig.nvidia.com", driver="gpu.nvidia.com", users=("a",))
    assert cluster.holds("a") == {"deviceclass.resource.kubernetes.io/mig.nvidia.com": 1}
    cluster.claim()
    assert cluster.watches.claimed.allocated() == frozenset()


def test_pods_to_come_ask_by_template_each_and_by_name_once() -> None:
    cluster = Cluster()
    cluster.template("t", 2)
    cluster.claim("both", size=4)
    by_template = {"resourceClaims": [{"name": "g", "resourceClaimTemplateName": "t"}]}
    by_name = {"resourceClaims": [{"name": "g", "resourceClaimName": "both"}]}
    workload = msgspec.convert(
        {
            "metadata": meta("w"),
            "spec": {
                "podSets": [
                    {"count": 3, "template": {"spec": by_template}},
                    {"count": 5, "template": {"spec": by_name}},
                    {"count": 1, "template": {"spec": by_name}},
                ]
            },
        },
        KueueWorkload,
    )
    cluster.watches.kueue.cache.applied(workload)
    record = cluster.watches.kueue.cache.get("w")
    assert record is not None
    assert cluster.watches.claimed.of_pod_sets("team", record.claims) == {GPU: 10}
