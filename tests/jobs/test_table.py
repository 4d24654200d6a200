"""The table of kinds: what each row says of an object as its project writes it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kubeworld.kinds.families import FAMILIES, Pods
from reprieve.api import kueue
from reprieve.intake.quota_requests import pod_requests
from reprieve.jobs.pod_sets import pod_sets_of
from reprieve.jobs.reading import (
    digest,
    end,
    is_active,
    is_managed,
    is_on_hold,
    is_suspended,
    reclaimable,
)
from reprieve.jobs.table import BUILT_IN, gated_off, queued_kinds
from reprieve.jobs.training import RUNTIME
from reprieve.jobs.writing import Injection, is_injected, is_restored, restored, started, stopped
from tests.jobs.builders import Json, template

ROWS = {kind.kind: kind for kind in BUILT_IN}
MANIFESTS: dict[str, Json] = {
    each["kind"]: each
    for each in yaml.safe_load_all(
        (Path(__file__).parents[1] / "quota_plane" / "kinds.yaml").read_text(encoding="utf-8")
    )
}
TOLD = Injection(
    None,
    {"disk": "fast"},
    [{"key": "gpu", "operator": "Exists"}],
    {"kueue.x-k8s.io/podset": "x"},
    {"kueue.x-k8s.io/workload": "w"},
)
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def runtime(**policy: Any) -> Json:
    """Return the spec of a runtime with one trainer job."""
    container = {"name": "node", "image": "base", "resources": {"requests": {"cpu": "4"}}}
    inner = {"template": {"spec": {"containers": [container]}}}
    job = {"name": "node", "template": {"metadata": {"labels": {STEP: "trainer"}}, "spec": inner}}
    return {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": [job]}}}


def obj(kind: str) -> Json:
    found = copy.deepcopy(MANIFESTS[kind])
    if kind == "TrainJob":
        found[RUNTIME] = runtime(numNodes=1)
    return found


def shapes(kind: str, job: Json) -> list[tuple[str, int, str]]:
    """Return name, count and cpu of each pod set."""
    return [
        (
            each["name"],
            each["count"],
            "+".join(
                c["resources"]["requests"]["cpu"] for c in each["template"]["spec"]["containers"]
            ),
        )
        for each in pod_sets_of(ROWS[kind], job)
    ]


PODS = {
    "Job": [("main", 2, "1")],
    "JobSet": [("driver", 1, "1"), ("workers", 2, "500m")],
    "TrainJob": [("node", 2, "1")],
    "PyTorchJob": [("master", 1, "1"), ("worker", 1, "1")],
    "XGBoostJob": [("master", 1, "1"), ("worker", 1, "1")],
    "PaddleJob": [("worker", 2, "1")],
    "TFJob": [("chief", 1, "500m"), ("ps", 1, "500m"), ("worker", 2, "500m")],
    "JAXJob": [("worker", 2, "1")],
    "MPIJob": [("launcher", 1, "1"), ("worker", 1, "1")],
    "RayJob": [("head", 1, "500m"), ("small", 2, "500m"), ("submitter", 1, "500m")],
    "RayCluster": [("head", 1, "1"), ("small", 1, "1")],
    "RayService": [("head", 1, "2")],
    "AppWrapper": [("name-0", 1, "1"), ("name-1", 1, "1")],
    "SparkApplication": [("driver", 1, "1"), ("executor", 2, "500m")],
    "Pod": [("main", 1, "2")],
    "Deployment": [],
    "StatefulSet": [("main", 2, "1")],
    "LeaderWorkerSet": [("leader", 1, "1"), ("worker", 1, "1")],
}


@pytest.mark.parametrize("kind", sorted(ROWS))
def test_the_pods_of_every_kind_are_found(kind: str) -> None:
    assert shapes(kind, obj(kind)) == PODS[kind]


SUSPENDABLE = sorted(kind.kind for kind in BUILT_IN if kind.suspend)


@pytest.mark.parametrize("kind", SUSPENDABLE)
def test_what_a_start_tells_the_pods_is_taken_back_at_the_stop(kind: str) -> None:
    row, before = ROWS[kind], stopped(ROWS[kind], obj(kind))
    pod_sets = pod_sets_of(row, before)
    told = {each["name"]: TOLD for each in pod_sets}
    running = started(row, before, told)
    assert "fast" in repr(running) and is_injected(row, running)
    if kind not in ("AppWrapper", "TrainJob"):  # these say so apart from the templates
        for each in pod_sets_of(row, running):
            spec, metadata = each["template"]["spec"], each["template"]["metadata"]
            assert spec["nodeSelector"]["disk"] == "fast"
            assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
            assert metadata["labels"]["kueue.x-k8s.io/podset"] == "x"
    assert not is_restored(row, running, pod_sets)
    after = restored(row, stopped(row, running), pod_sets)
    assert not is_injected(row, after)
    assert pod_sets_of(row, after) == pod_sets
    if kind != "TrainJob":  # which keeps an empty patch
        assert after == before


def test_an_app_wrapper_is_told_in_its_components() -> None:
    row, job = ROWS["AppWrapper"], obj("AppWrapper")
    running = started(row, job, {"name-0": TOLD, "name-1": Injection(labels={"b": "c"})})
    first, second = running["spec"]["components"]
    assert first["podSetInfos"] == [TOLD.as_json()]
    assert second["podSetInfos"] == [{"labels": {"b": "c"}}]
    assert [each["template"] for each in (first, second)] == [
        each["template"] for each in job["spec"]["components"]
    ]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("template.spec.workerGroupSpecs[1].template", [("name-0", 3, "2")]),
        ("template.spec.workerGroupSpecs[2].template", []),
        ("template.spec.workerGroupSpecs[-1].template", []),
        ("template.spec.workerGroupSpecs[*].template", []),
        ("template.spec.workerGroupSpecs[1.template", []),
        ("template.spec.workerGroupSpecs[1][0].template", []),
        ("template.spec.headGroupSpec[0].template", []),
        ("template.spec.workerGroupSpecs.template", []),
    ],
)
def test_pods_of_an_app_wrapper_are_found_at_indexes_of_lists(
    path: str, found: list[tuple[str, int, str]]
) -> None:
    """Its webhook writes such paths for the worker groups of a RayCluster and the jobs of a set."""

    def group(cpu: str) -> Json:
        container = {"name": "w", "resources": {"requests": {"cpu": cpu}}}
        return {"template": {"spec": {"containers": [container]}}}

    spec = {"headGroupSpec": group("1"), "workerGroupSpecs": [group("1"), group("2")]}
    wrapped = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": spec}
    component = {"podSets": [{"replicas": 3, "path": path}], "template": wrapped}
    job = {"metadata": {"name": "name"}, "spec": {"components": [component]}}
    assert shapes("AppWrapper", job) == found


def test_pods_that_an_app_wrapper_declares_are_numbered_as_it_says() -> None:
    prefix = "workload.codeflare.dev.appwrapper/tas"
    row, job = ROWS["AppWrapper"], obj("AppWrapper")
    (declared,) = job["spec"]["components"][0]["podSets"]
    inferred = {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}

    def requests(**notes: object) -> list[object]:
        declared["annotations"] = {
            f"{prefix}-{name.replace('_', '-')}": value for name, value in notes.items()
        }
        return [each.get("topologyRequest") for each in pod_sets_of(row, job)]

    assert requests() == [None, inferred]
    assert requests(pod_index_label="a/rank") == [{"podIndexLabel": "a/rank"}, inferred]
    whole = {"podIndexLabel": "a/rank", "subGroupIndexLabel": "a/group", "subGroupCount": 3}
    numbers = {"pod_index_label": "a/rank", "sub_group_index_label": "a/group"}
    assert requests(**numbers, sub_group_count="3") == [whole, inferred]
    for odd in ("many", 7, None, "0"):
        found, _ = requests(**numbers, sub_group_count=odd)
        assert found == {"podIndexLabel": "a/rank", "subGroupIndexLabel": "a/group"}


def test_an_app_wrapper_has_failed_once_its_resources_are_gone() -> None:
    row, job = ROWS["AppWrapper"], obj("AppWrapper")
    deployed = {"type": "ResourcesDeployed", "status": "True"}
    job["status"] = {"phase": "Failed", "conditions": [deployed]}
    assert end(row, job) is None
    deployed["status"] = "False"
    over = end(row, job)
    assert over is not None
    assert (over.succeeded, over.message) == (False, "AppWrapper failed")


def test_a_train_job_patches_its_runtime_and_leaves_others_patches() -> None:
    row, job = ROWS["TrainJob"], obj("TrainJob")
    mine = {"manager": "user", "trainingRuntimeSpec": {}}
    job["spec"]["runtimePatches"] = [mine, {"manager": "kueue.x-k8s.io/manager"}]
    running = started(row, job, {"node": Injection(None, {"disk": "fast"}, (), {"a": "b"})})
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeSelector": {"disk": "fast"}}}
    inner = [{"name": "node", "template": {"spec": {"template": template}}}]
    assert running["spec"]["runtimePatches"] == [
        mine,
        {
            "manager": "kueue.x-k8s.io/manager",
            "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": inner}}},
        },
    ]
    after = restored(row, running, pod_sets_of(row, job))
    assert after["spec"]["runtimePatches"] == [mine, {"manager": "kueue.x-k8s.io/manager"}]


def test_a_train_job_is_its_runtime_with_what_it_says_otherwise() -> None:
    row, job = ROWS["TrainJob"], obj("TrainJob")
    del job["spec"]["trainer"]
    job[RUNTIME] = runtime(numNodes=3)
    assert shapes("TrainJob", job) == [("node", 3, "4")]
    job["spec"]["trainer"] = {"numNodes": 5, "image": "mine", "env": [{"name": "A", "value": "b"}]}
    toleration = {"key": "gpu"}
    pod = {"spec": {"tolerations": [toleration], "containers": [{"name": "side"}]}}
    jobs = [{"name": "node", "template": {"spec": {"template": pod}}}]
    patch = {"template": {"spec": {"replicatedJobs": jobs}}}
    job["spec"]["runtimePatches"] = [{"manager": "user", "trainingRuntimeSpec": patch}]
    (found,) = pod_sets_of(row, job)
    main, side = found["template"]["spec"]["containers"]
    assert (main["image"], main["env"], side) == (
        "mine",
        [{"name": "A", "value": "b"}],
        {"name": "side"},
    )
    assert found["template"]["spec"]["tolerations"] == [toleration]
    del job[RUNTIME]
    assert pod_sets_of(row, job) == []


def test_a_ray_head_counts_what_its_controller_adds() -> None:
    job = obj("RayJob")
    del job["spec"]["submitterPodTemplate"]
    assert shapes("RayJob", job)[-1] == ("submitter", 1, "500m")
    job["spec"]["submissionMode"] = "SidecarMode"
    assert shapes("RayJob", job) == [("head", 1, "500m+500m"), ("small", 2, "500m")]
    job["spec"]["submissionMode"] = "HTTPMode"
    job["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"] = True
    assert shapes("RayJob", job) == [("head", 1, "500m+500m"), ("small", 2, "500m")]
    row = ROWS["RayJob"]
    pod_sets = pod_sets_of(row, job)
    running = started(row, job, {"head": TOLD, "small": TOLD})
    assert restored(row, running, pod_sets) == {**job, "spec": {**job["spec"], "suspend": False}}


@pytest.mark.parametrize(
    ("kind", "at"),
    [("RayCluster", ()), ("RayJob", ("rayClusterSpec",)), ("RayService", ("rayClusterConfig",))],
)
def test_a_ray_head_asks_for_what_cleaning_up_its_redis_takes(
    kind: str, at: tuple[str, ...]
) -> None:
    def asked(job: Json) -> Any:
        (head,) = (each for each in pod_sets_of(ROWS[kind], job) if each["name"] == "head")
        spec = msgspec.convert(head["template"]["spec"], kueue.PodSpec)
        return pod_requests(spec)

    job = obj(kind)
    cluster = job["spec"][at[0]] if at else job["spec"]
    (container,) = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    container["resources"] = {"requests": {"cpu": "100m"}}
    assert asked(job) == {"cpu": 100}
    job["metadata"]["annotations"] = {"ray.io/ft-enabled": "true"}
    assert asked(job) == {"cpu": 200, "memory": 256 * 2**20}
    del job["metadata"]["annotations"]
    cluster["gcsFaultToleranceOptions"] = {"redisAddress": "redis:6379"}
    container["resources"] = {"requests": {"cpu": "4", "memory": "1Gi"}}
    assert asked(job) == {"cpu": 4000, "memory": 2**30}
    pod_sets = pod_sets_of(ROWS[kind], job)
    told = {each["name"]: TOLD for each in pod_sets}
    running = started(ROWS[kind], stopped(ROWS[kind], job), told)
    assert restored(ROWS[kind], stopped(ROWS[kind], running), pod_sets) == stopped(ROWS[kind], job)


def test_a_ray_job_says_when_it_ends_waits_or_is_nobodys_business() -> None:
    row, job = ROWS["RayJob"], obj("RayJob")
    for state, word, over in (
        ("Running", "SUCCEEDED", None),
        ("Complete", "SUCCEEDED", True),
        ("Failed", "FAILED", False),
        ("Complete", "STOPPED", False),
    ):
        job["status"] = {"jobDeploymentStatus": state, "jobStatus": word, "message": "m"}
        found = end(row, job)
        assert (None if found is None else found.succeeded) is over
    job["status"] = {"jobDeploymentStatus": "ValidationFailed"}
    assert is_on_hold(row, job)
    assert is_managed(row, job)
    job["spec"]["clusterSelector"] = {"ray.io/cluster": "mine"}
    assert not is_managed(row, job)


def test_spark_pods_are_counted_with_what_spark_adds() -> None:
    job = obj("SparkApplication")
    job["spec"]["driver"] |= {
        "memory": "512m",
        "coreLimit": "2",
        "gpu": {"name": "g", "quantity": 1},
    }
    job["spec"]["executor"] |= {"memory": "2g", "sidecars": [{"name": "s"}]}
    driver, executor = pod_sets_of(ROWS["SparkApplication"], job)
    (container,) = driver["template"]["spec"]["containers"]
    assert container == {
        "name": "spark-kubernetes-driver",
        "resources": {
            "requests": {"cpu": "1", "memory": "896Mi"},
            "limits": {"cpu": "2", "g": "1"},
        },
    }
    main, side = executor["template"]["spec"]["containers"]
    assert main["resources"]["requests"] == {"cpu": "500m", "memory": "2867Mi"}
    assert side == {"name": "s"}


def test_groups_without_a_leader_of_their_own_are_of_one_shape() -> None:
    job = obj("LeaderWorkerSet")
    del job["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    assert shapes("LeaderWorkerSet", job) == [("main", 2, "1")]


def test_replicas_that_have_succeeded_free_their_pods() -> None:
    job = obj("JobSet")
    job["spec"]["replicatedJobs"][1]["template"]["spec"] |= {"parallelism": 3, "completions": 4}
    states = [{"name": "workers", "succeeded": 1}, {"name": "driver", "succeeded": 0}]
    job["status"] = {"replicatedJobsStatus": states}
    assert reclaimable(ROWS["JobSet"], job) == [("workers", 3)]
    train = obj("TrainJob")
    train["status"] = {"jobsStatus": [{"name": "node", "succeeded": 1}]}
    assert reclaimable(ROWS["TrainJob"], train) == [("node", 2)]


@pytest.mark.parametrize(
    ("spec", "status", "surplus"),
    [
        ({"parallelism": 3, "completions": 5}, {"succeeded": 1}, 0),
        ({"parallelism": 3, "completions": 5}, {"succeeded": 3}, 1),
        ({"parallelism": 1, "completions": 5}, {"succeeded": 5}, 0),
        (
            {"parallelism": 3, "completions": 5, "completionMode": "Indexed"},
            {"succeeded": 1, "completedIndexes": "0,2-3", "failedIndexes": "3"},
            1,
        ),
    ],
)
def test_the_last_pods_of_a_job_are_fewer(spec: Json, status: Json, surplus: int) -> None:
    job = {"spec": {**spec, "template": template()}, "status": status}
    wanted = [("main", surplus)] if surplus else []
    assert reclaimable(ROWS["Job"], job) == wanted


@pytest.mark.parametrize(("done", "left"), [(1, 6), (2, 6), (3, 3), (5, 1)])
def test_the_last_pods_of_a_job_admitted_with_fewer_are_counted_from_its_workload(
    done: int, left: int
) -> None:
    spec = {"parallelism": 4, "completions": 6, "template": template()}
    job = {"spec": spec, "status": {"succeeded": done}}
    surplus = dict(reclaimable(ROWS["Job"], job, {"main": 6}))
    assert 6 - surplus.get("main", 0) == left


def test_a_job_that_another_controller_left_half_stopped_counts_as_running() -> None:
    row, job = ROWS["Job"], stopped(ROWS["Job"], obj("Job"))
    job["metadata"]["annotations"] = {"kueue.x-k8s.io/stopping": "true"}
    assert not is_suspended(row, job)
    assert is_suspended(row, stopped(row, job))


def test_tolerations_tell_a_changed_job_only_before_it_runs() -> None:
    row, job = ROWS["Job"], obj("Job")
    before = pod_sets_of(row, job)
    job["spec"]["template"]["spec"]["tolerations"] = [{"key": "a"}]
    after = pod_sets_of(row, job)
    assert digest(before) == digest(after)
    assert digest(before, tolerations=True) != digest(after, tolerations=True)


def test_kinds_are_queued_that_are_listed_with_the_pods_that_they_make() -> None:
    names = [kind.kind for kind in queued_kinds(("batch/job", "pod"), {})]
    assert names == ["Job", "Pod"]
    job, deployment, pod = queued_kinds(("batch/job", "deployment"), {})
    assert (job.kind, deployment.kind, pod.kind, pod.children_only) == (
        "Job",
        "Deployment",
        "Pod",
        True,
    )
    spark = ("sparkoperator.k8s.io/sparkapplication",)
    assert queued_kinds(spark, {}) == ()
    assert gated_off(spark, {}) == ((*spark, "SparkApplicationIntegration"),)
    assert gated_off(spark, {"SparkApplicationIntegration": True}) == ()
    assert gated_off(("batch/job",), {}) == ()
    assert len(queued_kinds(spark, {"SparkApplicationIntegration": True})) == 1


def test_every_kind_with_a_suspend_field_tells_when_its_quota_is_free() -> None:
    for kind in SUSPENDABLE:
        assert not is_active(ROWS[kind], obj(kind)) and ROWS[kind].active


@pytest.mark.parametrize("kind", ["Job", "Pod", "StatefulSet"])
def test_a_variable_that_a_container_names_twice_is_named_once_by_the_workload(kind: str) -> None:
    values = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "A", "value": "3"}]
    pod = {"spec": {"containers": [{"name": "c", "env": values}]}}
    job: Json = {"metadata": {"name": "a"}, "spec": {"template": pod, "replicas": 1}}
    (found,) = pod_sets_of(ROWS[kind], {"metadata": {}, **pod} if kind == "Pod" else job)
    (container,) = found["template"]["spec"]["containers"]
    assert {each["name"]: each["value"] for each in container["env"]} == {"A": "3", "B": "2"}
    assert len(container["env"]) == 2
    assert len(values) == 3


@pytest.mark.parametrize("odd", [["x"], "x", 5])
def test_odd_annotations_of_a_template_ask_for_no_topology(odd: object) -> None:
    row, job = ROWS["Job"], obj("Job")
    plain = pod_sets_of(row, job)
    job["spec"]["template"].setdefault("metadata", {})["annotations"] = odd
    assert [set(each) for each in pod_sets_of(row, job)] == [set(each) for each in plain]


@pytest.mark.parametrize(
    ("group", "pods"),
    [
        ({}, 1),
        ({"replicas": 0, "minReplicas": 3}, 3),
        ({"minReplicas": 2, "numOfHosts": 4}, 8),
        ({"replicas": 5, "maxReplicas": 4}, 4),
        ({"replicas": 2, "minReplicas": 1, "maxReplicas": 4}, 2),
        ({"replicas": 0, "minReplicas": 0}, 0),
    ],
)
def test_workers_of_ray_are_counted_within_their_bounds(group: dict[str, int], pods: int) -> None:
    """As their operator makes them, whatever `replicas` states."""
    job = obj("RayCluster")
    worker = job["spec"]["workerGroupSpecs"][0]
    for name in ("replicas", "minReplicas", "maxReplicas", "numOfHosts"):
        worker.pop(name, None)
    worker |= group
    (_, found) = pod_sets_of(ROWS["RayCluster"], job)
    made = FAMILIES["rayclusters.ray.io"].make("name", job["spec"])
    assert found["count"] == pods
    assert [each.count for each in made if isinstance(each, Pods)] == [1, pods]
