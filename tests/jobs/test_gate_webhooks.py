"""Webhooks of pods and of what stands on them."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from reprieve.jobs.naming import workload_name
from reprieve.jobs.pods import FINALIZER, MANAGED, PARENT, ROLE, SERVING, has_finalizer, is_gated
from reprieve.jobs.table import BUILT_IN, queued_kinds
from reprieve.jobs.training import MANAGER
from reprieve.planes.quota.webhooks.jobs import JobRules, job_hooks
from reprieve.planes.quota.webhooks.reviews import Asked, Hook, Verdict
from tests.jobs.builders import GATE, PREFIX, Json, pod, template
from tests.kueue.test_job_webhooks import CLASS, QUEUE, Town

TOWN = Town(queues=["q"], classes=[])


def hook(name: str, town: Town = TOWN, kinds: Any = BUILT_IN, **rules: Any) -> Hook:
    (found,) = (h for h in job_hooks(kinds, town, JobRules(**rules)) if h.name == f"{name}.kb.io")
    return found


def asked(obj: Json, old: Json | None = None) -> Asked:
    return Asked("CREATE" if old is None else "UPDATE", "team", obj, old)


def gate(obj: Json, town: Town = TOWN, kinds: Any = BUILT_IN, **rules: Any) -> Json:
    before = copy.deepcopy(obj)
    verdict = hook("mpod", town, kinds, **rules).judge(asked(obj))
    assert obj == before
    return obj if verdict.changed is None else verdict.changed


def free(**more: Any) -> Json:
    return pod(finalizer=False, **more)


def queued(**more: Any) -> Json:
    return free(labels={"queue-name": "q"}, **more)


def owned(obj: Json, api_version: str, kind: str) -> Json:
    owner = {"apiVersion": api_version, "kind": kind, "name": "o", "uid": "o", "controller": True}
    obj["metadata"]["ownerReferences"] = [owner]
    return obj


def test_a_pod_with_a_queue_is_gated_in_managed_namespaces() -> None:
    made = gate(queued())
    assert is_gated(made, GATE) and has_finalizer(made)
    assert made["metadata"]["labels"] == {QUEUE: "q", MANAGED: "true"}
    assert gate(queued(), Town(managed=())) == queued()
    assert gate(free()) == free()
    assert is_gated(gate(free(), without_queue_name=True), GATE)


def test_the_default_queue_and_class_are_filled_in_before_a_pod_is_gated() -> None:
    town = Town(queues=["default"], classes=["default"])
    labels = gate(free(), town)["metadata"]["labels"]
    assert labels == {QUEUE: "default", CLASS: "default", MANAGED: "true"}


def test_a_pod_below_a_queued_job_runs_with_it() -> None:
    assert gate(queued(), Town(below=True)) == queued()
    default = Town(queues=["default"], owned=True)
    assert gate(free(), default) == free()
    # What stands above an owner of a kind that is not listed is not known at the door.
    some = queued_kinds(("ray.io/rayjob", "pod"), {})
    town = Town(queues=["default"])
    inner = owned(free(), "ray.io/v1", "RayCluster")
    assert gate(inner, town, some) == inner
    assert is_gated(gate(owned(free(), "ray.io/v1", "RayCluster"), town, pods_alone()), GATE)
    assert is_gated(gate(owned(queued(), "ray.io/v1", "RayCluster"), town, some), GATE)


def pods_alone() -> Any:
    return queued_kinds(("pod",), {})


def test_a_pod_whose_template_names_a_parent_is_gated_anywhere_and_not_kept() -> None:
    below = free(notes={"pod-suspending-parent": "statefulset"})
    made = gate(below, Town(managed=()))
    assert is_gated(made, GATE) and not has_finalizer(made)
    assert MANAGED not in made["metadata"]["labels"]
    assert ROLE in made["metadata"]["annotations"]


OFFSET = "kueue.x-k8s.io/pod-index-offset"


def workload(kind: str, **labels: str) -> Json:
    inner: Json = {"template": template()}
    if kind == "LeaderWorkerSet":
        whole = {"size": 2, "leaderTemplate": template(), "workerTemplate": template()}
        inner = {"replicas": 1, "leaderWorkerTemplate": whole}
    return {"kind": kind, "metadata": {"name": "w", "labels": labels}, "spec": inner}


def test_templates_say_who_gates_their_pods() -> None:
    labels = {QUEUE: "q", CLASS: "high"}

    def told(kind: str) -> list[Json]:
        obj = workload(kind, **labels)
        changed = hook(f"m{kind.lower()}").judge(asked(obj)).changed
        assert changed is not None
        again = hook(f"m{kind.lower()}").judge(asked(changed, changed))
        assert again.changed is None
        whole = changed["spec"].get("leaderWorkerTemplate")
        parts = [changed["spec"]["template"]] if whole is None else list(whole.values())[1:]
        return [each["metadata"] for each in parts]

    assert told("Deployment") == [
        {"annotations": {PARENT: "deployment"}, "labels": {**labels, MANAGED: "true"}}
    ]
    assert told("StatefulSet") == [{"annotations": {PARENT: "statefulset"}}]
    lws = "leaderworkerset.x-k8s.io/leaderworkerset"
    said = {"annotations": {PARENT: lws, SERVING: "true"}, "labels": labels}
    first = {**said, "annotations": {**said["annotations"], OFFSET: "1"}}
    assert told("LeaderWorkerSet") == [said, first]
    plain = workload("StatefulSet")
    assert hook("mstatefulset").judge(asked(plain)).changed is None
    below = hook("mstatefulset", Town(below=True)).judge(asked(workload("StatefulSet", **labels)))
    assert below.changed is None


def test_templates_are_told_when_a_queue_is_named_later() -> None:
    before, after = workload("Deployment"), workload("Deployment", **{QUEUE: "q"})
    assert hook("mdeployment").operations == ("CREATE", "UPDATE")
    changed = hook("mdeployment").judge(asked(after, before)).changed
    assert changed is not None
    assert changed["spec"]["template"]["metadata"]["labels"][QUEUE] == "q"


def refused(kind: str, obj: Json, old: Json, town: Town = TOWN) -> tuple[str, ...]:
    return hook(f"v{kind.lower()}", town).judge(asked(obj, old)).errors


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "LeaderWorkerSet"])
def test_a_set_stays_in_its_queue_once_replicas_are_ready(kind: str) -> None:
    old, new = workload(kind, **{QUEUE: "a"}), workload(kind, **{QUEUE: "b"})
    assert refused(kind, new, old) == ()
    new["status"] = {"readyReplicas": 1}
    at = f"metadata.labels[{QUEUE}]"
    assert refused(kind, new, old) == (f'{at}: Invalid value: "b": field is immutable',)
    assert refused(kind, workload(kind), old) == (f'{at}: Invalid value: "": field is immutable',)


def test_a_stateful_set_is_scaled_to_nothing_and_back_alone() -> None:
    def scaled(replicas: int, there: int = 0) -> Json:
        obj = workload("StatefulSet", **{QUEUE: "q"})
        obj["spec"]["replicas"] = replicas
        obj["status"] = {"replicas": there}
        obj["metadata"] |= {"namespace": "team", "uid": "u"}
        return obj

    assert refused("StatefulSet", scaled(0), scaled(3)) == ()
    assert refused("StatefulSet", scaled(3), scaled(0)) == ()
    assert refused("StatefulSet", scaled(2), scaled(3)) == (
        "spec.replicas: Invalid value: 2: field is immutable",
    )
    assert refused("StatefulSet", scaled(3, there=1), scaled(0)) == (
        "spec.replicas: Forbidden: scaling down is still in progress",
    )
    name = workload_name("StatefulSet", "apps", scaled(3)["metadata"]["name"], "u")
    leaving = replace(TOWN, leaving=[f"team/{name}"])
    assert refused("StatefulSet", scaled(3), scaled(0), leaving) == (
        "spec.replicas: Forbidden: workload from previous scale-down is still being deleted",
    )
    assert refused("StatefulSet", scaled(0), scaled(3), leaving) == ()
    other = scaled(3)
    other["spec"]["template"] = template(cpu="7")
    (error,) = refused("StatefulSet", other, scaled(3))
    assert error.startswith("spec.template.spec: Invalid value: ")
    other["spec"]["template"] = template()
    other["spec"]["template"]["spec"]["containers"][0]["image"] = "another"
    assert refused("StatefulSet", other, scaled(3)) == ()


def test_the_groups_of_a_leader_worker_set_keep_their_size_and_shape() -> None:
    old, new = (workload("LeaderWorkerSet", **{QUEUE: "q"}) for _ in range(2))
    new["spec"]["leaderWorkerTemplate"]["size"] = 3
    assert refused("LeaderWorkerSet", new, old) == (
        "spec.leaderWorkerTemplate.size: Invalid value: 3: field is immutable",
    )
    new["spec"]["leaderWorkerTemplate"] |= {"size": 2, "workerTemplate": template(cpu="7")}
    (error,) = refused("LeaderWorkerSet", new, old)
    assert error.startswith("spec.leaderWorkerTemplate.workerTemplate.spec: Invalid value: ")
    new["spec"]["replicas"] = 7
    new["spec"]["leaderWorkerTemplate"]["workerTemplate"] = template()
    assert refused("LeaderWorkerSet", new, old) == ()


def validated(obj: Json, town: Town = TOWN, kinds: Any = BUILT_IN) -> Verdict:
    return hook("vpod", town, kinds).judge(asked(obj))


def test_a_pod_of_a_group_has_to_say_how_many_they_are() -> None:
    (error,) = validated(queued(notes={"pod-group-name": "g"})).errors
    assert "pod-group-total-count" in error
    assert validated(free()) == Verdict()


def test_a_managed_pod_below_a_managed_owner_is_warned() -> None:
    labelled = free(labels={"managed": "true"})
    (warning,) = validated(labelled, Town(owned=True)).warnings
    assert warning == (
        f"pod owner is managed by kueue, label '{PREFIX}managed=true' might lead to unexpected "
        "behaviour"
    )
    assert validated(labelled).warnings == ()


def test_a_pod_that_nobody_lets_go_is_told_so() -> None:
    kinds = queued_kinds(("deployment",), {})
    made = gate(queued(), kinds=kinds)
    assert is_gated(made, GATE)
    (warning,) = validated(made, kinds=kinds).warnings
    assert "integrations.frameworks" in warning
    below = gate(queued(notes={"pod-suspending-parent": "deployment"}), kinds=kinds)
    assert validated(below, kinds=kinds).warnings == ()


def test_kinds_that_are_not_listed_have_no_webhooks() -> None:
    names = {each.name for each in job_hooks(queued_kinds(("batch/job",), {}), TOWN)}
    assert names == {"mjob.kb.io", "vjob.kb.io", "vpodresize.kb.io"}
    names = {each.name for each in job_hooks(pods_alone(), TOWN)}
    assert names == {"mpod.kb.io", "vpod.kb.io", "vnotebook.kb.io", "vpodresize.kb.io"}


def test_a_train_job_has_a_patch_of_ours_from_its_creation_on() -> None:
    obj = {"metadata": {"name": "t"}, "spec": {"runtimePatches": [{"manager": "user"}]}}
    changed = hook("mtrainjob").judge(asked(obj)).changed
    assert changed is not None
    assert changed["spec"]["runtimePatches"] == [{"manager": "user"}, {"manager": MANAGER}]
    assert hook("mtrainjob").judge(asked(changed)).changed is None


def test_the_finalizer_is_that_of_the_managed_label() -> None:
    assert FINALIZER == MANAGED == "kueue.x-k8s.io/managed"


def test_a_ray_job_on_a_cluster_of_its_own_choice_is_not_suspended() -> None:
    labels = {"labels": {QUEUE: "q"}}
    obj = {"metadata": labels, "spec": {"clusterSelector": {"ray.io/cluster": "mine"}}}
    assert hook("mrayjob").judge(asked(obj)).changed is None
