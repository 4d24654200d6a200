"""Which webhooks a process serves, and that they are quiet beside a Kueue that decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos
from reprieve.api.kueue_topology import CONSTRAINTS, REQUIRED
from reprieve.execution.fence import Fence
from reprieve.kube.recording.events import EventRecorder
from reprieve.planes.quota.context import QuotaContext, QuotaOptions
from reprieve.planes.quota.plane import QuotaPlane
from reprieve.planes.quota.webhooks.hooks import plane_hooks
from reprieve.planes.quota.webhooks.reviews import Asked, Verdict
from reprieve.settings.quota import QuotaSettings, quota_settings
from reprieve.telemetry.metrics import Metrics
from reprieve.telemetry.quota import QuotaMetrics
from tests.kube.fakes import client_over, scripted
from tests.kueue.objects import Json, cluster_queue, group

FOREIGN_JOB = {
    "apiVersion": "batch.volcano.example/v1alpha1",
    "kind": "Job",
    "plural": "jobs",
    "framework": "batch.volcano.example/job",
    "suspend": "spec.paused",
    "podSets": [{"template": "spec.template"}],
}
JOB: Json = {
    "metadata": {"name": "a", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
    "spec": {"template": {}},
}


@dataclass(frozen=True)
class Unled:
    """The tenure of a process that does not lead."""

    identity: str = "test"
    epoch: int = 0
    held_until: Nanos | None = None


def plane(settings: QuotaSettings) -> QuotaPlane:
    """Return a plane that was never started."""
    metrics, clock = Metrics(), VirtualClock()
    context = QuotaContext(
        full_client=client_over(scripted()),
        clock=clock,
        fence=Fence(Unled(), clock, MINUTE),
        events=cast("EventRecorder", None),
        metrics=metrics,
        quota_metrics=QuotaMetrics(metrics.registry),
        options=QuotaOptions.of(settings),
    )
    return QuotaPlane(context, "reprieve")


def asked(running: QuotaPlane, settings: QuotaSettings, name: str, obj: Json) -> Verdict:
    (hook,) = (each for each in plane_hooks(running, settings) if each.name == name)
    return hook.judge(Asked("CREATE", "team", obj))


def test_every_webhook_has_a_name_of_its_own() -> None:
    settings = quota_settings({"jobKinds": [FOREIGN_JOB]})
    hooks = plane_hooks(plane(settings), settings)
    names = [each.name for each in hooks]
    assert len(set(names)) == len(names)
    assert {"mjob.kb.io", "mjob.batch.volcano.example.kb.io", "vclusterqueue.kb.io"} < set(names)
    selectors = [each.namespace_selector for each in hooks if each.group == "batch"]
    assert selectors and all(
        selector is not None and selector["matchExpressions"][0]["operator"] == "NotIn"
        for selector in selectors
    )


@pytest.mark.parametrize("kueue", [True, False])
def test_beside_a_kueue_that_decides_nothing_is_changed_or_refused(kueue: bool) -> None:
    settings = quota_settings({"webhooks": {"namespaceSelector": {"matchLabels": {"a": "b"}}}})
    running = plane(settings)
    running.context.read_only = "kueue holds its lease" if kueue else ""
    bad: Any = cluster_queue("a", group({"cpu": "1"}, lendingLimit="2"), cohortName="all")
    changed = asked(running, settings, "mjob.kb.io", JOB).changed
    errors = asked(running, settings, "vclusterqueue.kb.io", bad).errors
    if kueue:
        assert (changed, errors) == (None, ())
    else:
        assert changed is not None and changed["spec"]["suspend"] is True
        assert len(errors) == 1


LAYERS = '[{"topology": "a/b", "size": 4}, {"topology": "c", "size": 2}]'


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize(
    "name", ["vjob.kb.io", "vpod.kb.io", "vjobset.kb.io", "vdeployment.kb.io", "vstatefulset.kb.io"]
)
def test_layers_of_slices_are_refused_in_each_kind_of_job_where_their_gate_is_off(
    name: str, gate: bool
) -> None:
    """The gate stands in Kueue's configuration, as an operator of Kueue writes it."""
    frameworks = ["batch/job", "pod", "jobset.x-k8s.io/jobset", "deployment", "statefulset"]
    document = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "integrations": {"frameworks": frameworks},
        "featureGates": {"TASMultiLayerTopology": gate},
    }
    settings = quota_settings({"configuration": document})
    notes = {"annotations": {CONSTRAINTS: LAYERS, REQUIRED: "a/b"}}
    labels = {"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/managed": "true"}
    template = {"metadata": notes, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    batch = {"suspend": True, "parallelism": 8, "completions": 8, "template": template}
    objects: dict[str, Json] = {
        "vjob.kb.io": {"spec": batch},
        "vjobset.kb.io": {
            "spec": {
                "suspend": True,
                "replicatedJobs": [{"name": "r", "replicas": 1, "template": {"spec": batch}}],
            }
        },
        "vpod.kb.io": {"spec": template["spec"]},
        "vdeployment.kb.io": {"spec": {"replicas": 8, "template": template}},
        "vstatefulset.kb.io": {"spec": {"replicas": 8, "template": template}},
    }
    metadata = {"name": "a", "namespace": "team", "labels": labels}
    if name == "vpod.kb.io":
        group_of_eight = {"kueue.x-k8s.io/pod-group-total-count": "8"}
        metadata["annotations"] = {**notes["annotations"], **group_of_eight}
        metadata["labels"] = {**labels, "kueue.x-k8s.io/pod-group-name": "g"}
    errors = asked(plane(settings), settings, name, {**objects[name], "metadata": metadata}).errors
    assert [
        each for each in errors if "TASMultiLayerTopology feature gate must be enabled" in each
    ] == [*errors]
    assert bool(errors) == (not gate)


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("changed", [False, True], ids=["made", "changed"])
def test_sizes_of_slices_in_workloads_are_checked_unless_their_gate_is_off(
    gate: bool, changed: bool
) -> None:
    document = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "featureGates": {"TASValidateWorkloadSliceSize": gate},
    }
    settings = quota_settings({"configuration": document})
    (hook,) = (e for e in plane_hooks(plane(settings), settings) if e.name == "vworkload.kb.io")

    def workload(**request: str) -> Json:
        template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
        pod_set = {"name": "main", "count": 2, "template": template, "topologyRequest": request}
        return {"metadata": {"name": "w"}, "spec": {"podSets": [pod_set]}}

    obj = workload(podSetSliceRequiredTopology="a/b")
    asks = Asked("UPDATE", "team", obj, workload()) if changed else Asked("CREATE", "team", obj)
    told = "must be set when podSetSliceRequiredTopology is specified"
    errors = [each.rpartition(": ")[2] for each in hook.judge(asks).errors]
    assert errors == ([told] if gate else [])


@pytest.mark.parametrize("gate", [True, False])
def test_the_gate_of_overlapping_flavors_reaches_the_decisions(gate: bool) -> None:
    document = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "featureGates": {"TASHandleOverlappingFlavors": gate},
    }
    options = QuotaOptions.of(quota_settings({"configuration": document}))
    assert options.settings.gates.topology.handle_overlapping is gate
