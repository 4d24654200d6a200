"""Pods of an AppWrapper's components get its label, and what `podSetInfos` states of them."""

from __future__ import annotations

from typing import Any

from kubeworld.kinds.app_wrappers import LABEL, wrapped_objects

INFO = {
    "annotations": {"kueue.x-k8s.io/workload": "aw"},
    "labels": {"kueue.x-k8s.io/podset": "aw-0"},
    "nodeSelector": {"flavor": "a"},
    "tolerations": [{"key": "gpu"}],
}


def component(kind: str, spec: dict[str, Any], **rest: Any) -> dict[str, Any]:
    whole = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "c"}, "spec": spec}
    return {"template": whole, **rest}


def test_a_template_is_found_where_none_is_declared() -> None:
    pods: dict[str, Any] = {"template": {"spec": {"containers": []}}}
    given = {"components": [component("Job", pods, podSetInfos=[INFO])]}
    (made,) = wrapped_objects("aw", given)
    assert made["metadata"]["labels"] == {LABEL: "aw"}
    assert made["spec"]["template"] == {
        "metadata": {
            "labels": {LABEL: "aw", "kueue.x-k8s.io/podset": "aw-0"},
            "annotations": {"kueue.x-k8s.io/workload": "aw"},
        },
        "spec": {
            "containers": [],
            "nodeSelector": {"flavor": "a"},
            "tolerations": [{"key": "gpu"}],
        },
    }
    assert "metadata" not in pods["template"]


def test_declared_pod_sets_get_their_own_and_a_pod_is_its_own_template() -> None:
    groups: dict[str, Any] = {"groups": [{"pods": {"spec": {}}}, {"pods": {"spec": {}}}]}
    declared = [{"path": f"template.spec.groups[{n}].pods"} for n in (1, 7)]
    wrapped = component("Thing", groups, podSets=declared, podSetInfos=[INFO])
    lone = component("Pod", {"containers": []}, podSetInfos=[INFO])
    thing, pod = wrapped_objects("aw", {"components": [wrapped, {"template": {}}, lone]})
    first, second = thing["spec"]["groups"]
    assert "metadata" not in first["pods"]
    assert second["pods"]["spec"]["nodeSelector"] == {"flavor": "a"}
    assert pod["metadata"]["labels"] == {LABEL: "aw", "kueue.x-k8s.io/podset": "aw-0"}
    assert pod["spec"]["tolerations"] == [{"key": "gpu"}]
