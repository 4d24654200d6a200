"""Nonsense at every place of the section `scheduling`: refused with place and what is accepted."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import date
from typing import Any, Final

import pytest

from reprieve.settings.scheduling import scheduling_settings
from reprieve.units.errors import UsageError

V1: Final = "kubescheduler.config.k8s.io/v1"
TERM: Final = {
    "matchExpressions": [{"key": "pool", "operator": "In", "values": ["gpu"]}],
    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
}
ARGUMENTS: Final[dict[str, Any]] = {
    "NodeResourcesFit": {
        "ignoredResources": ["example.com/x"],
        "ignoredResourceGroups": ["example.org"],
        "scoringStrategy": {
            "type": "RequestedToCapacityRatio",
            "resources": [{"name": "cpu", "weight": 2}],
            "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}]},
        },
    },
    "NodeResourcesBalancedAllocation": {"resources": [{"name": "cpu", "weight": 1}]},
    "InterPodAffinity": {"hardPodAffinityWeight": 1, "ignorePreferredTermsOfExistingPods": True},
    "PodTopologySpread": {
        "defaultingType": "List",
        "defaultConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "minDomains": 2,
                "nodeAffinityPolicy": "Honor",
                "nodeTaintsPolicy": "Ignore",
            }
        ],
    },
    "NodeAffinity": {
        "addedAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "preference": TERM}],
        }
    },
    "DefaultPreemption": {"minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 100},
    "VolumeBinding": {"bindTimeoutSeconds": 600, "shape": [{"utilization": 0, "score": 0}]},
    "DynamicResources": {"filterTimeout": "10s", "bindingTimeout": "10s"},
    "Coscheduling": {
        "apiVersion": V1,
        "kind": "CoschedulingArgs",
        "enablePreemption": True,
        "defaultTimeout": "600s",
        "defaultMatchPolicy": "only-waiting",
        "controllerWorkers": 1,
        "skipCheckScheduleCycle": False,
        "awareNetworkTopology": False,
        "permitWaitingTimeSeconds": 60,
        "podGroupBackoffSeconds": 0,
        "podGroupRejectPercentage": 10,
    },
}
SECTION: Final[dict[str, Any]] = {
    "secondReprievePass": True,
    "maxPlacements": 2,
    "maxLostWork": "1h",
    "maxMinRuntime": "10m",
    "preemptionPriority": {"cap": 5, "namespaces": {"team": 3}},
    "compositePriority": "Root",
    "victimDeadline": "5m",
    "featureGates": {"GenericWorkload": True},
    "gangs": {
        "placement": "search",
        "podDisruptionBudgets": "Prefer",
        "victimGangs": "Pod",
        "triggerPodSpelling": "guide",
        "protectedQuotas": ["a"],
        "protectedNamespaces": ["b"],
        "elasticQuotas": "Labels",
    },
    "configuration": {
        "apiVersion": V1,
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 50,
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 10,
        "extenders": [],
        "leaderElection": {"leaderElect": True},
        "clientConnection": {"qps": 50},
        "parallelism": 4,
        "enableProfiling": False,
        "profiles": [
            {
                "schedulerName": "a",
                "percentageOfNodesToScore": 3,
                "plugins": {
                    "multiPoint": {
                        "enabled": [{"name": "NodeResourcesFit", "weight": 3}],
                        "disabled": [{"name": "ImageLocality"}],
                    },
                    "score": {"enabled": [{"name": "NodeAffinity", "weight": 5}]},
                },
                "pluginConfig": [{"name": n, "args": args} for n, args in ARGUMENTS.items()],
            }
        ],
    },
}
NONSENSE: Final[tuple[Any, ...]] = (
    True,
    -1,
    1.5,
    "",
    "{0} %s\n",
    [],
    {},
    [None],
    [[]],
    [{}],
    {1: 2},
    {None: 1},
    {"unknown": 1},
    10**30,
    float("nan"),
    date(2026, 1, 1),
    b"x",
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(part, (*path, key))


def at(path: tuple[Any, ...]) -> Any:
    found: Any = SECTION
    for key in path:
        found = found[key]
    return found


def with_value(path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    section = copy.deepcopy(SECTION)
    holder: Any = section
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return section


# What is in these is left to whoever reads them.
IGNORED: Final = [("configuration", each) for each in ("leaderElection", "clientConnection")]
READ: Final = [path for path in places(SECTION) if path[:-1] not in IGNORED]


@pytest.mark.parametrize("path", READ, ids=lambda p: ".".join(map(str, p)) or "all")
def test_nonsense_is_refused_in_one_line_with_its_place(path: tuple[Any, ...]) -> None:
    refused = 0
    for value in NONSENSE:
        try:
            scheduling_settings(with_value(path, value), "", "v.yaml")
        except UsageError as refusal:
            refused += 1
            assert str(refusal).startswith("v.yaml: scheduling"), value
            assert "accepted" in str(refusal) and "\n" not in str(refusal), value
    # Of another type are nearly all of them.
    assert refused >= 10


def mappings() -> list[tuple[Any, ...]]:
    keyed_by_users = ("preemptionPriority", "namespaces")
    return [p for p in places(SECTION) if isinstance(at(p), dict) and p != keyed_by_users]


@pytest.mark.parametrize("path", mappings(), ids=lambda p: ".".join(map(str, p)) or "all")
@pytest.mark.parametrize("key", ["unknown", 1, None])
def test_a_key_that_nobody_knows_is_refused(path: tuple[Any, ...], key: object) -> None:
    with pytest.raises(UsageError, match=rf"unknown .*{key!r}.*accepted"):
        scheduling_settings(with_value(path, {**at(path), key: 1}), "", "v.yaml")
