"""Pods on their own: gates, roles, what they say of themselves."""

from __future__ import annotations

import copy
import hashlib

import pytest

from kubeworld.units.instants import parse_instant
from reprieve.jobs import pods
from reprieve.jobs.writing import Conflicting, Injection, ungated
from tests.jobs.builders import GATE, PREFIX, Json, pod, template


def test_a_pod_is_gated_labelled_and_kept_until_its_end_is_seen() -> None:
    before = pod(finalizer=False)
    untouched = copy.deepcopy(before)
    made = pods.gated(before, GATE)
    assert before == untouched
    assert made["spec"]["schedulingGates"] == [{"name": GATE}, {"name": f"{PREFIX}topology"}]
    assert made["metadata"]["labels"] == {f"{PREFIX}managed": "true"}
    assert made["metadata"]["finalizers"] == [f"{PREFIX}managed"]
    assert made["metadata"]["annotations"] == {f"{PREFIX}role-hash": pods.role_of(before)}
    assert pods.gated(made, GATE) == made


def test_a_pod_below_a_set_is_only_gated() -> None:
    made = pods.gated(pod(finalizer=False), GATE, managed=False, finalizer=False)
    assert pods.is_gated(made, GATE)
    assert not pods.is_managed(made)
    assert not pods.has_finalizer(made)


def test_gates_of_others_stay_when_ours_go() -> None:
    made = pods.gated(pod(schedulingGates=[{"name": "example.org/other"}]), GATE)
    assert ungated(made, GATE, Injection())["spec"]["schedulingGates"] == [
        {"name": "example.org/other"}
    ]
    assert "schedulingGates" not in ungated(pods.gated(pod(), GATE), GATE, Injection())["spec"]


def test_a_pod_is_told_where_to_run_unless_it_says_otherwise() -> None:
    told = Injection(None, {"disk": "fast"}, [{"key": "gpu"}], {"a": "1"}, {"b": "2"})
    made = ungated(pod(gated=True), GATE, told)
    assert made["spec"]["nodeSelector"] == {"disk": "fast"}
    assert made["spec"]["tolerations"] == [{"key": "gpu"}]
    assert made["metadata"]["labels"]["a"] == "1"
    assert made["metadata"]["annotations"]["b"] == "2"
    wants = pod(gated=True, nodeSelector={"disk": "slow"})
    with pytest.raises(Conflicting, match="conflict for key=disk, value1=slow, value2=fast"):
        ungated(wants, GATE, told)


def test_pods_of_one_shape_have_one_role_whatever_their_images_and_names() -> None:
    first, second = pod("a"), pod("b")
    second["spec"]["containers"][0] |= {"image": "other", "name": "d"}
    assert pods.role_of(first) == pods.role_of(second)
    assert len(pods.role_of(first)) == 8
    others = [
        pod(cpu="2"),
        pod(nodeSelector={"a": "b"}),
        pod(tolerations=[{"key": "a"}]),
        pod(priority=3),
        pod(runtimeClassName="fast"),
        pod(overhead={"cpu": "1"}),
        pod(resources={"requests": {"cpu": "2"}}),
        pod(initContainers=[{"name": "i"}]),
        pod(topologySpreadConstraints=[{"maxSkew": 1}]),
        pod(resourceClaims=[{"name": "r"}]),
        pod(affinity={"nodeAffinity": {}}),
    ]
    roles = {pods.role_of(each) for each in (first, *others)}
    assert len(roles) == len(others) + 1
    assert pods.role_of(pod(notes={"role-hash": "leader"})) == "leader"


def test_a_role_is_the_digest_of_the_references_shape() -> None:
    # The text that the reference would have hashed, keys in their order and nothing as null.
    text = (
        '{"spec":{"affinity":null,"containers":[{"ports":null,"resources":{"requests":'
        '{"cpu":"1"}}}],"initContainers":null,"nodeSelector":null,"overhead":null,'
        '"priority":null,"resourceClaims":null,"runtimeClassName":null,"tolerations":null,'
        '"topologySpreadConstraints":null}}'
    )
    assert pods.role_of(pod()) == hashlib.sha256(text.encode()).hexdigest()[:8]


def test_the_annotation_names_the_group_before_the_label() -> None:
    both = pod(labels={"pod-group-name": "l"}, notes={"pod-group-name": "a"})
    assert pods.group_of(both) == "a"
    assert pods.group_of(pod(labels={"pod-group-name": "l"})) == "l"
    assert pods.group_of(pod()) == ""


@pytest.mark.parametrize(
    ("one", "runnable"),
    [
        (pod(), True),
        (pod(phase="Running", node="n"), True),
        (pod(phase="Succeeded", node="n"), True),
        (pod(phase="Failed", node="n"), False),
        (pod(leaving="2026-01-01T00:00:00Z"), False),
        (pod(phase="Running", node="n", leaving="2026-01-01T00:00:00Z"), True),
    ],
)
def test_a_pod_can_run_until_it_fails_or_goes_before_it_was_placed(
    one: Json, runnable: bool
) -> None:
    assert pods.is_runnable(one) is runnable


def test_the_shape_of_a_template_is_that_of_its_pods() -> None:
    assert pods.shape(template()["spec"]) == pods.shape(pod()["spec"])


@pytest.mark.parametrize("text", ["", "x", "²", "٣", "-3", "0", "9" * 5_000, "2147483648", "1.5"])
def test_a_total_that_is_no_number_of_pods_says_nothing(text: str) -> None:
    assert pods.total_of(pod(notes={"pod-group-total-count": text})) == 0


def test_a_total_is_a_number_of_pods() -> None:
    assert pods.total_of(pod(notes={"pod-group-total-count": "3"})) == 3
    assert pods.total_of(pod(notes={"pod-group-total-count": "+3"})) == 3


def test_a_group_is_admitted_early_only_where_it_says_true() -> None:
    assert pods.is_fast(pod(notes={"pod-group-fast-admission": "true"}))
    assert not pods.is_fast(pod(notes={"pod-group-fast-admission": "false"}))
    assert not pods.is_fast(pod())


def test_pods_that_are_past_their_grace_period_are_not_waited_for() -> None:
    ends = [{"metadata": {"deletionTimestamp": f"2026-03-04T10:00:0{n}Z"}} for n in (1, 7, 5)]
    now = parse_instant("2026-03-04T10:00:05Z")
    assert pods.next_gone_at([*ends, pod()], now) == parse_instant("2026-03-04T10:00:07Z")
    assert pods.next_gone_at([ends[0], pod()], now) is None
