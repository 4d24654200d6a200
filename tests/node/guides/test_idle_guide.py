"""Kaiwo's guide on GPU preemption, word for word, on two nodes with real kubelets.

Its manifests and values are used as they are, so that this lasts as long as their grace periods:
ten minutes. Where the guide has three dots the rest is filled in.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos, parse_instant
from tests.node.cluster import Cluster, Machine
from tests.node.guides.reading import apply, manifest, rows
from tests.node.network import SERVER
from tests.node.release import Object, Release

pytestmark = [pytest.mark.slow, pytest.mark.node]

SPACE = "ml-team"
# Longer than the longest grace period of the guide, on a slow machine.
PATIENCE_S = 1200
ADDRESS = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: gpu-operator}}
---
apiVersion: v1
kind: Service
metadata: {{name: amd-gpu-metrics-exporter, namespace: gpu-operator}}
spec: {{ports: [{{port: 5000}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: amd-gpu-metrics-exporter
  namespace: gpu-operator
  labels: {{kubernetes.io/service-name: amd-gpu-metrics-exporter}}
addressType: IPv4
endpoints: [{{addresses: ["{SERVER}"]}}]
ports: [{{port: 5000}}]
"""


def job(name: str, gpus: int, pods: int = 1) -> str:
    """Return a Job as the guide writes them."""
    return textwrap.dedent(
        f"""
        apiVersion: batch/v1
        kind: Job
        metadata: {{name: {name}, namespace: {SPACE}}}
        spec:
          parallelism: {pods}
          template:
            spec:
              restartPolicy: Never
              terminationGracePeriodSeconds: 1
              containers:
              - name: train
                image: busybox
                command: ["sleep", "365d"]
                resources:
                  limits: {{amd.com/gpu: {gpus}}}
        """
    )


class Tracked:
    """The GpuWorkload of one object."""

    def __init__(self, cluster: Cluster, kind: str, name: str) -> None:
        uid = cluster.kubectl(*("get", kind, name, "-n", SPACE, "-o", "jsonpath={.metadata.uid}"))
        self.root = name
        self.since = Nanos(0)  # for which it has been idle
        self.name = f"{kind}-{name}-{uid[:8]}"
        self._cluster = cluster

    def get(self) -> Any:
        return self._cluster.get("gpuworkload", self.name, "-n", SPACE)

    def until(self, what: str, holds: Callable[[Object], object]) -> Object:
        def found() -> Object | None:
            status: Object = self.get().get("status", {})
            return status if holds(status) else None

        status: Object = self._cluster.until(f"{self.name} is {what}", found, patience_s=PATIENCE_S)
        return status

    def phase(self, phase: str) -> Object:
        """Return its status once it is in that phase."""
        return self.until(phase, lambda status: status.get("phase") == phase)


def deleted(cluster: Cluster) -> list[str]:
    """Return what the operator deleted of the namespace, by the audit log: each as often."""
    found = []
    for each in cluster.requests():
        ref = each.get("objectRef") or {}
        accepted = each["responseStatus"].get("code", 500) < 300
        if each["verb"] == "delete" and accepted and ref.get("namespace") == SPACE:
            found.append(str(ref["name"]))
    return sorted(found)


@pytest.fixture(scope="module")
def machine() -> Machine:
    manifest("idle-values.yaml")
    return Machine()


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Release:
    """As the guide installs: by its values alone, beside the name of the image."""
    cluster.kubectl("apply", "-f", "-", given=ADDRESS)
    found = Release(cluster, {})
    values = ("-f", str(manifest("idle-values.yaml")))
    found.helm("install", "--create-namespace", "--wait", "--timeout", "5m", *values)
    return found


@pytest.fixture(scope="module")
def work(cluster: Cluster, release: Release) -> dict[str, Tracked]:
    """The guide's namespace, settings and workloads: all idle, and tracked."""
    cluster.set_idle("my-training-job", "batch-inference", "dev-notebook")
    cluster.until("there are settings", lambda: cluster.get("kaiwoconfig", "kaiwo"))
    for name in ("idle-namespace.yaml", "idle-kaiwoconfig.yaml"):
        apply(cluster, name)
    printed = apply(cluster, "idle-workloads.yaml", "-n", SPACE)
    assert printed == [
        "job.batch/my-training-job created",
        "job.batch/batch-inference created",
        "deployment.apps/dev-notebook created",
    ]
    kinds = {"my-training-job": "job", "batch-inference": "job", "dev-notebook": "deployment"}
    found = {name: Tracked(cluster, kind, name) for name, kind in kinds.items()}
    for each in found.values():
        each.since = parse_instant(each.phase("Idle")["idleSince"])
    return found


def test_work_with_the_policy_always_is_deleted_when_its_own_grace_period_is_over(
    cluster: Cluster, work: dict[str, Tracked]
) -> None:
    fields = ("gracePeriod", "preemptionPolicy", "utilizationThreshold", "gpuResources")
    specs = {name: each.get()["spec"] for name, each in work.items()}
    assert {name: [spec.get(field) for field in fields] for name, spec in specs.items()} == {
        "my-training-job": ["5m0s", "Always", None, {"amd.com/gpu": 4}],
        "batch-inference": ["10m0s", "OnPressure", None, {"amd.com/gpu": 4}],
        "dev-notebook": ["5m0s", "Always", 10, {"amd.com/gpu": 1}],
    }
    for name in ("my-training-job", "dev-notebook"):
        status = work[name].phase("Preempted")
        assert parse_instant(status["preemptedAt"]) - work[name].since >= 5 * MINUTE
        assert not status.get("preemptedFor")  # nobody waits
    assert deleted(cluster) == ["dev-notebook", "my-training-job"]
    left = cluster.kubectl("get", "jobs,deployments", "-n", SPACE, "-o", "name").split()
    assert left == ["job.batch/batch-inference"]


def test_work_with_the_policy_on_pressure_is_deleted_for_work_that_waits(
    cluster: Cluster, work: dict[str, Tracked]
) -> None:
    inference = work["batch-inference"]
    assert inference.get()["status"]["ownerChain"].endswith(" -> Job/batch-inference")
    cluster.kubectl("apply", "-f", "-", given=job("busy", 4, pods=3))
    Tracked(cluster, "job", "busy").phase("Active")
    assert inference.get()["status"]["phase"] == "Idle"
    cluster.kubectl("apply", "-f", "-", given=job("high-priority-demand", 4))
    demand = Tracked(cluster, "job", "high-priority-demand")
    demand.phase("PendingGpu")
    status = inference.phase("Preempted")
    assert parse_instant(status["preemptedAt"]) - inference.since >= 10 * MINUTE
    assert status["preemptedFor"] == demand.name and status["finishedAt"]
    assert status["preemptionReason"] == (
        f"Preempted to free 4 amd.com/gpu for pending workload {demand.name}"
    )
    demand.phase("Active")
    table = {row[1]: row[2] for row in rows(cluster.kubectl("get", "gpuworkloads", "-A"))}
    assert {table[each.name] for each in work.values()} == {"Preempted"}
    told = cluster.get(
        *("events", "-n", SPACE, "--field-selector", f"involvedObject.name={inference.name}")
    )
    reasons = {(each["type"], each["reason"]) for each in told["items"]}
    assert reasons >= {
        ("Normal", "WorkloadIdle"),
        ("Warning", "PreemptionStarted"),
        ("Warning", "WorkloadPreempted"),
    }
    assert deleted(cluster) == sorted(each.root for each in work.values())
