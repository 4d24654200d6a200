"""How many pods the quotas of a namespace let be made, by the rules of the API server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reprieve.whatif.submitting.pod_quotas import Left, QuotaObject, Short, left_of, subtracted

Object = dict[str, Any]


def pod(cpu: str = "1", gpus: int = 0, **spec: Any) -> Object:
    amounts = {"cpu": cpu} | ({"amd.com/gpu": str(gpus)} if gpus else {})
    resources = {"requests": amounts, "limits": amounts}
    return {"spec": {"containers": [{"name": "main", "resources": resources}], **spec}}


def quotas(*given: tuple[dict[str, str], dict[str, str]], **spec: Any) -> list[Left]:
    return left_of(
        msgspec.convert(
            {
                "metadata": {"name": f"quota-{number}"},
                "spec": spec,
                "status": {"hard": hard, "used": used},
            },
            QuotaObject,
        )
        for number, (hard, used) in enumerate(given)
    )


@pytest.mark.parametrize(
    ("hard", "used", "fits", "at_most"),
    [
        ({"cpu": "4"}, {"cpu": "1500m"}, 2, 4),
        ({"requests.cpu": "4"}, {"requests.cpu": "1"}, 3, 4),
        ({"limits.cpu": "4"}, {}, 4, 4),
        ({"requests.amd.com/gpu": "8"}, {"requests.amd.com/gpu": "3"}, 2, 4),
        ({"pods": "9"}, {"pods": "8"}, 1, 9),
        ({"count/pods": "5"}, {"count/pods": "7"}, 0, 5),
    ],
)
def test_pods_are_counted_under_every_name_that_a_quota_has(
    hard: dict[str, str], used: dict[str, str], fits: int, at_most: int
) -> None:
    (name,) = hard
    wanted = pod(gpus=2)
    found = subtracted(wanted, 8, quotas((hard, used)))
    assert found == Short("quota-0", name, fits, at_most)
    assert subtracted(wanted, fits, quotas((hard, used))) is None


def test_the_tightest_of_several_quotas_decides_and_what_came_before_counts() -> None:
    left = quotas(({"cpu": "10"}, {}), ({"pods": "6"}, {"pods": "1"}))
    assert subtracted(pod(), 3, left) is None
    assert subtracted(pod(), 3, left) == Short("quota-1", "pods", 2, 6)
    # Two of them were made: of ten cpus five are left, of pods none.
    assert [each.amounts for each in left] == [{"cpu": 5_000}, {"pods": 0}]


@pytest.mark.parametrize(
    ("scopes", "counted"),
    [
        (["Terminating"], False),
        (["NotTerminating"], True),
        (["BestEffort"], False),
        (["NotBestEffort"], True),
        (["NotBestEffort", "Terminating"], False),
        (["PriorityClass"], True),
        (["CrossNamespacePodAffinity"], False),
        (["OfALaterRelease"], False),
    ],
)
def test_a_quota_counts_pods_of_all_its_scopes_alone(scopes: list[str], counted: bool) -> None:
    left = quotas(({"pods": "1"}, {}), scopes=scopes)
    assert (subtracted(pod(priorityClassName="high"), 2, left) is not None) is counted


@pytest.mark.parametrize(
    ("operator", "values", "counted"),
    [
        ("In", ["high"], True),
        ("In", ["low"], False),
        ("NotIn", ["low"], True),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
    ],
)
def test_a_quota_of_priority_classes_counts_the_pods_of_these(
    operator: str, values: list[str], counted: bool
) -> None:
    said = {"scopeName": "PriorityClass", "operator": operator, "values": values}
    left = quotas(({"pods": "1"}, {}), scopeSelector={"matchExpressions": [said]})
    assert (subtracted(pod(priorityClassName="high"), 2, left) is not None) is counted


def test_scopes_of_pods_that_end_request_nothing_or_look_at_other_namespaces_count_these() -> None:
    term = {"topologyKey": "zone", "namespaces": ["others"]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    for scope, wanted in (
        ("Terminating", pod(activeDeadlineSeconds=60)),
        ("BestEffort", {"spec": {"containers": [{"name": "main"}]}}),
        ("CrossNamespacePodAffinity", pod(affinity={"podAntiAffinity": required})),
    ):
        assert subtracted(wanted, 2, quotas(({"pods": "1"}, {}), scopes=[scope])) is not None


def test_a_quota_that_cannot_be_read_counts_nothing() -> None:
    assert quotas(({"pods": "many"}, {})) == []
