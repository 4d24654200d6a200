"""What a running quota plane answers to its webhooks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec

from reprieve.api import kueue
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import Configuration, LabelSelector, NodeExpression, ResourceFlavor
from reprieve.intake.quota import cluster_queue_row
from reprieve.jobs.table import BUILT_IN
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.watches import Watches
from reprieve.planes.quota.webhooks.tenancy import PlaneTenancy
from tests.kueue.objects import Json, cluster_queue, group, local_queue

FLAVOR = "default-flavor"


class Shelf:
    """A cache of objects by namespace and name."""

    def __init__(self, *held: tuple[str, str, Any]) -> None:
        self.cache = self
        self._held = {(namespace, name): obj for namespace, name, obj in held}

    def named(self, namespace: str, name: str) -> Any:
        obj = self._held.get((namespace, name))
        return None if obj is None else SimpleNamespace(object=obj)


def tenancy(*queues: Json, above: bool = False) -> PlaneTenancy:
    rows = [cluster_queue_row(msgspec.convert(each, kueue.ClusterQueue)) for each in queues]
    configuration = Configuration(
        cluster_queues={row.name: row for row in rows}, flavors={FLAVOR: ResourceFlavor(FLAVOR)}
    )
    labels = SimpleNamespace(metadata=SimpleNamespace(labels={"team": "a"}))
    door = msgspec.convert(local_queue("door", "team"), kueue.LocalQueue)
    watches = SimpleNamespace(
        namespaces=Shelf(("", "mine", labels)),
        local_queues=Shelf(("default", "door", door)),
        classes=Shelf(("", "high", object())),
    )
    lookup = SimpleNamespace(
        kinds={kind.key: kind for kind in BUILT_IN},
        ancestor=lambda job: object() if above else None,
    )
    selector = LabelSelector((NodeExpression("team", "In", ("a",)),))
    state = SimpleNamespace(holdings=Holdings(configuration))
    return PlaneTenancy(
        cast("Watches", watches),
        cast("QuotaState", state),
        cast("Any", lookup),
        selector,
        ["Foo.v1.example.com"],
    )


def test_namespaces_are_chosen_by_their_labels() -> None:
    assert tenancy().manages("mine")
    assert not tenancy().manages("unknown")


def test_queues_and_classes_are_those_that_are_there() -> None:
    found = tenancy()
    assert found.has_local_queue("default", "door")
    assert not found.has_local_queue("mine", "door")
    assert (found.has_priority_class("high"), found.has_priority_class("low")) == (True, False)


def owned(api_version: str, kind: str, controller: bool = True) -> Json:
    owner = {"apiVersion": api_version, "kind": kind, "controller": controller}
    return {"metadata": {"ownerReferences": [owner]}}


def test_an_owner_is_managed_when_it_is_of_a_known_or_an_external_kind() -> None:
    found = tenancy()
    assert found.has_managed_owner("default", owned("jobset.x-k8s.io/v1alpha2", "JobSet"))
    assert found.has_managed_owner("default", owned("example.com/v1", "Foo"))
    assert not found.has_managed_owner("default", owned("batch/v1", "CronJob"))
    assert not found.has_managed_owner("default", owned("batch/v1", "Job", controller=False))
    assert (found.has_ancestor("default", {}), tenancy(above=True).has_ancestor("default", {})) == (
        False,
        True,
    )


def test_a_queue_that_can_be_hit_says_by_what() -> None:
    own = cluster_queue("team", preemption={"withinClusterQueue": "LowerPriority"})
    assert tenancy(own).can_be_hit("default", "door") == (
        "withinClusterQueue: LowerPriority of ClusterQueue team",
    )
    quiet = cluster_queue("team", cohortName="all")
    other = cluster_queue(
        "other", group({"cpu": 4}), cohortName="all", preemption={"reclaimWithinCohort": "Any"}
    )
    assert tenancy(quiet, other).can_be_hit("default", "door") == (
        "reclaimWithinCohort: Any of ClusterQueue other",
    )
    assert tenancy(cluster_queue("team")).can_be_hit("default", "door") == ()
    assert tenancy(own).can_be_hit("default", "unknown") == ()
