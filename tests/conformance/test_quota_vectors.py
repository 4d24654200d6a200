"""The published cases of the quota plane, one test a case: `quota/file.json::name`.

Every case also runs as a copy in which all instants are moved and all uids have another beginning,
in input and expectation alike: an engine that knows a case instead of the rule fails the copy.
Objects in outcomes are compared in full; nothing deviates. Where several resources get no flavor,
the message of the reference names whichever its map gives first, ours the first by name:
another answer is held to be the same if it is, to the last letter, ours in another order of the
resources. A test below holds which order
is ours.
"""

from __future__ import annotations

import json
import re
from itertools import permutations
from typing import Any

import pytest

from kubeworld.units.durations import HOUR, SECOND
from kubeworld.units.instants import Nanos, format_instant, parse_instant
from tests.conformance.quota_runners import RUNNERS
from tests.conformance.world import Json

DELTA = 9_679 * HOUR + 431 * SECOND
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
UID = re.compile(r'("uid": "|"kueue.x-k8s.io/job-uid": "|UID: )(?!UNKNOWN)([^",)]+)')


def test_published(quota_vector: tuple[str, str, Json]) -> None:
    _, kind, case = quota_vector
    assert _differences(kind, case) is None


def test_shifted_copy(quota_vector: tuple[str, str, Json]) -> None:
    _, kind, case = quota_vector
    assert _differences(kind, _shifted(case)) is None


@pytest.mark.parametrize("said", ["a", "b", "c"])
def test_a_message_may_name_any_resource_that_lacks_quota_and_no_other(said: str) -> None:
    found = _differences("flavorassigner", _lacking_a_and_b(said))
    assert (found is None) == (said != "c")


def test_without_an_answer_to_compare_with_the_first_resource_by_name_is_named() -> None:
    outcome, expected = _run("flavorassigner", _lacking_a_and_b("a"))
    assert outcome == expected


def _differences(kind: str, case: Json) -> tuple[Any, Any] | None:
    """Return what came out and what was expected, None where these are the same."""
    outcome, expected = _run(kind, case)
    if outcome == expected:
        return None
    for order in permutations(_resources(case)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "reprieve.engine.quota.assigning.assigner.in_order",
                lambda asked, order=order: sorted(asked, key=order.index),
            )
            if _run(kind, case)[0] == expected:
                return None
    return outcome, expected


def _resources(case: Json) -> list[str]:
    """Return all resources of a case's requests, none where there are too many to try."""
    found = {
        name
        for requests in re.findall(r'"requests": (\{[^{}]*\})', json.dumps(case))
        for name in json.loads(requests)
    }
    return sorted({*found, "pods"}) if len(found) < 5 else []


def _run(kind: str, case: Json) -> tuple[Any, Any]:
    assert kind in RUNNERS, f"no runner for kind {kind!r}"
    return RUNNERS[kind](case)


def _shifted(case: Json) -> Json:
    text = INSTANT.sub(
        lambda found: format_instant(Nanos(parse_instant(found.group()) + DELTA)),
        json.dumps(case),
    )
    copy: Json = json.loads(UID.sub(r"\g<1>z9-\g<2>", text))
    return copy


def _lacking_a_and_b(said: str) -> Json:
    """Return a case in which two resources lack quota and a third does not, and what is said."""
    why = (
        f"insufficient quota for {said} in flavor of-{said}, previously considered podsets "
        "requests (0) + current podset request (3) > maximum capacity (1)"
    )
    requests = {"a": "3", "b": "3", "c": "3"}
    groups = [
        {
            "coveredResources": [name],
            "flavors": [
                {"name": f"of-{name}", "resources": [{"name": name, "nominalQuota": quota}]}
            ],
        }
        for name, quota in (("a", "1"), ("b", "1"), ("c", "9"))
    ]
    container = {"name": "c", "resources": {"requests": requests}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    found = {
        "borrowing": 0,
        "message": f"couldn't assign flavors to pod set main: {why}",
        "noFitReason": "ExceedsMaxQuota",
        "representativeMode": "NoFit",
        "usage": [],
        "podSets": [
            {
                "name": "main",
                "count": 1,
                "error": "",
                "flavors": {},
                "reasons": [why],
                "requests": requests,
            }
        ],
    }
    return {
        "clusterQueues": [
            {
                "metadata": {"name": "queue"},
                "spec": {
                    "namespaceSelector": {},
                    "queueingStrategy": "BestEffortFIFO",
                    "preemption": {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"},
                    "flavorFungibility": {
                        "whenCanBorrow": "MayStopSearch",
                        "whenCanPreempt": "TryNextFlavor",
                    },
                    "resourceGroups": groups,
                },
            }
        ],
        "resourceFlavors": [{"metadata": {"name": f"of-{name}"}, "spec": {}} for name in requests],
        "incoming": {"spec": {"podSets": [pod_set]}},
        "targetClusterQueue": "queue",
        "usage": {},
        "oracle": [],
        "fairSharingEnabled": False,
        "featureGates": {},
        "expect": found,
    }
