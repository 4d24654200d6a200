"""Nodes, groups of all versions, budgets, selectors and namespaces into rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kubeworld.units.durations import SECOND
from reprieve.api.core import Namespace
from reprieve.api.pod_groups import PodGroup
from reprieve.api.scheduling import (
    LabelSelectorOwner,
    NodeObject,
    PodDisruptionBudget,
    PriorityClass,
    SelectorOwner,
)
from reprieve.engine.cluster.rows import (
    BudgetRow,
    Entry,
    GroupRow,
    Image,
    Kind,
    NamespaceRow,
    NodeRow,
    Operator,
    PriorityClassRow,
    Requirement,
    Selector,
    SelectorRow,
    Taint,
)
from reprieve.intake.cluster.groups import group_row
from reprieve.intake.cluster.nodes import node_row
from reprieve.intake.cluster.policies import (
    budget_row,
    namespace_entry,
    priority_class_entry,
    selector_row,
)
from reprieve.intake.cluster.sharing import SharedNodes
from reprieve.units.ids import Uid
from tests.intake.cluster.objects import read

METADATA = {"name": "x", "namespace": "team", "uid": "u", "resourceVersion": "5"}
SELECTED: Selector = (Requirement("app", Operator.IN, ("a",)),)


def test_a_node() -> None:
    found = read(
        NodeObject,
        {
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "9", "labels": {"a": "b"}},
            "spec": {
                "unschedulable": True,
                "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01"}],
            },
            "status": {
                "allocatable": {
                    "cpu": "3920m",
                    "memory": "8Gi",
                    "pods": "110",
                    "nvidia.com/gpu": 8,
                    "example.com/x": "many",
                },
                "images": [{"names": ["i:1", "i@sha256:0"], "sizeBytes": 12}, {"names": None}],
                "declaredFeatures": ["B", "A"],
            },
        },
    )
    assert node_row(found) == NodeRow(
        uid=Uid("u"),
        name="n",
        version=9,
        allocatable={"cpu": 3920, "memory": 2**33, "pods": 110, "nvidia.com/gpu": 8},
        labels={"a": "b"},
        taints=(Taint("k", "", "NoSchedule"),),
        unschedulable=True,
        images=(Image(("i:1", "i@sha256:0"), 12), Image((), 0)),
        features=frozenset({"A", "B"}),
    )


def test_a_node_that_says_nothing() -> None:
    assert node_row(read(NodeObject, {"metadata": {"name": "n"}})) == NodeRow(
        Uid("/n"), "n", 0, {}, {}
    )


@pytest.mark.parametrize(
    ("conditions", "taints", "ready", "since"),
    [
        ([("Ready", "True", 5)], [], True, None),
        ([("Ready", "True", 5)], ["node.kubernetes.io/not-ready"], True, None),
        ([("DiskPressure", "True", 5), ("Ready", "False", 7)], [], False, 7),
        ([("Ready", "Unknown", 9)], [], False, 9),
        ([("DiskPressure", "False", 5)], [], False, None),
        ([], ["maintenance"], True, None),
        ([], ["node.kubernetes.io/unreachable"], False, 0),
    ],
)
def test_a_node_is_ready_by_its_condition_and_without_any_by_its_taints(
    conditions: list[tuple[str, str, int]], taints: list[str], ready: bool, since: int | None
) -> None:
    said = [
        {"type": kind, "status": status, "lastTransitionTime": f"1970-01-01T00:00:0{second}Z"}
        for kind, status, second in conditions
    ]
    kept = {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]}
    node = {"metadata": {"name": "n"}, "spec": kept, "status": {"conditions": said}}
    row = node_row(read(NodeObject, node))
    assert (row.ready, row.unready_since) == (ready, since and since * SECOND)


def test_what_nodes_have_in_common_is_kept_once() -> None:
    def node(name: str, size: int) -> NodeObject:
        images = [{"names": ["i:1", "i@sha256:0"], "sizeBytes": size}]
        status = {"allocatable": {"cpu": "4", "pods": 110}, "images": images}
        metadata = {"name": name, "labels": {"zone": "a b"}}
        return read(NodeObject, {"metadata": metadata, "status": status})

    shared = SharedNodes()
    first, second = node_row(node("n1", 12), shared), node_row(node("n2", 12), shared)
    assert first == node_row(node("n1", 12))
    assert first.images[0] is second.images[0]
    assert first.allocatable is second.allocatable
    assert first.labels["zone"] is second.labels["zone"]
    assert node_row(node("n3", 13), shared).images == (Image(("i:1", "i@sha256:0"), 13),)


GANG = {"schedulingPolicy": {"gang": {"minCount": 4}}}


@pytest.mark.parametrize(
    ("version", "spec", "condition", "expected"),
    [
        ("v1alpha2", {"disruptionMode": "Pod"}, "PodGroupScheduled", (False, True)),
        ("v1alpha2", {"disruptionMode": "PodGroup"}, "PodGroupScheduled", (True, True)),
        (
            "v1alpha3",
            {"disruptionMode": {"single": {}}},
            "PodGroupInitiallyScheduled",
            (False, True),
        ),
        ("v1beta1", {"disruptionMode": {"all": {}}}, "PodGroupInitiallyScheduled", (True, True)),
        ("v1beta1", {}, "Other", (False, False)),
    ],
)
def test_groups_of_all_versions(
    version: str, spec: dict[str, Any], condition: str, expected: tuple[bool, bool]
) -> None:
    group = read(
        PodGroup,
        {
            "apiVersion": f"scheduling.k8s.io/{version}",
            "metadata": METADATA,
            "spec": {**GANG, **spec},
            "status": {"conditions": [{"type": condition, "status": "True"}]},
        },
    )
    row = group_row(group)
    assert (row.all_or_nothing, row.scheduled) == expected
    assert row.min_count == 4


def test_a_whole_group() -> None:
    group = read(
        PodGroup,
        {
            "metadata": {**METADATA, "creationTimestamp": "1970-01-01T00:00:09Z"},
            "spec": {
                "schedulingPolicy": {"basic": {}},
                "schedulingConstraints": {"topology": [{"key": "rack"}]},
                "priority": 12,
                "preemptionPolicy": "Never",
                "parentCompositePodGroupName": "tree",
                "resourceClaims": [{"name": "d", "resourceClaimTemplateName": "t"}],
            },
            "status": {
                "conditions": [{"type": "PodGroupInitiallyScheduled", "status": "False"}],
                "resourceClaimStatuses": [{"name": "d", "resourceClaimName": "made"}],
            },
        },
    )
    assert group_row(group) == GroupRow(
        uid=Uid("u"),
        namespace="team",
        name="x",
        version=5,
        priority=12,
        preempts=False,
        topology_key="rack",
        parent="tree",
        claims=(("d", "made"),),
        created=9,
    )


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"matchLabels": {"app": "a"}}, SELECTED),
        ({}, None),
        (None, None),
        ({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}, None),
        ({"matchExpressions": [{"key": "a", "operator": "In"}]}, None),
    ],
)
def test_a_budget(selector: dict[str, Any] | None, expected: Selector) -> None:
    budget = read(
        PodDisruptionBudget,
        {
            "metadata": METADATA,
            "spec": {"selector": selector, "minAvailable": "50%"},
            "status": {"disruptionsAllowed": 2, "disruptedPods": {"p": "2026-01-01T00:00:00Z"}},
        },
    )
    assert budget_row(budget) == BudgetRow(Uid("u"), "team", "x", 5, expected, 2, frozenset({"p"}))


def test_a_budget_without_status_allows_nothing() -> None:
    assert budget_row(read(PodDisruptionBudget, {"metadata": METADATA})).allowed == 0


def test_selectors_of_services_and_of_owners() -> None:
    service = read(SelectorOwner, {"metadata": METADATA, "spec": {"selector": {"app": "a"}}})
    owner = read(
        LabelSelectorOwner,
        {"metadata": METADATA, "spec": {"selector": {"matchLabels": {"app": "a"}}}},
    )
    headless = read(SelectorOwner, {"metadata": METADATA, "spec": {}})
    assert selector_row(service, Kind.SERVICE) == SelectorRow(
        Uid("u"), "Service", "team", "x", 5, SELECTED
    )
    assert selector_row(owner, Kind.STATEFUL_SET).selector == SELECTED
    assert selector_row(headless, Kind.SERVICE).selector is None


MIN_RUNTIME = "reprieve.dev/preempt-min-runtime"


def test_a_namespace_is_its_labels_and_its_minimum_runtime() -> None:
    metadata = {"name": "team", "uid": "u", "labels": {"a": "b"}}
    found = read(Namespace, {"metadata": metadata})
    row = NamespaceRow({"a": "b"})
    assert namespace_entry(found) == Entry(Kind.NAMESPACE, Uid("u"), "", "team", 0, row)
    said = read(Namespace, {"metadata": {**metadata, "annotations": {MIN_RUNTIME: "5m"}}})
    assert namespace_entry(said).row == replace(row, min_runtime=300)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0s", 0), ("1h30m", 5_400), ("1500ms", 2), ("", -1), ("soon", -1), ("-1ms", -1), ("5", -1)],
)
def test_a_minimum_runtime_is_whole_seconds(text: str, seconds: int) -> None:
    metadata = {"name": "high", "uid": "u", "annotations": {MIN_RUNTIME: text}}
    found = priority_class_entry(read(PriorityClass, {"metadata": metadata, "value": 7}))
    assert found == Entry(
        Kind.PRIORITY_CLASS, Uid("u"), "", "high", 0, PriorityClassRow(7, seconds)
    )
