"""Whatever is sent, admitting it ends in an object or in one of the two refusals."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubelocal.server.types.registry import Registry
from kubelocal.server.types.schema import (
    FieldValidation,
    Invalid,
    StrictDecoding,
)
from kubelocal.tests.kinds.objects import (
    Object,
    admit,
    admit_update,
    container,
    definition,
    deployment,
    job,
    kind_of,
    pod,
    stored,
    task,
    with_tasks,
)

_REGISTRY = with_tasks()
_TERM = {
    "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
}
_SAMPLES: list[Object] = [
    pod(
        containers=[container(resources={"limits": {"cpu": "1"}}, ports=[{"containerPort": 80}])],
        tolerations=[{"key": "a", "operator": "Exists"}],
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]}
            }
        },
        topologySpreadConstraints=[
            {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}
        ],
        volumes=[{"name": "v", "projected": {"sources": [{"configMap": {"name": "c"}}]}}],
        schedulingGates=[{"name": "example.org/a"}],
    ),
    job(podFailurePolicy={"rules": [{"action": "Ignore", "onPodConditions": [{"type": "X"}]}]}),
    deployment(strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}),
    task({"phase": "x"}, steps=[{"name": "a"}], tags=["a"], free={"x": 1}),
    definition(),
    {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "ownerReferences": [{"kind": "x"}], "finalizers": ["a/b"]},
        "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}},
    },
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {"ports": [{"port": 80, "targetPort": "http"}], "clusterIP": "None"},
    },
    {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        "status": {"conditions": [{"type": "A", "status": "True", "reason": "B"}]},
    },
]
_WRONG = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.just([]),
    st.just({}),
    st.lists(st.one_of(st.none(), st.text(max_size=3), st.just({})), max_size=3),
    st.dictionaries(st.text(max_size=4), st.one_of(st.none(), st.integers(), st.just([]))),
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for name, inner in items:
        found += _places(inner, (*path, name))
    return [each for each in found if each[:1] not in (("apiVersion",), ("kind",))]


@settings(max_examples=600, deadline=None)
@given(st.data())
def test_any_value_anywhere_is_taken_or_refused(data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from(_SAMPLES))
    wrong = copy.deepcopy(sample)
    for _ in range(data.draw(st.integers(1, 2))):
        places = _places(wrong)
        place = data.draw(st.sampled_from(places))
        holder = wrong
        for name in place[:-1]:
            holder = holder[name]
        holder[place[-1]] = data.draw(_WRONG)
    before = copy.deepcopy(wrong)
    kind = kind_of(sample, _REGISTRY)
    with contextlib.suppress(StrictDecoding, Invalid):
        admitted = admit(kind, wrong, data.draw(st.sampled_from(FieldValidation)))
        if kind.kind == "CustomResourceDefinition":
            Registry().install(admitted.obj)
        admit_update(kind, admitted.obj, stored(sample, _REGISTRY))
    assert wrong == before


@pytest.mark.parametrize("kind", ["Pod", "Task", "CustomResourceDefinition"])
def test_endless_nesting_is_refused(kind: str) -> None:
    deep: Any = {}
    for _ in range(5_000):
        deep = {"properties": {"a": deep}, "not": {}, "x": deep}
    sample = {"Pod": pod(), "Task": task(), "CustomResourceDefinition": definition()}[kind]
    if kind == "CustomResourceDefinition":
        sample["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = deep
    elif kind == "Task":
        sample["spec"]["free"] = deep
    else:
        sample["metadata"]["labels"] = deep
    with pytest.raises((StrictDecoding, Invalid)):
        stored(sample, _REGISTRY)
