"""What the proof on nodes knows of pods that do not exist yet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from reprieve.api import kueue
from reprieve.engine.quota import model
from reprieve.engine.quota.proofs.pods_wanted import Template
from reprieve.intake.quota_limits import NO_LIMITS, ContainerLimits
from reprieve.intake.quota_workloads import PodSetRows
from reprieve.jobs.table import BUILT_IN
from reprieve.planes.quota.pod_reconcilers.pod_templates import PodTemplates

(JOB,) = (kind for kind in BUILT_IN if kind.kind == "Job")
GIB = 2**30


def templates(
    spec: dict[str, Any],
    *,
    job: dict[str, Any] | None = None,
    limits: ContainerLimits = NO_LIMITS,
    overheads: dict[str, Any] | None = None,
) -> dict[str, Template]:
    """Return what is known of a Workload's pods, with its job or by itself."""
    pod_sets = [{"name": "main", "count": 2, "template": {"spec": spec}}]
    stored = msgspec.convert({"spec": {"podSets": pod_sets}}, kueue.Workload)
    rows = PodSetRows(limits=limits, overheads=overheads or {})
    state: Any = SimpleNamespace(workload=lambda key: stored, pod_rows=lambda namespace: rows)
    owner = None if job is None else (JOB, SimpleNamespace(object=job))
    lookup: Any = SimpleNamespace(owner_of=lambda found: owner, resolved=lambda kind, obj: obj)
    return PodTemplates(state, lookup, {"": 7, "low": 3}.__getitem__)(model.Workload("ns", "w"))


def container(**resources: dict[str, str]) -> dict[str, Any]:
    return {"name": "c", "image": "i", "resources": resources}


def test_a_workload_by_itself_says_what_it_requests_and_where_it_can_run() -> None:
    spec = {
        "containers": [container(requests={"cpu": "2"}, limits={"nvidia.com/gpu": "1"})],
        "nodeSelector": {"pool": "a"},
    }
    found = templates(spec)["main"]
    assert found.pod_class.requests == (("cpu", 2_000), ("nvidia.com/gpu", 1))
    assert (found.pod_class.node_selector, found.preempts_below) == ((("pool", "a"),), 7)


def test_a_job_says_all_that_a_scheduler_looks_at() -> None:
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
    spec = {
        "containers": [{**container(requests={"cpu": "1"}), "ports": [{"hostPort": 80}]}],
        "affinity": {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
        },
    }
    template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
    job = {"metadata": {"name": "j"}, "spec": {"parallelism": 2, "template": template}}
    found = templates({"containers": [container()]}, job=job)["main"]
    assert found.labels == (("a", "b"),)
    assert [each.port for each in found.pod_class.host_ports] == [80]
    (term,) = found.pod_class.anti_affinity
    assert (term.topology_key, term.namespaces) == ("kubernetes.io/hostname", ("ns",))


def test_requests_are_those_that_the_api_server_will_give_the_pods() -> None:
    limits = ContainerLimits(default_request={"cpu": "500m", "memory": "1Gi"})
    spec = {"containers": [container(limits={"cpu": "2"})], "runtimeClassName": "kata"}
    found = templates(spec, limits=limits, overheads={"kata": {"memory": "1Gi"}})["main"]
    assert found.pod_class.requests == (("cpu", 2_000), ("memory", 2 * GIB))


def test_a_template_that_cannot_be_read_is_left_out() -> None:
    job = {"spec": {"template": {"spec": {"containers": "none"}}}, "metadata": {"name": "j"}}
    assert templates({"containers": [container()]}, job=job) == {}
