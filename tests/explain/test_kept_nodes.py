"""Why a node no longer accepts a pod for which it keeps capacity."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.answers.kept_nodes import refusal_of, refusing

GPU = "amd.com/gpu"
TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
AFFINITY = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [TERM]}}}


def refused(node: dict[str, Any], **spec: Any) -> str:
    """Return why node n refuses a pod of 8 GPUs."""
    container = {"name": "c", "resources": {"requests": {GPU: "8"}}}
    pod = {
        "spec": {"containers": [container], **spec},
        "status": {"nominatedNodeName": "n"},
    }
    return refusal_of([pod], {"n": node and {"metadata": {"name": "n"}, **node}})


@pytest.mark.parametrize(
    ("node", "spec", "text"),
    [
        ({}, {}, "n does not exist any more"),
        ({"spec": {"unschedulable": True}}, {}, "n is cordoned"),
        ({"status": {"allocatable": {GPU: "8"}}}, {}, ""),
        ({"status": {"allocatable": {GPU: "6"}}}, {}, f"n has 6 {GPU} of 8 {GPU}"),
        ({"status": {"allocatable": {"cpu": "6"}}}, {}, f"n has none of 8 {GPU}"),
        ({"spec": {}}, {"nodeSelector": {"zone": "a"}}, "n lacks the label zone=a"),
        ({"spec": {}}, {"affinity": AFFINITY}, "n does not match the pod's node affinity"),
    ],
)
def test_what_has_changed_about_the_node_is_named(
    node: dict[str, Any], spec: dict[str, Any], text: str
) -> None:
    assert refused(node, **spec) == text


def test_labels_and_tolerations_that_suit_refuse_nothing() -> None:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    node = {
        "metadata": {"name": "n", "labels": {"zone": "a"}},
        "spec": {"unschedulable": True, "taints": [taint]},
    }
    tolerations = [{"operator": "Exists"}]
    suits = {"nodeSelector": {"zone": "a"}, "affinity": AFFINITY, "tolerations": tolerations}
    assert refused(node, **suits) == ""


def test_only_a_node_that_is_there_can_accept_pods_again() -> None:
    pods = [{"spec": {}, "status": {"nominatedNodeName": name}} for name in ("gone", "n")]
    cordoned = {"metadata": {"name": "n"}, "spec": {"unschedulable": True}}
    nodes: dict[str, Any] = {"gone": {}, "n": cordoned}
    assert refusal_of(pods, nodes) == "gone does not exist any more, n is cordoned"
    assert refusing(pods, nodes) == ["n"]
