"""Workloads and pod groups: three versions of one object, what may change, and their priority."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kubelocal.cluster import EmbeddedCluster
from kubelocal.errors import UsageError
from kubelocal.server.types.gates import DEFAULTS
from kubelocal.tests.server.builders import PODS, Client, job, pod

GROUP = "scheduling.k8s.io"
BETA, ALPHA_3, ALPHA_2 = (f"{GROUP}/{version}" for version in ("v1beta1", "v1alpha3", "v1alpha2"))


def path(kind: str, name: str = "", version: str = BETA) -> str:
    plural = {"PodGroup": "podgroups", "Workload": "workloads"}[kind]
    return f"/apis/{version}/namespaces/default/{plural}" + (f"/{name}" if name else "")


def pod_group(name: str = "g", version: str = BETA, **spec: Any) -> dict[str, Any]:
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    return {
        "apiVersion": version,
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {**policy, **spec},
    }


def workload(*templates: dict[str, Any], version: str = BETA, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": version,
        "kind": "Workload",
        "metadata": {"name": "w"},
        "spec": {"podGroupTemplates": list(templates), **spec},
    }


def template(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"name": name, "schedulingPolicy": {"gang": {"minCount": 2}}, **more}


def priority_class(name: str, value: int, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **more,
    }


@asynccontextmanager
async def serving(gates: Mapping[str, bool] | None = None, **options: Any) -> Any:
    async with (
        EmbeddedCluster(feature_gates=gates, **options) as cluster,
        Client(cluster) as client,
    ):
        yield client


async def refused(client: Client, obj: dict[str, Any], where: str = "") -> tuple[int, str]:
    where = where or path(obj["kind"], version=obj["apiVersion"])
    code, body = await client.request("POST", where, obj)
    assert code >= 400, body
    return code, str(body["message"])


async def test_each_version_shows_the_same_pod_group_in_its_own_fields(client: Client) -> None:
    reference = {"workloadName": "w", "templateName": "t"}
    await client.create(
        path("PodGroup"), pod_group(workloadRef=reference, disruptionMode={"all": {}})
    )
    older = await client.get(path("PodGroup", "g", ALPHA_2))
    assert older["apiVersion"] == ALPHA_2
    assert older["spec"] == {
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "disruptionMode": "PodGroup",
        "priority": 0,
        "podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}},
    }
    newer = await client.get(path("PodGroup", "g", ALPHA_3))
    assert newer["apiVersion"] == ALPHA_3
    assert newer["spec"]["workloadRef"] == reference
    assert newer["spec"]["disruptionMode"] == {"all": {}}
    (listed,) = (await client.get(path("PodGroup", version=ALPHA_2)))["items"]
    assert listed["spec"] == older["spec"]
    stream = await client.watch(path("PodGroup", version=ALPHA_2), resourceVersion="0")
    (event,) = await stream.take(1)
    assert event["object"]["spec"] == older["spec"]
    stream.close()


async def test_what_v1alpha2_creates_is_kept_as_v1beta1_with_its_defaults(client: Client) -> None:
    made = await client.create(path("PodGroup", version=ALPHA_2), pod_group(version=ALPHA_2))
    assert made["spec"]["disruptionMode"] == "Pod"
    assert made["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]
    kept = await client.get(path("PodGroup", "g"))
    assert kept["spec"]["disruptionMode"] == {"single": {}}


async def test_a_write_through_v1alpha2_keeps_what_it_cannot_say() -> None:
    async with serving({"PodGroupPreemptionPolicy": True, "CompositePodGroup": True}) as client:
        reference = {"workloadName": "w", "templateName": "t"}
        spec: dict[str, Any] = {"parentCompositePodGroupName": "up", "workloadRef": reference}
        await client.create(path("PodGroup"), pod_group(**spec))
        older = await client.get(path("PodGroup", "g", ALPHA_2))
        assert not {"parentCompositePodGroupName", "preemptionPolicy"} & older["spec"].keys()
        older["spec"]["schedulingPolicy"]["gang"]["minCount"] = 5
        code, answer = await client.request("PUT", path("PodGroup", "g", ALPHA_2), older)
        assert (code, answer["spec"]["schedulingPolicy"]) == (200, {"gang": {"minCount": 5}})
        kept = (await client.get(path("PodGroup", "g")))["spec"]
        assert kept["parentCompositePodGroupName"] == "up"
        assert kept["preemptionPolicy"] == "PreemptLowerPriority"
        assert kept["schedulingPolicy"] == {"gang": {"minCount": 5}}

        await client.create(path("Workload"), workload(template(preemptionPolicy="Never")))
        change = {"metadata": {"labels": {"a": "b"}}}
        await client.merge(path("Workload", "w", ALPHA_2), change)
        kept = await client.get(path("Workload", "w"))
        assert kept["metadata"]["labels"] == {"a": "b"}
        assert kept["spec"]["podGroupTemplates"][0]["preemptionPolicy"] == "Never"
        await client.request("DELETE", path("PodGroup", "g", ALPHA_2))
        kept = await client.get(path("PodGroup", "g"))
        assert kept["metadata"]["deletionTimestamp"]
        assert kept["spec"]["parentCompositePodGroupName"] == "up"


async def test_a_version_that_is_not_served_is_still_what_objects_are_kept_in() -> None:
    async with serving(without=[BETA, ALPHA_3]) as client:
        await client.create(path("PodGroup", version=ALPHA_2), pod_group(version=ALPHA_2))
        found = await client.get(path("PodGroup", "g", ALPHA_2))
        assert found["spec"]["disruptionMode"] == "Pod"
        code, _ = await client.request("GET", path("PodGroup", "g"))
        assert code == 404
        group = await client.get(f"/apis/{GROUP}")
        assert [one["version"] for one in group["versions"]] == ["v1", "v1alpha2"]


async def test_the_condition_has_the_name_of_the_version(client: Client) -> None:
    await client.create(path("PodGroup"), pod_group())
    condition = {
        "status": "True",
        "reason": "Scheduled",
        "message": "ok",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    for version, name, other, seen in (
        (ALPHA_2, "PodGroupScheduled", BETA, "PodGroupInitiallyScheduled"),
        (ALPHA_3, "PodGroupInitiallyScheduled", ALPHA_2, "PodGroupScheduled"),
    ):
        status = {"status": {"conditions": [{**condition, "type": name}]}}
        answer = await client.merge(f"{path('PodGroup', 'g', version)}/status", status)
        assert [one["type"] for one in answer["status"]["conditions"]] == [name]
        found = await client.get(path("PodGroup", "g", other))
        assert found["status"]["conditions"] == [{**condition, "type": seen}]


async def test_v1alpha2_is_refused_in_its_own_words(client: Client) -> None:
    bad = pod_group(
        version=ALPHA_2,
        disruptionMode="Group",
        podGroupTemplateRef={"workload": {"workloadName": "w"}},
    )
    code, message = await refused(client, bad)
    assert code == 422
    assert (
        'spec.disruptionMode: Unsupported value: "Group": supported values: "Pod", "PodGroup"'
        in message
    )
    field = "spec.podGroupTemplateRef.workload.podGroupTemplateName"
    assert f"{field}: Required value" in message


async def test_status_at_creation_and_spec_through_status_are_dropped(client: Client) -> None:
    made = await client.create(path("PodGroup"), pod_group() | {"status": {"conditions": []}})
    assert made["status"] == {}
    change = {"spec": {"schedulingPolicy": {"gang": {"minCount": 9}}}}
    answer = await client.merge(f"{path('PodGroup', 'g')}/status", change)
    assert answer["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        (
            {"resourceClaims": [{"name": "a"}]},
            (
                'spec.resourceClaims[0]: Invalid value: "": must specify one of: '
                "`resourceClaimName`, `resourceClaimTemplateName`"
            ),
        ),
        (
            {"resourceClaims": [{"name": f"c{i}", "resourceClaimName": "x"} for i in range(5)]},
            "spec.resourceClaims: Too many: 5: must have at most 4 items",
        ),
        ({"parentCompositePodGroupName": "up"}, "spec.parentCompositePodGroupName: Forbidden"),
        (
            {"workloadRef": {"workloadName": "w", "templateName": "a.b"}},
            'spec.workloadRef.templateName: Invalid value: "a.b"',
        ),
    ],
)
async def test_pod_groups_that_are_refused(
    client: Client, spec: dict[str, Any], cause: str
) -> None:
    code, message = await refused(client, pod_group(**spec))
    assert code == 422
    assert cause in message


@pytest.mark.parametrize(
    ("obj", "cause"),
    [
        (
            workload(*(template(f"t{i}") for i in range(9))),
            "spec.podGroupTemplates: Too many: 9: must have at most 8 items",
        ),
        (
            workload(template("a", priority=1), template("b", priority=2)),
            "spec: Invalid value: null: detected multiple priority configurations",
        ),
        (
            workload(template(), controllerRef={"kind": "a/b", "name": "x"}),
            "spec.controllerRef.kind: Invalid value: \"a/b\": may not contain '/'",
        ),
        (
            workload(compositePodGroupTemplates=[template()]),
            "spec.compositePodGroupTemplates: Forbidden",
        ),
        (workload(template("A")), 'spec.podGroupTemplates[0].name: Invalid value: "A"'),
    ],
)
async def test_workloads_that_are_refused(client: Client, obj: dict[str, Any], cause: str) -> None:
    code, message = await refused(client, obj)
    assert code == 422
    assert cause in message


async def test_of_a_workload_only_the_minimum_may_change(client: Client) -> None:
    reference = {"apiGroup": "batch", "kind": "Job", "name": "j"}
    await client.create(path("Workload"), workload(template(), controllerRef=reference))

    async def change(*templates: dict[str, Any], **spec: Any) -> tuple[int, str]:
        wanted = {"podGroupTemplates": list(templates), "controllerRef": reference, **spec}
        code, body = await client.request(
            "PATCH",
            path("Workload", "w"),
            {"spec": wanted},
            "application/merge-patch+json",
        )
        return code, str(body.get("message", ""))

    code, message = await change(template(), template("b"))
    assert (code, "spec.podGroupTemplates[1]: Forbidden: item may not be added" in message) == (
        422,
        True,
    )
    code, message = await change(template("b"))
    assert code == 422
    assert "spec.podGroupTemplates: Forbidden: item may not be removed" in message
    code, message = await change(template(disruptionMode={"all": {}}))
    assert code == 422
    assert "spec.podGroupTemplates[0].disruptionMode: Invalid value: null" in message
    code, message = await change(template(), controllerRef={**reference, "name": "k"})
    assert code == 422
    assert "spec.controllerRef: Invalid value: null: field is immutable" in message
    more: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": 7}}}
    assert await change(template(**more)) == (200, "")


async def test_a_gang_cannot_be_set_once_created(client: Client) -> None:
    await client.create(path("PodGroup"), pod_group(schedulingPolicy={"basic": {}}))
    code, body = await client.request(
        "PATCH",
        path("PodGroup", "g"),
        {"spec": {"schedulingPolicy": {"basic": None, "gang": {"minCount": 1}}}},
        "application/merge-patch+json",
    )
    assert code == 422
    assert "gang: Invalid value: null: field cannot be set once created" in body["message"]


async def test_groups_take_priority_and_policy_of_their_class() -> None:
    async with serving({"PodGroupPreemptionPolicy": True}) as client:
        classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
        await client.create(classes, priority_class("low", -5, globalDefault=True))
        await client.create(classes, priority_class("calm", 7, preemptionPolicy="Never"))
        made = await client.create(path("PodGroup"), pod_group())
        assert made["spec"]["priorityClassName"] == "low"
        assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (
            -5,
            "PreemptLowerPriority",
        )
        made = await client.create(path("PodGroup"), pod_group("c", priorityClassName="calm"))
        assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (7, "Never")
        asked = {"priorityClassName": "calm", "preemptionPolicy": "PreemptLowerPriority"}
        assert await refused(client, pod_group("d", **asked)) == (
            403,
            (
                'podgroups.scheduling.k8s.io "d" is forbidden: the string value of '
                "PreemptionPolicy (PreemptLowerPriority) must not be provided in pod group "
                "spec; priority admission controller computed Never from the given "
                "PriorityClass name"
            ),
        )
        assert await refused(client, pod_group("d", priority=3)) == (
            403,
            (
                'podgroups.scheduling.k8s.io "d" is forbidden: priority set in the pod group (3) '
                "must match the priority computed (-5) based on the priority class set in the spec"
            ),
        )
        second = priority_class("other", 1, globalDefault=True)
        assert await refused(client, second, classes) == (
            403,
            (
                'priorityclasses.scheduling.k8s.io "other" is forbidden: PriorityClass low is '
                "already marked as default. Only one default can exist"
            ),
        )
        code, message = await refused(
            client,
            pod_group("e", priorityClassName="system-node-critical", priority=2_000_001_000),
        )
        assert code == 422
        assert "spec.priority: Invalid value: 2000001000: must be less than or equal to" in message


async def test_a_pod_that_names_no_group_has_no_scheduling_group(client: Client) -> None:
    assert await refused(client, pod(schedulingGroup={}), PODS) == (
        422,
        (
            'Pod "a" is invalid: spec.schedulingGroup: Invalid value: "": must specify one of: '
            "`podGroupName`"
        ),
    )


async def test_without_generic_workload_groups_are_not_served_and_pods_have_none() -> None:
    async with serving({"GenericWorkload": False}) as client:
        for version in (BETA, ALPHA_3, ALPHA_2):
            code, _ = await client.request("GET", path("PodGroup", version=version))
            assert code == 404
        made = await client.create(PODS, pod(schedulingGroup={"podGroupName": "g"}))
        assert "schedulingGroup" not in made["spec"]


async def test_a_gate_that_is_switched_off_leaves_stored_fields_alone(tmp_path: Any) -> None:
    group: dict[str, Any] = {"schedulingConstraints": {"topology": [{"key": "example.com/rack"}]}}
    async with serving(data=tmp_path) as client:
        await client.create(PODS, pod(schedulingGroup={"podGroupName": "g"}))
        await client.create(path("PodGroup"), pod_group(**group))
    async with serving({"GenericWorkload": False}, data=tmp_path) as client:
        found = await client.merge(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}})
        assert found["spec"]["schedulingGroup"] == {"podGroupName": "g"}
    async with serving({"TopologyAwareWorkloadScheduling": False}, data=tmp_path) as client:
        found = await client.merge(path("PodGroup", "g"), {"metadata": {"labels": {"x": "y"}}})
        assert found["spec"]["schedulingConstraints"] == group["schedulingConstraints"]
        made = await client.create(path("PodGroup"), pod_group("h", **group))
        assert "schedulingConstraints" not in made["spec"]


async def test_a_namespace_goes_with_groups_that_are_not_served_any_more(tmp_path: Any) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    async with serving(data=tmp_path) as client:
        await client.create("/api/v1/namespaces", namespace)
        await client.create(f"/apis/{BETA}/namespaces/team/podgroups", pod_group())
    async with serving({"GenericWorkload": False}, data=tmp_path) as client:
        await client.request("DELETE", "/api/v1/namespaces/team")
        code, _ = await client.request("GET", "/api/v1/namespaces/team")
        assert code == 404


async def test_a_preemption_policy_is_dropped_while_its_gate_is_off(client: Client) -> None:
    made = await client.create(path("PodGroup"), pod_group(preemptionPolicy="Never"))
    assert "preemptionPolicy" not in made["spec"]


async def test_strict_disruption_mode_refuses_all_with_the_basic_policy() -> None:
    basic: dict[str, Any] = {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}}
    text = "Forbidden: disruption mode all requires the gang scheduling policy"
    async with serving(strict_disruption_mode=True) as client:
        code, message = await refused(client, pod_group(**basic))
        assert (code, f"spec.disruptionMode: {text}" in message) == (422, True)
        code, message = await refused(client, workload(template(), template("b", **basic)))
        assert code == 422
        assert f"spec.podGroupTemplates[1].disruptionMode: {text}" in message
        await client.create(path("PodGroup"), pod_group(disruptionMode={"all": {}}))
    async with serving() as client:
        await client.create(path("PodGroup"), pod_group(**basic))


async def test_composite_groups_are_served_with_their_gate() -> None:
    where = f"/apis/{ALPHA_3}/namespaces/default/compositepodgroups"
    group = {
        "apiVersion": ALPHA_3,
        "kind": "CompositePodGroup",
        "metadata": {"name": "up"},
        "spec": {"schedulingPolicy": {"gang": {"minGroupCount": 2}}},
    }
    async with serving({"CompositePodGroup": True}) as client:
        made = await client.create(where, group)
        assert made["spec"]["disruptionMode"] == {"single": {}}
        assert "finalizers" not in made["metadata"]
        group["spec"] = {"schedulingPolicy": {"gang": {}}}
        _, message = await refused(client, group, where)
        assert "spec.schedulingPolicy.gang.minGroupCount: Required value" in message
    async with serving() as client:
        code, _ = await client.request("GET", where)
        assert code == 404


def test_the_guide_names_every_gate_with_its_default() -> None:
    guide = (Path(__file__).parents[4] / "docs/cluster.md").read_text(encoding="utf-8")
    for name, on in DEFAULTS.items():
        if name not in ("WorkloadAwarePreemption", "GangScheduling"):
            assert f"| `{name}` | {'on' if on else 'off'} |" in guide


def test_unknown_and_unusable_gates_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"Gang; accepted: .*GenericWorkload"):
        EmbeddedCluster(feature_gates={"Gang": True})
    with pytest.raises(UsageError, match="CompositePodGroup needs GenericWorkload, "):
        EmbeddedCluster(
            feature_gates={
                "CompositePodGroup": True,
                "GenericWorkload": False,
                "TopologyAwareWorkloadScheduling": False,
            }
        )


@pytest.mark.parametrize(
    "given",
    [{}, {"priorityClassName": "low"}, {"priorityClassName": "none"}, {"priority": 7}],
)
async def test_the_priority_of_a_template_is_left_as_it_was_written(
    client: Client, given: dict[str, Any]
) -> None:
    """As a 1.37 server leaves it: groups get theirs when they are made."""
    await client.create("/apis/scheduling.k8s.io/v1/priorityclasses", priority_class("low", -5))
    made = await client.create(path("Workload"), workload(template(**given)))
    (kept,) = made["spec"]["podGroupTemplates"]
    assert {name: kept[name] for name in kept if name.startswith("priority")} == given


async def test_jobs_say_nothing_of_groups_while_their_gate_is_off(client: Client) -> None:
    gang = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    body = job("asks")
    body["spec"]["scheduling"] = gang
    made = await client.create("/apis/batch/v1/namespaces/default/jobs", body)
    assert "scheduling" not in made["spec"]
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": "default"},
        "spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": body["spec"]}},
    }
    made = await client.create("/apis/batch/v1/namespaces/default/cronjobs", cron)
    assert "scheduling" not in made["spec"]["jobTemplate"]["spec"]
