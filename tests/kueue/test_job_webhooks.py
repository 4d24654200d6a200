"""Jobs at their creation and change, as the webhooks of their kinds see them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kubelocal.tests.server.builders import job as plain_job
from kubeworld.objects.paths import first
from reprieve.jobs.model import JobKind
from reprieve.jobs.table import BUILT_IN
from reprieve.jobs.training import RUNTIME
from reprieve.kube.errors import ApiError
from reprieve.kube.resource import Resource
from reprieve.planes.quota.webhooks.jobs import JobRules, job_hooks, selector_of
from reprieve.planes.quota.webhooks.reviews import Asked, Hook, Verdict, kueue_hooks
from reprieve.settings.quota_configuration import quota_configuration
from tests.kueue.objects import Json
from tests.kueue.webhooks import site, webhooks

QUEUE, CLASS = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"


@dataclass(frozen=True)
class Town:
    """A tenancy that is written down."""

    queues: Sequence[str] = ()
    classes: Sequence[str] = ()
    managed: Sequence[str] = ("team",)
    owned: bool = False
    below: bool = False
    above: tuple[JobKind, Json] | None = None
    hit: Sequence[str] = field(default=())
    leaving: Sequence[str] = field(default=())
    runtime: Json | None = None

    def manages(self, namespace: str) -> bool:
        return namespace in self.managed

    def has_local_queue(self, namespace: str, name: str) -> bool:
        return name in self.queues

    def has_priority_class(self, name: str) -> bool:
        return name in self.classes

    def has_managed_owner(self, namespace: str, job: Json) -> bool:
        return self.owned

    def has_ancestor(self, namespace: str, job: Json) -> bool:
        return self.below

    def set_above(self, namespace: str, pod: Json) -> tuple[JobKind, Json] | None:
        return self.above

    def can_be_hit(self, namespace: str, local_queue: str) -> Sequence[str]:
        return self.hit

    def resolved(self, kind: JobKind, job: Json) -> Json:
        return {**job, RUNTIME: self.runtime} if self.runtime else job

    def outgrown(self, namespace: str, pod: Json, before: Json) -> tuple[str, tuple[str, ...]]:
        return "", ()

    def is_leaving(self, workload: str) -> bool:
        return workload in self.leaving


def hook(name: str, town: Town, **rules: Any) -> Hook:
    (found,) = (h for h in job_hooks(BUILT_IN, town, JobRules(**rules)) if h.name == name)
    return found


def job(**labels: str) -> Json:
    metadata = {"name": "a", **({"labels": labels} if labels else {})}
    return {"metadata": metadata, "spec": {"template": {}}}


def created(town: Town, obj: Json, **rules: Any) -> Json:
    before = copy.deepcopy(obj)
    asked = Asked("CREATE", "team", obj)
    verdict = hook("mjob.kb.io", town, **rules).judge(asked)
    assert obj == before
    return obj if verdict.changed is None else verdict.changed


def labels(obj: Json) -> Json:
    return first(obj, "metadata.labels") or {}


def test_a_job_with_a_queue_is_suspended_in_any_namespace() -> None:
    made = created(Town(managed=()), job(**{QUEUE: "q"}))
    assert made["spec"] == {"template": {}, "suspend": True}
    assert labels(made) == {QUEUE: "q"}


def test_a_job_without_a_queue_is_left_alone() -> None:
    assert created(Town(), job()) == job()
    assert created(Town(managed=()), job(), without_queue_name=True) == job()


def test_jobs_without_a_queue_are_suspended_where_that_is_chosen() -> None:
    assert created(Town(), job(), without_queue_name=True)["spec"]["suspend"] is True


def test_a_job_below_a_queued_one_runs_with_it() -> None:
    assert created(Town(below=True), job(**{QUEUE: "q"})) == job(**{QUEUE: "q"})


def test_the_default_queue_and_class_are_filled_in() -> None:
    town = Town(queues=["default"], classes=["default"])
    made = created(town, job())
    assert labels(made) == {QUEUE: "default", CLASS: "default"}
    assert made["spec"]["suspend"] is True
    named = created(town, job(**{QUEUE: "mine", CLASS: "high"}))
    assert labels(named) == {QUEUE: "mine", CLASS: "high"}
    assert created(replace(town, managed=()), job()) == job(**{CLASS: "default"})
    assert created(replace(town, owned=True), job()) == job()
    assert CLASS not in labels(created(town, job(), default_classes=False))


@pytest.mark.parametrize("kind", [k for k in BUILT_IN if k.suspend], ids=lambda kind: kind.kind)
def test_every_kind_is_suspended_where_its_row_says(kind: Any) -> None:
    obj = {"metadata": {"name": "a", "labels": {QUEUE: "q"}}, "spec": {}}
    name = f"m{kind.kind.lower()}.kb.io"
    changed = hook(name, Town()).judge(Asked("CREATE", "team", obj)).changed
    assert first(changed, kind.suspend) is True


def test_rules_of_a_kind_hold_where_it_is_queued() -> None:
    judge = hook("vrayjob.kb.io", Town()).judge
    bare: Json = {"metadata": {"name": "a"}, "spec": {"rayClusterSpec": {}, "suspend": True}}
    assert judge(Asked("CREATE", "team", bare)).errors == ()
    queued = {**bare, "metadata": {"name": "a", "labels": {QUEUE: "main"}}}
    told = "spec.shutdownAfterJobFinishes: Invalid value: false: "
    for old in (None, bare, queued):
        (error,) = judge(Asked("UPDATE" if old else "CREATE", "team", queued, old)).errors
        assert error.startswith(told)


def test_rules_hold_for_jobs_without_a_queue_name_where_those_are_managed() -> None:
    bare: Json = {"metadata": {"name": "a"}, "spec": {"rayClusterSpec": {}, "suspend": True}}
    managing = hook("vrayjob.kb.io", Town(), without_queue_name=True).judge
    (error,) = managing(Asked("CREATE", "team", bare)).errors
    assert error.startswith("spec.shutdownAfterJobFinishes: Invalid value: false: ")
    assert managing(Asked("CREATE", "elsewhere", bare)).errors == ()
    below = hook("vrayjob.kb.io", Town(below=True), without_queue_name=True).judge
    assert below(Asked("CREATE", "team", bare)).errors == ()


def test_hooks_have_the_references_names_paths_and_operations() -> None:
    found = {each.name: each for each in job_hooks(BUILT_IN, Town(), JobRules(selector={"a": 1}))}
    assert len(found) == len(job_hooks(BUILT_IN, Town()))
    mutating, validating = found["mjob.kb.io"], found["vjob.kb.io"]
    assert (mutating.path, mutating.operations) == ("/mutate-batch-v1-job", ("CREATE",))
    assert validating.path == "/validate-batch-v1-job"
    assert validating.operations == ("CREATE", "UPDATE")
    assert found["vpod.kb.io"].path == "/validate--v1-pod"
    assert found["mjobset.kb.io"].path == "/mutate-jobset-x-k8s-io-v1alpha2-jobset"
    assert {each.failure_policy for each in found.values()} == {"Ignore"}
    assert {str(each.namespace_selector) for each in found.values()} == {"{'a': 1}"}


def updated(obj: Json, old: Json) -> Verdict:
    return hook("vjob.kb.io", Town()).judge(Asked("UPDATE", "team", obj, old))


def test_a_running_job_stays_in_its_queue() -> None:
    before, after = job(**{QUEUE: "a"}), job(**{QUEUE: "b"})
    assert updated(after, before).errors == (
        f'metadata.labels[{QUEUE}]: Invalid value: "b": field is immutable',
    )
    for each in (before, after):
        each["spec"]["suspend"] = True
    assert updated(after, before).errors == ()


def test_a_job_that_is_not_queued_is_not_judged() -> None:
    odd = job(**{"kueue.x-k8s.io/max-exec-time-seconds": "soon"})
    assert updated(odd, odd).errors == ()
    odd["metadata"]["labels"][QUEUE] = "q"
    assert len(updated(odd, odd).errors) == 1


HIT = ("withinClusterQueue: LowerPriority of ClusterQueue team",)


@pytest.mark.parametrize("name", ["vpod", "vdeployment", "vstatefulset", "vnotebook"])
def test_what_cannot_be_suspended_is_warned_of_a_queue_that_can_be_hit(name: str) -> None:
    judge = hook(f"{name}.kb.io", Town(hit=HIT)).judge
    queued = job(**{QUEUE: "door"})
    (warning,) = judge(Asked("CREATE", "team", queued)).warnings
    assert "cannot be suspended" in warning and "team/door" in warning and HIT[0] in warning
    assert judge(Asked("UPDATE", "team", queued, queued)) == Verdict()
    assert judge(Asked("CREATE", "team", job())) == Verdict()
    assert hook(f"{name}.kb.io", Town()).judge(Asked("CREATE", "team", queued)) == Verdict()


def test_the_selector_of_the_configuration_is_one_of_the_api() -> None:
    assert selector_of(quota_configuration(namespace="reprieve").selector) == {
        "matchExpressions": [
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": ["kube-system", "reprieve"],
            }
        ]
    }


async def test_a_real_job_is_suspended_and_kept_in_its_queue(tmp_path: Path) -> None:
    jobs = Resource("batch", "v1", "jobs", "Job")
    town = Town(queues=["default"], managed=["default"])
    async with site(tmp_path) as found:
        hooks = [*kueue_hooks(), *job_hooks(BUILT_IN, town)]
        async with webhooks(found.client, hooks=hooks):
            made: Json = await found.client.create(jobs, plain_job("train"), dict)
            assert made["spec"]["suspend"] is True
            assert made["metadata"]["labels"][QUEUE] == "default"
            run = {"spec": {"suspend": False}, "metadata": {"labels": {QUEUE: "other"}}}
            with pytest.raises(ApiError, match="field is immutable"):
                await found.client.patch(jobs, "default", "train", run, dict)
        # Gone, they keep nobody from working.
        free: Json = await found.client.create(jobs, plain_job("free"), dict)
        assert not free["spec"].get("suspend")


@pytest.mark.parametrize("name", ["Deployment", "StatefulSet", "LeaderWorkerSet"])
def test_a_pod_of_a_queued_set_is_gated_though_the_sets_template_does_not_say_so(name: str) -> None:
    (kind,) = (each for each in BUILT_IN if each.kind == name)
    above = kind, {"metadata": {"name": "web", "labels": {QUEUE: "q"}}}
    judge = next(
        each.judge
        for each in job_hooks(BUILT_IN, Town(above=above), JobRules())
        if each.mutating and each.resources == ("pods",)
    )
    changed = judge(Asked("CREATE", "team", {"metadata": {"name": "web-0"}, "spec": {}})).changed
    assert changed is not None
    assert {"name": "kueue.x-k8s.io/admission"} in changed["spec"]["schedulingGates"]
    said = first(changed, "metadata.annotations")
    assert said["kueue.x-k8s.io/pod-suspending-parent"] == kind.framework
    queue = (first(changed, "metadata.labels") or {}).get(QUEUE)
    assert queue == (None if name == "StatefulSet" else "q")


RACKS = {"kueue.x-k8s.io/podset-required-topology": "no such/name/"}
BAD = {"metadata": {"annotations": RACKS}, "spec": {"containers": [{"name": "c"}]}}
GOOD = {"spec": {"containers": [{"name": "c"}]}}
STEP = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
TRAINER = {"name": "node", "template": {"metadata": {"labels": STEP}, "spec": {"template": BAD}}}


@pytest.mark.parametrize(
    ("name", "spec", "where"),
    [
        ("vjob", {"template": BAD}, "spec.template.metadata.annotations"),
        (
            "vraycluster",
            {
                "headGroupSpec": {"template": GOOD},
                "workerGroupSpecs": [
                    {"groupName": "a", "template": GOOD},
                    {"groupName": "b", "template": BAD},
                ],
            },
            "spec.workerGroupSpecs[1].template.metadata.annotations",
        ),
        (
            "vrayjob",
            {"rayClusterSpec": {"headGroupSpec": {"template": BAD}}},
            "spec.rayClusterSpec.headGroupSpec.template.metadata.annotations",
        ),
        (
            "vpytorchjob",
            {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": BAD}}},
            "spec.pytorchReplicaSpecs[Worker].template.metadata.annotations",
        ),
        (
            "vmpijob",
            {"mpiReplicaSpecs": {"Worker": {"replicas": 2, "template": BAD}}},
            "spec.mpiReplicaSpecs[Worker].template.metadata.annotations",
        ),
        (
            "vsparkapplication",
            {"mode": "cluster", "driver": {"annotations": RACKS}, "executor": {"instances": 2}},
            "spec.driver.annotations",
        ),
        ("vtrainjob", {"runtimeRef": {"name": "torch"}}, "job[node].annotations"),
    ],
)
def test_what_is_asked_of_topologies_is_checked_in_templates_of_every_kind(
    name: str, spec: Json, where: str
) -> None:
    town = Town(runtime={"template": {"spec": {"replicatedJobs": [TRAINER]}}})
    asking = job(**{QUEUE: "q"})
    asking["spec"] = {"suspend": True, **spec}
    (told,) = (
        each
        for each in hook(f"{name}.kb.io", town).judge(Asked("CREATE", "team", asking, None)).errors
        if "podset-required-topology" in each
    )
    assert told.startswith(where + "[kueue.x-k8s.io/podset-required-topology]: Invalid value")
    assert told.endswith("spec.runtimePatches of the TrainJob") == (name == "vtrainjob")


def test_a_train_job_whose_runtime_is_not_known_yet_is_not_refused_for_its_templates() -> None:
    asking = job(**{QUEUE: "q"})
    asking["spec"] = {"suspend": True, "runtimeRef": {"name": "torch"}}
    asked = Asked("CREATE", "team", asking, None)
    assert hook("vtrainjob.kb.io", Town()).judge(asked).errors == ()
