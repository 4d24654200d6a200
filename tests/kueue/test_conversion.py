"""v1beta1 <-> v1beta2: what is said otherwise, what is kept, and that nothing else changes."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubelocal.server.types.structural import Validator
from reprieve.api.crds import load
from reprieve.api.kueue import API_VERSION, OLD_API_VERSION
from reprieve.api.kueue_conversion import KEPT, UnknownVersion, convert
from tests.kueue.objects import Json, cluster_queue, kueue_object, local_queue, pod_set, workload

NEW, OLD = API_VERSION, OLD_API_VERSION


def old(obj: Json) -> Json:
    return {**obj, "apiVersion": OLD}


def both(obj: Json, expected: Json) -> None:
    """`obj` of v1beta1 is `expected` of v1beta2, and back."""
    assert convert(old(obj), NEW) == {**expected, "apiVersion": NEW}
    assert convert({**expected, "apiVersion": NEW}, OLD) == old(obj)


def test_a_cohort_has_another_name() -> None:
    both(cluster_queue(cohort="all"), cluster_queue(cohortName="all"))


def test_checks_become_a_strategy_and_stay_one() -> None:
    newer = cluster_queue(
        admissionChecksStrategy={"admissionChecks": [{"name": "a"}, {"name": "b"}]}
    )
    given = cluster_queue(admissionChecks=["a", "b"], admissionChecksStrategy={"x": 1})
    assert convert(old(given), NEW) == newer
    assert convert(newer, OLD) == old(newer)
    assert convert(old(cluster_queue(admissionChecks=[])), NEW) == cluster_queue()


def test_old_words_of_fungibility_are_said_in_new_ones() -> None:
    given = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt", "preference": "x"}
    expected = {**given, "whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}
    found = convert(old(cluster_queue(flavorFungibility=given)), NEW)
    assert found["spec"]["flavorFungibility"] == expected


def test_usage_of_a_local_queue_has_another_name() -> None:
    usage = [{"name": "f", "resources": []}]
    both(
        local_queue() | {"status": {"flavorUsage": usage, "pendingWorkloads": 0}},
        local_queue() | {"status": {"flavorsUsage": usage, "pendingWorkloads": 0}},
    )


@pytest.mark.parametrize(
    ("source", "group", "kind"),
    [
        ("kueue.x-k8s.io/workloadpriorityclass", "kueue.x-k8s.io", "WorkloadPriorityClass"),
        ("scheduling.k8s.io/priorityclass", "scheduling.k8s.io", "PriorityClass"),
    ],
)
def test_a_priority_class_is_a_reference(source: str, group: str, kind: str) -> None:
    reference = {"group": group, "kind": kind, "name": "high"}
    both(
        workload(priority=1, priorityClassSource=source, priorityClassName="high"),
        workload(priority=1, priorityClassRef=reference),
    )


def test_a_class_of_no_source_is_kept_beside_and_its_priority_stays() -> None:
    given = old(workload(priority=7, priorityClassName="high", priorityClassSource=""))
    newer = convert(given, NEW)
    assert newer["spec"]["priority"] == 7
    assert "priorityClassRef" not in newer["spec"]
    again = convert(newer, OLD)
    assert again["spec"] == {k: v for k, v in given["spec"].items() if k != "priorityClassSource"}
    assert again["metadata"] == given["metadata"]


@pytest.mark.parametrize(
    "kept",
    [
        '{"priorityClassName":"\\ud800"}',
        '{"priorityClassName":123456789012345678901234567890}',
        '{"specGates":["gate"],"statusGates":[{"name":7}]}',
        '{"constraints":{"main":5},"concurrentAdmissionPolicy":"x","other":[1]}',
        '{"priorityClassName":NaN}',
    ],
)
def test_what_no_version_could_have_kept_comes_back_in_none(kept: str) -> None:
    for made, version in ((workload(), OLD), (old(workload()), NEW)):
        wanted = convert(made, version)
        given = {**made, "metadata": {**made["metadata"], "annotations": {KEPT: kept}}}
        found = convert(given, version)
        orjson.dumps(found)  # as the answer to a review
        assert found == wanted


def test_the_misspelt_seconds_are_spelt() -> None:
    both(
        workload() | {"status": {"accumulatedPastExexcutionTimeSeconds": 3}},
        workload() | {"status": {"accumulatedPastExecutionTimeSeconds": 3}},
    )


def test_domains_are_compressed_by_what_they_have_in_common() -> None:
    levels = ["block", "rack", "host"]
    domains = [
        {"values": ["b1", "rack-1-x", "h9"], "count": 4},
        {"values": ["b1", "rack-2-x", "h10"], "count": 2},
    ]
    given = old(with_topology({"levels": levels, "domains": domains}))
    newer = convert(given, NEW)
    (assigned,) = newer["status"]["admission"]["podSetAssignments"]
    (piece,) = assigned["topologyAssignment"]["slices"]
    assert piece == {
        "domainCount": 2,
        "valuesPerLevel": [
            {"universal": "b1"},
            {"individual": {"prefix": "rack-", "suffix": "-x", "roots": ["1", "2"]}},
            {"individual": {"prefix": "h", "roots": ["9", "10"]}},
        ],
        "podCounts": {"individual": [4, 2]},
    }
    assert convert(newer, OLD) == given


def test_what_only_v1beta2_has_survives_a_client_of_v1beta1() -> None:
    gates = [{"name": "a"}]
    constraints = [{"topology": "rack", "size": 2}]
    request = {"required": "block", "podsetSliceRequiredTopologyConstraints": constraints}
    newer = workload("w", pod_set(topologyRequest=request), preemptionGates=gates)
    newer["metadata"]["annotations"] = {"mine": "1"}
    newer["status"] = {"preemptionGates": [{"name": "a", "position": "Open"}]}
    older = convert(newer, OLD)
    assert "preemptionGates" not in older["spec"] and "preemptionGates" not in older["status"]
    assert set(older["metadata"]["annotations"]) == {"mine", KEPT}
    older["spec"]["priority"] = 9
    assert convert(older, NEW) == {**newer, "spec": {**newer["spec"], "priority": 9}}

    queue = cluster_queue(concurrentAdmissionPolicy={"migration": {"mode": "TryPreferredFlavors"}})
    assert convert(convert(queue, OLD), NEW) == queue


@pytest.mark.parametrize("note", ["", "[]", "{", "null", "3"])
def test_a_note_that_somebody_else_wrote_does_no_harm(note: str) -> None:
    given = old(workload())
    given["metadata"]["annotations"] = {KEPT: note}
    assert convert(given, NEW) == workload()


def test_a_version_that_is_not_served_is_named() -> None:
    with pytest.raises(UnknownVersion, match=r"v1alpha1 is not served; accepted: .*v1beta2"):
        convert(workload(), "kueue.x-k8s.io/v1alpha1")


@pytest.mark.parametrize("obj", [{}, {"spec": None}, {"spec": [], "status": 3}, {"metadata": None}])
@pytest.mark.parametrize("kind", ["ClusterQueue", "Cohort", "LocalQueue", "Workload"])
def test_an_odd_object_is_no_error(kind: str, obj: Json) -> None:
    given = {"apiVersion": OLD, "kind": kind, "metadata": {"name": "a"}, **obj}
    assert convert(convert(given, NEW), OLD) == given


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("ClusterQueue", {"flavorFungibility": {"whenCanBorrow": ["Borrow"]}}),
        ("ClusterQueue", {"flavorFungibility": {"whenCanPreempt": {}}}),
        ("Workload", {"priorityClassSource": [], "podSets": [{"name": {}}]}),
    ],
)
def test_what_the_schema_refuses_is_left_for_it_to_refuse(kind: str, spec: Json) -> None:
    given = {"apiVersion": OLD, "kind": kind, "metadata": {"name": "a"}, "spec": spec}
    assert convert(given, NEW)["apiVersion"] == NEW
    assert convert({**given, "apiVersion": NEW}, OLD)["apiVersion"] == OLD


def with_topology(assignment: Json) -> Json:
    held = {"name": "main", "topologyAssignment": assignment}
    return workload() | {
        "status": {"admission": {"clusterQueue": "q", "podSetAssignments": [held]}}
    }


# -- properties ------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b-1", "team.c"])
AMOUNTS = st.sampled_from([0, 1, "500m", "2Gi", "0"])
POLICIES = st.sampled_from(["Never", "LowerPriority"])
ANYTHING: st.SearchStrategy[Json] = st.dictionaries(
    st.sampled_from(["x", "y"]), st.sampled_from([None, 1, [], {}])
)


def maybe(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Objects with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


METADATA = st.fixed_dictionaries(
    {"name": NAMES},
    optional={
        "annotations": st.dictionaries(NAMES, NAMES, min_size=1),
        "labels": st.dictionaries(NAMES, NAMES),
        "uid": NAMES,
    },
)
GROUPS = st.lists(
    maybe(
        coveredResources=st.lists(NAMES, max_size=2),
        flavors=st.lists(maybe(name=NAMES, resources=st.lists(maybe(nominalQuota=AMOUNTS)))),
    ),
    max_size=2,
)
CHECKS = st.lists(maybe(name=NAMES, onFlavors=st.lists(NAMES, max_size=2)), max_size=2)
QUEUE = {
    "resourceGroups": GROUPS,
    "namespaceSelector": st.one_of(st.none(), ANYTHING),
    "preemption": maybe(withinClusterQueue=POLICIES),
    "admissionChecksStrategy": maybe(admissionChecks=CHECKS),
    "stopPolicy": st.just("Hold"),
    "unknown": ANYTHING,
}
WORDS = st.sampled_from(["MayStopSearch", "TryNextFlavor"])
OLD_WORDS = st.sampled_from(["MayStopSearch", "TryNextFlavor", "Borrow", "Preempt"])
USAGE: st.SearchStrategy[list[Json]] = st.one_of(
    st.just([]), st.lists(maybe(name=NAMES), max_size=2)
)
COUNTS = {"pendingWorkloads": st.integers(0, 3), "conditions": st.just([])}
CLASSES = st.sampled_from(
    [("kueue.x-k8s.io", "WorkloadPriorityClass"), ("scheduling.k8s.io", "PriorityClass")]
)
REFERENCES = st.builds(
    lambda pair, name: {"group": pair[0], "kind": pair[1], "name": name}, CLASSES, NAMES
)
SOURCES = st.sampled_from(
    ["", "kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass"]
)
CONSTRAINTS = st.lists(maybe(topology=NAMES, size=st.integers(1, 3)), max_size=2)
HOSTS = st.sampled_from(["h", "host-1", "host-2", "host-12", "rack-1-a", ""])


@st.composite
def domains(draw: st.DrawFn) -> Json:
    depth = draw(st.integers(1, 3))
    made = st.fixed_dictionaries(
        {"values": st.lists(HOSTS, min_size=depth, max_size=depth), "count": st.integers(1, 3)}
    )
    levels = [f"level-{index}" for index in range(depth)]
    return {"levels": levels, "domains": draw(st.lists(made, max_size=4))}


def status(seconds: str, topology: st.SearchStrategy[Json], **more: Any) -> Any:
    assigned = maybe(name=NAMES, count=st.integers(0, 3), topologyAssignment=topology)
    return maybe(
        admission=maybe(clusterQueue=NAMES, podSetAssignments=st.lists(assigned, max_size=2)),
        conditions=st.just([]),
        unknown=ANYTHING,
        **{seconds: st.integers(0, 9)},
        **more,
    )


def objects(version: str, kind: str, spec: Any, state: Any) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(
        {"apiVersion": st.just(version), "kind": st.just(kind), "metadata": METADATA},
        optional={"spec": spec, "status": state, "extra": ANYTHING},
    )


def named(count: int, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Json]]:
    """Pod sets of different names."""
    each = st.fixed_dictionaries({"name": NAMES, "template": ANYTHING}, optional=more)
    return st.lists(each, max_size=count, unique_by=lambda one: str(one["name"]))


OLDER = st.one_of(
    objects(
        OLD,
        "ClusterQueue",
        maybe(
            **QUEUE,
            cohort=NAMES,
            flavorFungibility=maybe(whenCanBorrow=OLD_WORDS, whenCanPreempt=OLD_WORDS),
            admissionChecks=st.lists(NAMES, max_size=2),
        ),
        maybe(
            **COUNTS,
            flavorsUsage=USAGE,
            pendingWorkloadsStatus=ANYTHING,
            fairSharing=maybe(weightedShare=st.just(1), admissionFairSharingStatus=ANYTHING),
        ),
    ),
    objects(
        OLD,
        "Cohort",
        maybe(parentName=NAMES, resourceGroups=GROUPS),
        maybe(fairSharing=maybe(weightedShare=st.just(1), admissionFairSharingStatus=ANYTHING)),
    ),
    objects(
        OLD,
        "LocalQueue",
        maybe(clusterQueue=NAMES),
        maybe(**COUNTS, flavorUsage=USAGE, flavors=st.lists(ANYTHING), fairSharing=ANYTHING),
    ),
    objects(
        OLD,
        "Workload",
        maybe(
            podSets=named(2, topologyRequest=maybe(required=NAMES)),
            priority=st.integers(-3, 3),
            priorityClassSource=SOURCES,
            priorityClassName=NAMES,
            unknown=ANYTHING,
        ),
        status("accumulatedPastExexcutionTimeSeconds", domains()),
    ),
)
NEWER = st.one_of(
    objects(
        NEW,
        "ClusterQueue",
        maybe(
            **QUEUE,
            cohortName=NAMES,
            flavorFungibility=maybe(whenCanBorrow=WORDS, whenCanPreempt=WORDS),
            concurrentAdmissionPolicy=ANYTHING,
        ),
        maybe(**COUNTS, flavorsUsage=USAGE, fairSharing=maybe(weightedShare=st.just(1))),
    ),
    objects(NEW, "Cohort", maybe(parentName=NAMES, resourceGroups=GROUPS), maybe()),
    objects(
        NEW,
        "LocalQueue",
        maybe(clusterQueue=NAMES),
        maybe(**COUNTS, flavorsUsage=USAGE, fairSharing=ANYTHING),
    ),
    objects(
        NEW,
        "Workload",
        maybe(
            podSets=named(
                2,
                topologyRequest=maybe(
                    required=NAMES, podsetSliceRequiredTopologyConstraints=CONSTRAINTS
                ),
            ),
            priority=st.integers(-3, 3),
            priorityClassRef=REFERENCES,
            preemptionGates=st.lists(maybe(name=NAMES), max_size=2),
            unknown=ANYTHING,
        ),
        status(
            "accumulatedPastExecutionTimeSeconds",
            domains().map(lambda each: convert_domains(each)),
            preemptionGates=st.lists(maybe(name=NAMES, position=st.just("Open")), max_size=2),
        ),
    ),
)


def convert_domains(assignment: Json) -> Json:
    """The same places as slices, which the converter is asked for."""
    newer = convert(old(with_topology(assignment)), NEW)
    (held,) = newer["status"]["admission"]["podSetAssignments"]
    return dict(held["topologyAssignment"])


def one_way(obj: Json) -> Json:
    """What is said of an object of v1beta1 after it was one of v1beta2: the map's one-way rows."""
    found: Json = copy.deepcopy(obj)
    spec, state = found.get("spec", {}), found.get("status", {})
    if found["kind"] == "ClusterQueue":
        checks = spec.pop("admissionChecks", None)
        if checks:
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": c} for c in checks]}
        words = spec.get("flavorFungibility", {})
        for name, word in words.items():
            words[name] = "MayStopSearch" if word in ("Borrow", "Preempt") else word
        state.pop("pendingWorkloadsStatus", None)
    if found["kind"] in ("ClusterQueue", "Cohort"):
        state.get("fairSharing", {}).pop("admissionFairSharingStatus", None)
    if found["kind"] == "LocalQueue":
        state.pop("flavors", None)
    if found["kind"] == "Workload":
        if not spec.get("priorityClassName") or not spec.get("priorityClassSource"):
            spec.pop("priorityClassSource", None)
        if "priorityClassName" in spec and "priorityClassSource" not in spec:
            spec.setdefault("priority", 0)
    return found


KINDS = ("ClusterQueue", "Cohort", "LocalQueue", "Workload")
#: Which examples come is up to chance: rounds go on until all that is counted has come.
MOST_ROUNDS = 8


def until_seen(round: Callable[[], None], seen: Counter[str], **least: int) -> None:
    for _ in range(MOST_ROUNDS):
        round()
        if all(seen[name] > number for name, number in least.items()):
            return
    raise AssertionError(f"{seen}, but more than {least} are wanted")


def test_v1beta1_survives_v1beta2_but_for_the_rows_of_one_way() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(OLDER)
    def check(obj: Json) -> None:
        before = copy.deepcopy(obj)
        newer = convert(obj, NEW)
        assert obj == before
        assert newer["apiVersion"] == NEW
        assert convert(newer, OLD) == one_way(obj)
        seen[obj["kind"]] += 1
        seen["changed"] += one_way(obj) != obj
        seen["converted"] += {**newer, "apiVersion": OLD} != obj

    until_seen(check, seen, **dict.fromkeys(KINDS, 30), changed=60, converted=120)


def test_v1beta2_survives_v1beta1_whole() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(NEWER)
    def check(obj: Json) -> None:
        older = convert(obj, OLD)
        # As a client of v1beta1 writes it back, in whatever order.
        assert convert(json.loads(json.dumps(older, sort_keys=True)), NEW) == obj
        seen[obj["kind"]] += 1
        seen["kept"] += KEPT in older["metadata"].get("annotations", {})

    until_seen(check, seen, **dict.fromkeys(KINDS, 30), kept=60)


def test_what_is_converted_passes_the_schema_of_its_version() -> None:
    def causes(obj: Json, version: str) -> list[Any]:
        plural = {"ClusterQueue": "clusterqueues", "Workload": "workloads"}[obj["kind"]]
        (found,) = (
            each
            for each in load(f"{plural}.kueue.x-k8s.io")["spec"]["versions"]
            if each["name"] == version
        )
        return Validator(found["schema"]["openAPIV3Schema"]).causes(obj, rules=True)

    domains_of = {"levels": ["host"], "domains": [{"values": ["a"], "count": 1}]}
    held = with_topology(domains_of)["status"]
    for obj in (
        cluster_queue(cohort="all", admissionChecks=["a"]),
        workload(priority=1, priorityClassSource="scheduling.k8s.io/priorityclass")
        | {"status": held},
    ):
        assert causes(old(obj), "v1beta1") == []
        assert causes(convert(old(obj), NEW), "v1beta2") == []
    assert causes(kueue_object("ClusterQueue", "a", {"stopPolicy": "x"}), "v1beta2") != []
