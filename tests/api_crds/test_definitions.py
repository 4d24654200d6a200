"""The CustomResourceDefinitions, read as a user's manifests and `kubectl` meet them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from importlib import resources
from typing import Any

import jsonschema_rs
import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from reprieve.api import reprieve as records
from reprieve.api.crds import NAMES, UnknownCrd, all_crds, load
from reprieve.api.disruption import (
    Disruption,
    DisruptionDemand,
    DisruptionSpec,
    DisruptionStatus,
)
from reprieve.api.preemption_notice import (
    PreemptionNotice,
    PreemptionNoticeSpec,
    PreemptionNoticeStatus,
)
from reprieve.engine.demands import Half, Rejection
from reprieve.engine.idle.model import Aggregation, Phase, PreemptionPolicy
from reprieve.engine.notice.states import State
from reprieve.engine.plan import Plane, ProofLevel
from reprieve.records.plans.parts import Sizes, split

GPU_WORKLOADS, KAIWO_CONFIGS, PREEMPTIONS, PARTS, DISRUPTIONS, HARM_BUDGETS, NOTICES = NAMES


def version(name: str) -> dict[str, Any]:
    (only,) = load(name)["spec"]["versions"]
    return dict(only)


def schema(name: str, *path: str) -> Any:
    found = version(name)["schema"]["openAPIV3Schema"]
    for step in path:
        found = found[step] if step == "items" else found["properties"][step]
    return found


def errors(name: str, obj: dict[str, Any]) -> list[str]:
    """Return the paths at which `obj` is not accepted."""
    validator = jsonschema_rs.Draft202012Validator(schema(name), validate_formats=True)
    return sorted(
        ".".join(str(step) for step in error.instance_path) for error in validator.iter_errors(obj)
    )


def gpu_workload(**status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kaiwo.silogen.ai/v1alpha1",
        "kind": "GpuWorkload",
        "metadata": {"name": "job-train-0a1b2c3d", "namespace": "team"},
        "spec": {
            "workloadRef": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "train",
                "uid": "0a1b2c3d-0000-4000-8000-000000000000",
            },
            "gpuResources": {"amd.com/gpu": 4, "amd.com/gpu-0": 0},
        },
        "status": status,
    }


def changed(obj: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    copy = deepcopy(obj)
    *parents, last = path.split(".")
    inner = copy
    for step in parents:
        inner = inner.setdefault(step, {})
    inner[last] = value
    return copy


def properties(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for key, inner in node.get("properties", {}).items():
        yield f"{path}.{key}", inner
        yield from properties(inner, f"{path}.{key}")
    if "items" in node:
        yield f"{path}[]", node["items"]
        yield from properties(node["items"], f"{path}[]")


@pytest.mark.parametrize("name", NAMES)
def test_names_follow_from_group_and_plural(name: str) -> None:
    crd = load(name)
    assert crd["metadata"]["name"] == name
    assert f"{crd['spec']['names']['plural']}.{crd['spec']['group']}" == name
    assert crd["spec"]["names"]["listKind"] == f"{crd['spec']['names']['kind']}List"


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownCrd, match=f"accepted: {GPU_WORKLOADS}"):
        load("jobs.batch")


def test_each_load_is_a_fresh_object() -> None:
    load(GPU_WORKLOADS)["spec"].clear()
    assert [crd["metadata"]["name"] for crd in all_crds()] == list(NAMES)
    assert load(GPU_WORKLOADS)["spec"]


@pytest.mark.parametrize("name", NAMES)
def test_every_field_has_a_type_and_a_description(name: str) -> None:
    fields = dict(properties(schema(name)))
    fields.pop(".metadata")
    assert [path for path, field in fields.items() if not field.get("description")] == []
    assert [path for path, field in fields.items() if not field.get("type")] == []


@pytest.mark.parametrize("name", NAMES)
def test_sections_are_structural(name: str) -> None:
    """An API server refuses a definition with fixed properties and additionalProperties."""
    both = [
        path
        for path, field in properties(schema(name))
        if "properties" in field and "additionalProperties" in field
    ]
    assert both == []


def test_the_columns_of_gpu_workloads_stand_in_the_guides_order_with_ours_behind() -> None:
    columns = version(GPU_WORKLOADS)["additionalPrinterColumns"]
    assert [(c["name"], c["type"], c["jsonPath"], c.get("priority", 0)) for c in columns] == [
        ("Phase", "string", ".status.phase", 0),
        ("Utilization", "number", ".status.aggregatedUtilization", 0),
        ("Idle Since", "date", ".status.idleSince", 0),
        ("Owner", "string", ".spec.workloadRef.kind", 0),
        ("OwnerName", "string", ".spec.workloadRef.name", 0),
        ("Policy", "string", ".status.policy", 1),
        ("GPUs", "string", ".status.gpus", 1),
        ("Preempted For", "string", ".status.preemptedFor", 1),
        ("Metrics Age", "date", ".status.lastMetricsUpdate", 1),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_column_points_at_a_field(name: str) -> None:
    paths = {path for path, _ in properties(schema(name))} | {".metadata.creationTimestamp"}
    columns = version(name).get("additionalPrinterColumns", [])
    # One of a list, or the entry that a filter chooses, is one of its entries.
    assert {re.sub(r"\[[^\]]+\]", "[]", column["jsonPath"]) for column in columns} <= paths


def test_a_gpu_workload_as_the_guide_shows_it_is_accepted() -> None:
    workload = gpu_workload(
        phase="Idle",
        trackedPods=[
            {
                "podName": "train-x",
                "gpuMetrics": [
                    {"gpuId": "0", "utilization": 2.1, "lastUpdate": "2026-03-04T10:14:45Z"},
                    {"utilization": 0, "lastUpdate": "2026-03-04T10:14:45Z"},
                ],
            },
            {"podName": "train-y"},
        ],
        aggregatedUtilization=1.05,
        idleSince="2026-03-04T10:00:00Z",
        conditions=[
            {
                "type": "PhaseUpdated",
                "status": "True",
                "reason": "PhaseIdle",
                "message": "idle",
                "lastTransitionTime": "2026-03-04T10:00:00Z",
            }
        ],
    )
    spec = workload["spec"]
    spec |= {"utilizationThreshold": -1.5, "gracePeriod": "5m0s", "preemptionPolicy": "Always"}
    spec |= {"aggregationPolicy": "Avg", "ttlAfterFinished": "0"}
    assert errors(GPU_WORKLOADS, workload) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.workloadRef.name", ""),
        ("spec.gpuResources", {"amd.com/gpu": "4"}),
        ("spec.utilizationThreshold", "5"),
        ("spec.preemptionPolicy", "Never"),
        ("spec.aggregationPolicy", "max"),
        ("spec.gracePeriod", 300),
        ("status.phase", "Running"),
        ("status.idleSince", "yesterday"),
    ],
)
def test_a_gpu_workload_with_a_bad_field_is_refused_there(path: str, value: Any) -> None:
    (where,) = errors(GPU_WORKLOADS, changed(gpu_workload(), path, value))
    assert where.startswith(path)


@pytest.mark.parametrize("value", [-0.01, 100.01, 65535])
def test_an_impossible_utilization_cannot_be_stored(value: float) -> None:
    sample = {"utilization": value, "lastUpdate": "2026-03-04T10:14:45Z"}
    workload = gpu_workload(trackedPods=[{"podName": "train-x", "gpuMetrics": [sample]}])
    assert errors(GPU_WORKLOADS, workload) == ["status.trackedPods.0.gpuMetrics.0.utilization"]


def test_the_words_of_the_schema_are_those_of_the_engine() -> None:
    def words(name: str, *path: str) -> set[str]:
        return set(schema(name, *path)["enum"])

    assert words(GPU_WORKLOADS, "status", "phase") == set(Phase)
    assert words(GPU_WORKLOADS, "spec", "preemptionPolicy") == set(PreemptionPolicy)
    assert words(GPU_WORKLOADS, "spec", "aggregationPolicy") == set(Aggregation)
    defaults = ("spec", "gpuPreemption")
    assert words(KAIWO_CONFIGS, *defaults, "defaultPolicy") == set(PreemptionPolicy)
    assert words(KAIWO_CONFIGS, *defaults, "defaultAggregation") == set(Aggregation)
    assert words(PREEMPTIONS, "spec", "plane") == set(Plane)
    assert words(PREEMPTIONS, "spec", "proof", "level") == set(ProofLevel)
    assert words(PREEMPTIONS, "status", "phase") == set(records.IntentPhase)
    victims = ("spec", "victims", "items", "action")
    assert words(PREEMPTIONS, *victims) == set(records.Action)
    progress = ("status", "victims", "items", "state")
    assert words(PREEMPTIONS, *progress) >= set(records.VictimState)


def test_a_kaiwo_config_keeps_foreign_sections_and_is_strict_in_ours() -> None:
    spec = schema(KAIWO_CONFIGS, "spec")
    assert spec["x-kubernetes-preserve-unknown-fields"] is True
    ours = spec["properties"]["gpuPreemption"]
    assert "x-kubernetes-preserve-unknown-fields" not in ours
    assert ours["default"] == {}
    assert sorted(ours["properties"]) == [
        "defaultAggregation",
        "defaultGracePeriod",
        "defaultPolicy",
        "defaultTTL",
        "defaultThreshold",
    ]


@pytest.mark.parametrize(("value", "accepted"), [(0, True), (100, True), (-1, False), (101, False)])
def test_the_default_threshold_is_a_percentage(value: float, accepted: bool) -> None:
    config = {"spec": {"gpuPreemption": {"defaultThreshold": value}, "ray": {"anything": 1}}}
    where = [] if accepted else ["spec.gpuPreemption.defaultThreshold"]
    assert errors(KAIWO_CONFIGS, config) == where


NAMES_OF_OBJECTS = st.text(st.characters(codec="ascii", categories=["Ll"]), min_size=1, max_size=8)
REFERENCES = st.builds(
    records.ObjectRef,
    api_version=st.just("batch/v1"),
    kind=st.just("Job"),
    name=NAMES_OF_OBJECTS,
    uid=NAMES_OF_OBJECTS,
    namespace=st.sampled_from(["", "team"]),
)
AMOUNTS = st.dictionaries(st.just("amd.com/gpu"), st.integers(0, 2**53))


@settings(max_examples=50, deadline=None)
@given(
    st.builds(
        records.PreemptionSpec,
        plane=st.sampled_from([str(plane) for plane in Plane]),
        plan_id=NAMES_OF_OBJECTS,
        attempt=st.integers(0, 9),
        proof=st.builds(
            records.Proof,
            level=st.sampled_from([str(level) for level in ProofLevel]),
            compatible=st.booleans(),
            quota=st.sampled_from(list(map(str, Half))),
            placement=st.sampled_from(list(map(str, Half))),
            need=AMOUNTS,
            in_flight=AMOUNTS,
            freed=AMOUNTS,
        ),
        victims=st.lists(
            st.builds(
                records.Victim,
                subject=REFERENCES,
                root=REFERENCES,
                amounts=AMOUNTS,
                rule=NAMES_OF_OBJECTS,
                action=st.sampled_from(records.Action),
                lineage=st.sampled_from(["", "owner/uid-1"]),
                lost_device_seconds=st.integers(0, 2**53),
                plane=st.sampled_from(["", *map(str, Plane)]),
                frees=st.none() | st.builds(records.Frees, st.booleans(), st.booleans()),
            ),
            max_size=2,
        ),
        decided_at=st.just("2026-03-04T10:15:00Z"),
        preemptor=st.none() | REFERENCES,
        guards=st.lists(
            st.builds(records.Guard, subject=REFERENCES, phases=st.just(["Idle"])), max_size=1
        ),
        reprieved=st.dictionaries(NAMES_OF_OBJECTS, st.integers(0, 9), max_size=2),
        dry_run=st.booleans(),
        preemptor_lineage=st.sampled_from(["", "owner/uid-2"]),
        stages=st.lists(
            st.builds(records.Stage, st.sampled_from(list(map(str, Plane))), NAMES_OF_OBJECTS),
            max_size=2,
        ),
        rejected=st.lists(
            st.builds(
                records.Rejected,
                st.sampled_from(list(map(str, Plane))),
                st.sampled_from(list(map(str, Rejection))),
            ),
            max_size=2,
        ),
        depth=st.integers(0, 9),
        debt_of=st.sampled_from(["", "owner/uid-3"]),
        input=st.none() | st.dictionaries(NAMES_OF_OBJECTS, st.integers(), max_size=2),
    )
)
def test_every_record_that_the_operator_can_write_is_accepted(spec: records.PreemptionSpec) -> None:
    record = records.Preemption(records.Metadata("idle-always-0"), spec)
    written = msgspec.json.decode(msgspec.json.encode(record))
    assert errors(PREEMPTIONS, written) == []
    # Pruning would lose a field that the schema does not know.
    assert unknown(schema(PREEMPTIONS), written) == []


def test_every_part_that_the_operator_can_write_is_accepted() -> None:
    root = records.ObjectRef("batch/v1", "Job", "train", "uid-1", "team")
    other = records.ObjectRef("kaiwo.silogen.ai/v1alpha1", "GpuWorkload", "w", "uid-2", "team")
    victims = [
        records.Victim(
            *(subject, root, {"gpu": 8}, "rule", "why", records.Action.SUSPEND, "unit"),
            lineage="owner/uid-1",
            lost_device_seconds=480,
            plane="idle",
            frees=records.Frees(room=True),
        )
        for subject in (root, other)
    ]
    spec = records.PreemptionSpec(
        "idle",
        "p",
        1,
        records.Proof("Sum"),
        victims,
        "2026-03-04T10:15:00Z",
        guards=[records.Guard(other, ["Idle"])],
        placement=[records.Placement("uid-3", "node-1")],
        input={"data": "x" * 100},
    )
    apart = split("idle-always-1", "ns", spec, Sizes(head=10))
    head = records.Preemption(records.Metadata("idle-always-1"), apart.head)
    for name, obj in ((PREEMPTIONS, head), *((PARTS, p) for p in (*apart.parts, *apart.inputs))):
        written = msgspec.json.decode(msgspec.json.encode(obj))
        assert errors(name, written) == []
        assert unknown(schema(name), written) == []
    assert apart.parts and apart.inputs


def test_every_disruption_that_the_operator_can_write_is_accepted() -> None:
    told = Disruption(
        records.Metadata("train-0123456789", "team"),
        DisruptionSpec(
            subject=records.ObjectRef("scheduling.k8s.io/v1beta1", "PodGroup", "train", "", "team"),
            lineage="owner/uid-1",
            plan_id="0123456789ab",
            plane="scheduling",
            rule="lower priority, whole group",
            preemptor="Pod/high",
            noticed_at="2026-03-04T10:15:00Z",
            evicting_at="2026-03-04T10:15:00Z",
            ended_at="2026-03-04T10:15:30Z",
            objects=4,
            lost_device_seconds=0,
            times=1,
            window="1h0m0s",
            spared_by="a higher priority",
            demand=DisruptionDemand(
                ["idle", "scheduling"],
                records.Frees(room=True),
                "Settled",
                "Proven",
                [records.Rejected("quota", "OwnedByAnother")],
                2,
                "another tenant's work #a3f1",
            ),
        ),
        DisruptionStatus(repeated=True, message="m", back_at="2026-03-04T10:20:00Z"),
    )
    written = msgspec.json.decode(msgspec.json.encode(told))
    assert errors(DISRUPTIONS, written) == []
    assert unknown(schema(DISRUPTIONS), written) == []
    columns = load(DISRUPTIONS)["spec"]["versions"][0]["additionalPrinterColumns"]
    named = [column["name"].upper() for column in columns if not column.get("priority")]
    assert named == ["SUBJECT", "RULE", "FOR", "LOST", "TIMES", "AGE"]


def unknown(node: dict[str, Any], value: Any, path: str = "") -> list[str]:
    """Return the paths in `value` that pruning by `node` would drop."""
    if node.get("x-kubernetes-preserve-unknown-fields"):
        return []
    if isinstance(value, list):
        return [p for item in value for p in unknown(node["items"], item, f"{path}[]")]
    if not isinstance(value, dict) or "additionalProperties" in node or path == ".metadata":
        return []
    known = node.get("properties", {})
    return [
        p
        for key, inner in value.items()
        for p in (
            unknown(known[key], inner, f"{path}.{key}") if key in known else [f"{path}.{key}"]
        )
    ]


def test_a_recorded_decision_cannot_be_changed() -> None:
    for name in (PREEMPTIONS, PARTS, DISRUPTIONS, NOTICES):
        rules = schema(name, "spec")["x-kubernetes-validations"]
        assert [rule["rule"] for rule in rules] == ["self == oldSelf"]


def undescribed(found: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the paths of the fields that `kubectl explain` could say nothing about."""
    for name, field in found.get("properties", {}).items():
        here = f"{path}.{name}"
        # The API server describes these three by itself.
        if "description" not in field and here not in (".apiVersion", ".kind", ".metadata"):
            yield here
        yield from undescribed(field, here)
    for inner in ("items", "additionalProperties"):
        if isinstance(found.get(inner), dict):
            yield from undescribed(found[inner], f"{path}[]")


def definitions() -> list[dict[str, Any]]:
    folder = resources.files("reprieve.api.crds")
    files = [each for each in folder.iterdir() if each.name.endswith(".yaml")]
    return [yaml.safe_load(each.read_text()) for each in files]


def test_every_field_of_every_definition_has_a_description() -> None:
    told = {
        f"{each['metadata']['name']} {version['name']}": list(
            undescribed(version["schema"]["openAPIV3Schema"])
        )
        for each in definitions()
        for version in each["spec"]["versions"]
    }
    assert len(told) >= 19
    assert {name: fields for name, fields in told.items() if fields} == {}


def test_kubectl_shows_how_far_pod_groups_have_come() -> None:
    for each in definitions():
        if each["spec"]["names"]["kind"] == "PodGroup":
            (only,) = each["spec"]["versions"]
            columns = [column["name"] for column in only["additionalPrinterColumns"]]
            assert columns[:2] == ["Phase", "MinMember"]
            assert {"Running", "Age"} <= set(columns)


def test_a_harm_budget_as_documented_is_accepted_and_others_are_not() -> None:
    spec = {
        "scope": "Suffered",
        "selector": {"namespaces": {"matchLabels": {"tier": "batch"}}, "priorityBelow": 1000},
        "per": "Tenant",
        "window": "24h",
        "limits": {"displacements": 20, "lostGpuHours": 50},
        "planes": ["quota", "scheduling"],
        "whenExhausted": "Hold",
        "exempt": {"priorityFrom": 100000, "nominalReclaimAfter": "1h"},
    }
    assert errors(HARM_BUDGETS, {"spec": spec}) == []
    assert unknown(schema(HARM_BUDGETS), {"spec": spec}) == []
    assert errors(HARM_BUDGETS, {"spec": {**spec, "limits": {}}}) == ["spec.limits"]
    assert errors(HARM_BUDGETS, {"spec": {**spec, "scope": "Mine"}}) == ["spec.scope"]


def test_a_notice_is_accepted_as_it_is_written() -> None:
    told = PreemptionNotice(
        records.Metadata("train-0a1b2c3d4e", "team"),
        PreemptionNoticeSpec(
            records.ObjectRef("batch/v1", "Job", "train", "u-1", "team"),
            "p-1",
            "idle",
            "idle",
            "another tenant's work #a3f1",
            "2026-03-04T10:10:00Z",
            "2026-03-04T10:12:00Z",
        ),
        PreemptionNoticeStatus("Saved", "2026-03-04T10:10:00Z", 4, 4, "2026-03-04T10:05:00Z"),
    )
    written = msgspec.json.decode(msgspec.json.encode(told))
    assert errors(NOTICES, written) == []
    assert unknown(schema(NOTICES), written) == []
    states = schema(NOTICES, "status", "state")["enum"]
    assert states == [state.value for state in State]
