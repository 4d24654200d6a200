"""What of a pod reaches its row and class."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reprieve.api.gangs import RELEASED
from reprieve.api.scheduling import PodObject
from reprieve.engine.cluster.rows import (
    AffinityTerm,
    Disk,
    HostPort,
    NodeTerm,
    Operator,
    PodClass,
    PodRow,
    Requirement,
    SpreadConstraint,
    Toleration,
    VolumeUse,
    Weighted,
)
from reprieve.intake.cluster.pod_classes import PodClasses, PodGates, pod_class
from reprieve.intake.cluster.pods import pod_row
from reprieve.units.ids import Uid
from tests.intake.cluster.objects import class_of, container, pod, row_of


def one_of(key: str, *values: str) -> Requirement:
    return Requirement(key, Operator.IN, values)


def test_a_plain_pod() -> None:
    row = row_of(
        pod(
            {"name": "c"},
            metadata={
                "resourceVersion": "17",
                "labels": {"b": "2", "a": "1"},
                "creationTimestamp": "1970-01-01T00:01:00Z",
                "ownerReferences": [
                    {"kind": "Node", "name": "n"},
                    {"kind": "ReplicaSet", "name": "rs", "uid": "r", "controller": True},
                ],
            },
            nodeName="n1",
            priority=7,
            schedulingGroup={"podGroupName": "g"},
            schedulingGates=[{"name": "wait"}],
            preemptionPolicy="Never",
            schedulerName="mine",
            status={"startTime": "1970-01-01T00:02:00Z", "phase": "Running"},
        )
    )
    assert row == PodRow(
        uid=Uid("u"),
        namespace="default",
        name="p",
        version=17,
        pod_class=PodClass(
            scored_cpu=100,
            scored_memory=209_715_200,
            images=(":latest",),
            scheduler_name="mine",
            preempts=False,
        ),
        labels=(("a", "1"), ("b", "2")),
        node="n1",
        priority=7,
        group="g",
        start=120,
        created=60,
        gates=("wait",),
        owner=("ReplicaSet", "rs"),
        controller="r",
    )


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_finished(phase: str) -> None:
    assert row_of(pod(status={"phase": phase})).finished
    assert not row_of(pod(status={"phase": "Pending", "nominatedNodeName": "n"})).finished


def test_the_nomination_is_taken_from_the_status() -> None:
    assert row_of(pod(status={"nominatedNodeName": "n"})).nominated == "n"


TARGET = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


@pytest.mark.parametrize(
    ("conditions", "preempted"),
    [
        ([TARGET], True),
        ([{**TARGET, "status": "False"}], False),
        ([{**TARGET, "reason": "EvictionByEvictionAPI"}, TARGET], False),  # the first counts
        ([{"type": "Ready", "status": "True"}, TARGET], True),
        ([], False),
    ],
)
def test_terminating_by_preemption(conditions: list[dict[str, str]], preempted: bool) -> None:
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    row = row_of(pod(metadata=gone, status={"conditions": conditions}))
    assert (row.deleting, row.preempted) == (True, preempted)
    assert not row_of(pod(status={"conditions": conditions})).preempted


def test_host_ports_of_containers_and_sidecars() -> None:
    def ports(*given: dict[str, Any]) -> dict[str, Any]:
        return {"ports": list(given)}

    found = class_of(
        pod(
            container("a", more=ports({"hostPort": 80}, {"containerPort": 9})),
            init=[
                container("i", more=ports({"hostPort": 1})),
                container(
                    "s",
                    "Always",
                    ports({"hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}),
                ),
            ],
        )
    )
    assert found.host_ports == (HostPort(53, "UDP", "10.0.0.1"), HostPort(80, "TCP", "0.0.0.0"))


def test_images_have_a_tag() -> None:
    found = class_of(
        pod(
            {"name": "a", "image": "registry:5000/team/tool"},
            {"name": "b", "image": "tool:2"},
            init=[{"name": "i", "image": "tool@sha256:0a"}],
            volumes=[{"name": "v", "image": {"reference": "data"}}],
        )
    )
    assert found.images == (
        "tool@sha256:0a",
        "registry:5000/team/tool:latest",
        "tool:2",
        "data:latest",
    )


def test_node_selector_and_node_affinity() -> None:
    term = {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["b", "a"]}]}
    found = class_of(
        pod(
            nodeSelector={"zone": "z1"},
            affinity={
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            term,
                            {},
                            {
                                "matchFields": [
                                    {"key": "metadata.name", "operator": "In", "values": ["n1"]}
                                ]
                            },
                        ]
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 5, "preference": term}
                    ],
                }
            },
        )
    )
    wanted = NodeTerm((one_of("gpu", "a", "b"),))
    assert found.node_selector == (("zone", "z1"),)
    assert found.node_affinity == (
        wanted,
        NodeTerm(),
        NodeTerm((), (one_of("metadata.name", "n1"),)),
    )
    assert found.preferred_node_affinity == (Weighted(5, wanted),)


def test_no_terms_are_not_the_same_as_no_affinity() -> None:
    def required(terms: list[Any]) -> PodClass:
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        return class_of(pod(affinity={"nodeAffinity": rule}))

    assert required([]).node_affinity == ()
    assert class_of(pod()).node_affinity is None


@pytest.mark.parametrize(
    "expression",
    [
        {"key": "a", "operator": "Near", "values": ["b"]},
        {"key": "a", "operator": "In", "values": []},
        {"key": "a", "operator": "In"},
        {"key": "a", "operator": "Exists", "values": ["b"]},
        {"key": "a", "operator": "Gt", "values": ["1", "2"]},
        {"key": "a", "operator": "Lt", "values": ["one"]},
        {"key": "-a", "operator": "Exists"},
        {"key": "UPPER/a", "operator": "Exists"},
        {"key": "a", "operator": "In", "values": ["not a value"]},
    ],
)
def test_a_node_term_that_cannot_be_read_is_marked(expression: dict[str, Any]) -> None:
    good = {"key": "a", "operator": "Exists"}
    rule = {"nodeSelectorTerms": [{"matchExpressions": [good, expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rule}}
    assert class_of(pod(affinity=affinity)).node_affinity == (NodeTerm(unreadable=True),)


@pytest.mark.parametrize(
    "field",
    [
        {"key": "metadata.namespace", "operator": "In", "values": ["a"]},
        {"key": "metadata.name", "operator": "Exists"},
        {"key": "metadata.name", "operator": "In", "values": ["a", "b"]},
    ],
)
def test_a_field_other_than_one_name_cannot_be_read(field: dict[str, Any]) -> None:
    rule = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rule}}
    assert class_of(pod(affinity=affinity)).node_affinity == (NodeTerm(unreadable=True),)


def test_pod_affinity_terms_name_their_namespaces() -> None:
    selector = {"matchLabels": {"app": "x"}}
    own = {"topologyKey": "zone", "labelSelector": selector}
    listed = {**own, "namespaces": ["b", "a"]}
    everywhere = {**own, "namespaceSelector": {}}
    nothing = {"topologyKey": "zone"}
    found = class_of(
        pod(
            affinity={
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [own, listed]},
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [everywhere, nothing],
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 3, "podAffinityTerm": own}
                    ],
                },
            }
        )
    )
    wanted = (one_of("app", "x"),)
    assert found.affinity == (
        AffinityTerm("zone", wanted, ("default",)),
        AffinityTerm("zone", wanted, ("a", "b")),
    )
    assert found.anti_affinity == (
        AffinityTerm("zone", wanted, (), ()),
        AffinityTerm("zone", None, ("default",)),
    )
    assert found.preferred_affinity == ()
    assert found.preferred_anti_affinity == (
        Weighted(3, AffinityTerm("zone", wanted, ("default",))),
    )


def test_spread_constraints_take_in_the_pods_own_labels() -> None:
    constraint = {
        "topologyKey": "zone",
        "maxSkew": 2,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        "matchLabelKeys": ["version", "missing"],
    }
    soft = {
        "topologyKey": "host",
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "matchLabelKeys": ["version"],
        "minDomains": 3,
        "nodeAffinityPolicy": "Ignore",
        "nodeTaintsPolicy": "Honor",
    }
    found = class_of(
        pod(
            metadata={"labels": {"app": "x", "version": "7"}},
            topologySpreadConstraints=[constraint, soft],
        )
    )
    assert found.spread == (
        SpreadConstraint(
            "zone", 2, True, (Requirement("app", Operator.EXISTS), one_of("version", "7"))
        ),
        SpreadConstraint("host", 1, False, None, 3, False, True),
    )


def test_tolerations_as_written() -> None:
    found = class_of(
        pod(tolerations=[{"key": "a", "operator": "Exists"}, {"effect": "NoSchedule"}])
    )
    assert found.tolerations == (Toleration("a", "Exists"), Toleration(effect="NoSchedule"))


def test_volumes_that_decide_where_a_pod_may_run() -> None:
    found = class_of(
        pod(
            volumes=[
                {"name": "token", "projected": {}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
                {"name": "d1", "gcePersistentDisk": {"pdName": "d", "readOnly": True}},
                {"name": "d2", "awsElasticBlockStore": {"volumeID": "v", "readOnly": True}},
                {"name": "d3", "iscsi": {"iqn": "q", "targetPortal": "x"}},
                {"name": "d4", "rbd": {"monitors": ["m1", "m2"], "image": "i", "pool": "k"}},
                {"name": "d5", "cinder": {"volumeID": "w"}},
            ]
        )
    )
    assert found.volumes == (VolumeUse("c"), VolumeUse("scratch", ephemeral=True))
    assert found.disks == (
        Disk("awsElasticBlockStore", ("v",)),
        Disk("cinder", ("w",), True),
        Disk("gcePersistentDisk", ("d",), True),
        Disk("iscsi", ("q",)),
        Disk("rbd", ("m1", "k", "i")),
        Disk("rbd", ("m2", "k", "i")),
    )


@pytest.mark.parametrize(
    "source",
    [
        {"persistentVolumeClaim": {"claimName": "c"}},
        {"ephemeral": {"volumeClaimTemplate": {}}},
        {"gcePersistentDisk": {"pdName": "d"}},
        {"awsElasticBlockStore": {"volumeID": "v"}},
        {"iscsi": {"iqn": "q"}},
        {"rbd": {"monitors": ["m"], "image": "i"}},
        {"azureDisk": {"diskURI": "u"}},
        {"azureFile": {"shareName": "s"}},
        {"cinder": {"volumeID": "w"}},
        {"portworxVolume": {"volumeID": "p"}},
        {"vsphereVolume": {"volumePath": "x"}},
        {"image": {"reference": "r"}},
    ],
    ids=lambda source: next(iter(source)),
)
def test_each_kind_of_volume_that_counts_makes_another_class(source: dict[str, Any]) -> None:
    classes = PodClasses()
    volumes: tuple[list[Any], ...] = (
        [],
        [{"name": "v", "projected": {}}],
        [{"name": "v", **source}],
    )
    none, unread, read = (
        classes.of(msgspec.convert(pod(container("a"), volumes=each), PodObject))
        for each in volumes
    )
    assert unread is none
    assert read == class_of(pod(container("a"), volumes=volumes[2])) != none


@pytest.mark.parametrize(
    ("annotation", "text", "field", "value"),
    [
        ("reprieve.dev/last-checkpoint", "2026-03-04T10:00:00Z", "checkpoint", 1_772_618_400),
        ("reprieve.dev/preemption-priority-class", "high", "protection", "high"),
        ("reprieve.dev/disruption", "with-group", "disruption", "with-group"),
        ("reprieve.dev/preempt-min-runtime", "90s", "min_runtime", 90),
        *((key, "x", "released", (key,)) for key in RELEASED),
    ],
)
def test_an_annotation_is_read_whatever_others_there_are(
    annotation: str, text: str, field: str, value: object
) -> None:
    others = {"cni.example/address": "10.0.0.1"}
    unread = row_of(pod(container("a"), metadata={"annotations": others}))
    read = row_of(pod(container("a"), metadata={"annotations": {**others, annotation: text}}))
    assert getattr(read, field) == value != getattr(unread, field)


def test_claims_by_name_from_a_template_and_none_at_all() -> None:
    row = row_of(
        pod(
            resourceClaims=[
                {"name": "a", "resourceClaimName": "shared"},
                {"name": "b", "resourceClaimTemplateName": "t"},
                {"name": "c", "resourceClaimTemplateName": "t"},
                {"name": "d", "resourceClaimTemplateName": "t"},
            ],
            status={
                "resourceClaimStatuses": [
                    {"name": "b", "resourceClaimName": "p-b-x"},
                    {"name": "c"},
                ]
            },
        )
    )
    assert row.claims == (("a", "shared"), ("b", "p-b-x"), ("c", None), ("d", ""))


@pytest.mark.parametrize(
    ("spec", "feature"),
    [
        ({"hostNetwork": True, "hostUsers": False}, "UserNamespacesHostNetworkSupport"),
        (
            {"containers": [{"restartPolicyRules": [{"action": "RestartAllContainers"}]}]},
            "RestartAllContainersOnContainerExits",
        ),
        (
            {"initContainers": [{"volumeMounts": [{"bindMountOptions": ["noexec"]}]}]},
            "VolumeBindMountOptions",
        ),
    ],
)
def test_features_that_a_node_has_to_declare(spec: dict[str, Any], feature: str) -> None:
    manifest = pod()
    manifest["spec"].update(spec)
    assert class_of(manifest).features == (feature,)
    assert class_of(pod(hostNetwork=True)).features == ()


def test_pods_of_one_template_share_one_class() -> None:
    classes = PodClasses()

    def taken_in(name: str, **spec: Any) -> PodClass:
        manifest = pod(
            container("a", cpu="1"),
            metadata={"name": name, "uid": name, "labels": {"index": name}},
            volumes=[{"name": f"token-{name}", "projected": {}}],
            **spec,
        )
        return pod_row(msgspec.convert(manifest, PodObject), classes).pod_class

    first = taken_in("p0")
    assert taken_in("p1", nodeName="n1", priority=3) is first
    assert taken_in("p2", nodeSelector={"a": "b"}) != first
    spread = {
        "topologySpreadConstraints": [
            {"topologyKey": "z", "labelSelector": {}, "matchLabelKeys": ["index"]}
        ]
    }
    assert taken_in("p3", **spread) != taken_in("p4", **spread)
    # Written differently, and yet the same class.
    same = pod(container("a", cpu="1000m"))
    assert pod_row(msgspec.convert(same, PodObject), classes).pod_class is first


def test_pods_of_one_controller_are_told_apart_by_all_that_their_classes_say() -> None:
    classes = PodClasses(PodGates(claims=True, policy_label=True))
    usual = {"containers": [container("a", cpu="1")], "nodeName": "n1"}
    ready = {"name": "a", "state": {"terminated": {"exitCode": 0}}}
    given = {**ready, "resources": {"requests": {"cpu": "3"}}}
    taken = [{"mapping": [{"name": "memory", "quantity": "1"}]}]
    spread = {"topologyKey": "z", "labelSelector": {}, "matchLabelKeys": ["index"]}
    labels = {"index": "0"}

    def made(metadata: dict[str, Any], spec: dict[str, Any], status: dict[str, Any]) -> PodObject:
        manifest = {"metadata": metadata, "spec": {**usual, **spec}, "status": status}
        return msgspec.convert(manifest, PodObject)

    def of(metadata: dict[str, Any], spec: dict[str, Any], status: dict[str, Any]) -> PodClass:
        found = made(metadata, spec, status)
        assert classes.of(found, "job") == pod_class(found, classes.gates)
        return classes.of(found, "job")

    first = of({}, {}, {})
    same = [
        of({"name": "p1"}, {"volumes": [{"name": "token-1", "projected": {}}]}, {}),
        of({"labels": labels}, {"priority": 3}, {"containerStatuses": [ready]}),
        of({}, {}, {"containerStatuses": [{**ready, "lastState": {"waiting": {}}}]}),
    ]
    assert all(each is first for each in same)
    different: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
        ({}, {"containers": [container("a", cpu="2")]}, {}),
        ({}, {"initContainers": [container("b", cpu="2")]}, {}),
        ({}, {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, {}),
        ({}, {"tolerations": [{"operator": "Exists"}]}, {}),
        ({}, {"nodeSelector": {"a": "b"}}, {}),
        ({}, {"priorityClassName": "high"}, {}),
        ({"labels": labels}, {"topologySpreadConstraints": [spread]}, {}),
        ({"labels": {"index": "1"}}, {"topologySpreadConstraints": [spread]}, {}),
        ({"labels": {"scheduling.koordinator.sh/preemption-policy": "Other"}}, {}, {}),
        ({}, {}, {"containerStatuses": [given]}),
        ({}, {}, {"nodeAllocatableResourceClaimStatuses": taken}),
    ]
    others = []
    for each in different:
        assert of({}, {}, {}) is first
        others.append(of(*each))
    assert len({first, *others}) == 1 + len(others)


def test_pods_that_are_pinned_to_nodes_differ_in_that_alone() -> None:
    def manifest(node: str, image: str = "i:1") -> PodObject:
        only = {"key": "metadata.name", "operator": "In", "values": [node]}
        terms = {"nodeSelectorTerms": [{"matchFields": [only]}]}
        preferred = [{"weight": 1, "preference": {"matchExpressions": []}}]
        nodes = {
            "requiredDuringSchedulingIgnoredDuringExecution": terms,
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        }
        given = pod(
            container("a", more={"image": image}, cpu="1"),
            affinity={"nodeAffinity": nodes},
            metadata={"labels": {"app": "daemon"}},
        )
        return msgspec.convert(given, PodObject)

    classes = PodClasses()
    for node in ("n1", "n2", "n1"):
        assert classes.of(manifest(node)) == pod_class(manifest(node))
    assert classes.of(manifest("n1")) is classes.of(manifest("n1"))
    assert classes.of(manifest("n1", "i:2")) == pod_class(manifest("n1", "i:2"))
    rows = [pod_row(manifest(node), classes) for node in ("n1", "n2")]
    assert rows[0].labels is rows[1].labels
    # All daemons of a node ask for it in one value.
    one, other = classes.of(manifest("n1")), classes.of(manifest("n1", "i:2"))
    assert one.node_affinity is other.node_affinity


@pytest.mark.parametrize(
    ("spec", "label", "without", "behind"),
    [
        ("Never", "PreemptLowerPriority", False, True),
        ("PreemptLowerPriority", "Never", True, False),
        ("PreemptLowerPriority", None, True, False),
        (None, None, True, False),
    ],
)
def test_koordinators_label_is_the_preemption_policy_behind_its_gate_alone(
    spec: str | None, label: str | None, without: bool, behind: bool
) -> None:
    labels = {} if label is None else {"scheduling.koordinator.sh/preemption-policy": label}
    metadata = {"name": "p", "labels": labels}
    given = msgspec.convert(pod(preemptionPolicy=spec, metadata=metadata), PodObject)
    assert PodClasses().of(given).preempts == without
    assert PodClasses(PodGates(policy_label=True)).of(given).preempts == behind


def test_tolerations_that_compare_numbers_are_read_behind_their_gate_alone() -> None:
    above = {"key": "k", "operator": "Gt", "value": "5", "effect": "NoSchedule"}
    given = msgspec.convert(pod(tolerations=[above, {"operator": "Exists"}]), PodObject)
    assert PodClasses().of(given).tolerations == (Toleration("", "Exists"),)
    read = PodClasses(PodGates(comparisons=True)).of(given).tolerations
    assert read == (Toleration("k", "Gt", "5", "NoSchedule"), Toleration("", "Exists"))
