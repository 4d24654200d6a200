"""Which flavors do, and what the settings around the scan change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reprieve.engine.quota.assigning.flavors import mismatch
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.entries import Entry, Outcome
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    ClusterQueue,
    Configuration,
    FlavorQuotas,
    Gates,
    LocalQueue,
    NodeExpression,
    PodSet,
    Policy,
    Preemption,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Settings,
    Taint,
    Toleration,
    Workload,
)
from reprieve.engine.quota.waiting.queues import Queues
from tests.quota.cases import NOW

SPOT = Taint("spot", "5", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("spot", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("spot", "Equal", "5"), True),
        (Toleration("spot", "Equal", "6"), False),
        (Toleration("spot", "Exists", "", "NoExecute"), False),
        (Toleration("spot", "Gt", "4"), True),
        (Toleration("spot", "Gt", "5"), False),
        (Toleration("spot", "Lt", "6"), True),
        (Toleration("spot", "Lt", "many"), False),
        (Toleration("other", "Exists"), False),
    ],
)
def test_taints_keep_pods_away_that_do_not_tolerate_them(
    toleration: Toleration, tolerated: bool
) -> None:
    pods = PodSet("main", 1, tolerations=(toleration,))
    flavor = ResourceFlavor("f", taints=(SPOT, Taint("soft", "", "PreferNoSchedule")))
    why = "" if tolerated else "untolerated taint {spot 5 NoSchedule <nil>} in flavor f"
    assert mismatch(flavor, pods) == why
    # The flavor may tolerate its own taint for its pods.
    assert mismatch(replace(flavor, tolerations=(toleration,)), PodSet("main", 1)) == why


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        (("zone", "In", ("a", "b")), True),
        (("zone", "In", ("b",)), False),
        (("zone", "NotIn", ("b",)), True),
        (("zone", "NotIn", ("a",)), False),
        (("zone", "Exists", ()), True),
        (("zone", "DoesNotExist", ()), False),
        (("gpus", "Gt", ("7",)), True),
        (("gpus", "Lt", ("8",)), False),
        (("gpus", "Gt", ("x",)), False),
        # The flavor says nothing about racks, so this is no reason against it.
        (("rack", "In", ("r1",)), True),
    ],
)
def test_affinity_counts_for_the_labels_that_a_flavor_has(
    expression: tuple[str, str, tuple[str, ...]], matches: bool
) -> None:
    flavor = ResourceFlavor("f", {"zone": "a", "gpus": "8"})
    pods = PodSet("main", 1, affinity=((NodeExpression(*expression),),))
    assert mismatch(flavor, pods) == ("" if matches else "flavor f doesn't match node affinity")


def test_terms_of_affinity_are_alternatives() -> None:
    flavor = ResourceFlavor("f", {"zone": "a"})
    wrong = (NodeExpression("zone", "In", ("b",)),)
    right = (NodeExpression("zone", "In", ("a",)),)
    silent = (NodeExpression("rack", "In", ("r1",)),)
    terms: list[tuple[Any, bool]] = [
        ((wrong, right), True),
        ((wrong, wrong), False),
        ((wrong, silent), True),
        ((), True),
    ]
    for affinity, matches in terms:
        assert (mismatch(flavor, PodSet("main", 1, affinity=affinity)) == "") is matches


def decided(settings: Settings, requests: dict[str, int], **queue: Any) -> Entry:
    flavors = tuple(FlavorQuotas(name, {"cpu": Quota(2)}) for name in ("first", "second"))
    configuration = Configuration(
        {"team": ClusterQueue("team", groups=(ResourceGroup(("cpu",), flavors),), **queue)},
        {},
        {name: ResourceFlavor(name) for name in ("first", "second")},
        {"ns/main": LocalQueue("ns/main", "team")},
        {"ns": {}},
        settings,
    )
    holdings, queues = Holdings(configuration), Queues(configuration)
    for name, priority, wanted in (("old", 0, {"cpu": 2}), ("new", 1, requests)):
        pods = (PodSet("main", 1, wanted),)
        queues.push(Workload("ns", name, name, "ns/main", priority, pod_sets=pods))
        (entry,) = cycle(holdings, queues, NOW).entries
    return entry


def test_undeclared_resources_block_or_are_ignored() -> None:
    both = {"cpu": 1, "example.com/gpu": 1}
    blocked = decided(Settings(), both)
    assert (blocked.outcome, blocked.reason) == (Outcome.NO_FIT, "NoMatchingFlavor")
    ignored = decided(Settings(ignore_undeclared=True), both)
    assert ignored.admission is not None
    (pod_set,) = ignored.admission.pod_sets
    assert (pod_set.flavors, pod_set.usage) == ({"cpu": "second"}, {"cpu": 1})


@pytest.mark.parametrize("fungible", [True, False])
def test_a_flavor_that_fits_is_better_than_one_to_preempt_in(fungible: bool) -> None:
    settings = Settings(gates=Gates(flavor_fungibility=fungible))
    found = decided(settings, {"cpu": 2}, preemption=Preemption(Policy.LOWER_PRIORITY))
    assert found.admission is not None
    (pod_set,) = found.admission.pod_sets
    assert pod_set.flavors == {"cpu": "second"}
    assert found.assignment is not None
    (assigned,) = found.assignment.pod_sets
    # The index of the last flavor tried is kept by fungibility only.
    assert assigned.flavors["cpu"].tried == (-1 if fungible else 0)
