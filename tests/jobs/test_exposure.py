"""Jobs that cannot be suspended, in queues that can be hit: the guide's, and one that borrows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import yaml

from reprieve.api import kueue
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import Configuration, LabelSelector, ResourceFlavor
from reprieve.intake.quota import cluster_queue_row
from reprieve.jobs.table import BUILT_IN
from reprieve.planes.quota.webhooks.jobs import JobRules, job_hooks
from reprieve.planes.quota.webhooks.reviews import Asked
from reprieve.planes.quota.webhooks.tenancy import PlaneTenancy
from tests.jobs.builders import Json, pod, template
from tests.kueue.objects import cluster_queue, group, local_queue
from tests.kueue.test_tenancy import Shelf

GUIDE = (
    Path(__file__).resolve().parents[2].parent
    / "shared"
    / "guides"
    / "manifests"
    / "quota-clusterqueues.yaml"
)
QUEUE = "kueue.x-k8s.io/queue-name"
KINDS = ("Pod", "Deployment", "StatefulSet", "LeaderWorkerSet", "Notebook")


def tenancy(*queues: Json) -> PlaneTenancy:
    """Return what a plane knows with these ClusterQueues, each behind a LocalQueue of its name."""
    rows = [cluster_queue_row(msgspec.convert(each, kueue.ClusterQueue)) for each in queues]
    configuration = Configuration(
        cluster_queues={row.name: row for row in rows},
        flavors={"default-flavor": ResourceFlavor("default-flavor")},
    )
    doors = (
        ("team", row.name, msgspec.convert(local_queue(row.name, row.name), kueue.LocalQueue))
        for row in rows
    )
    watches: Any = SimpleNamespace(local_queues=Shelf(*doors))
    state: Any = SimpleNamespace(holdings=Holdings(configuration))
    lookup: Any = SimpleNamespace(kinds={}, ancestor=lambda job: None)
    return PlaneTenancy(watches, state, lookup, LabelSelector())


def warnings(town: PlaneTenancy, kind: str, queue: str) -> tuple[str, ...]:
    """Return what a job of this kind is warned of in a queue."""
    name = f"v{kind.lower()}.kb.io"
    (hook,) = (h for h in job_hooks(BUILT_IN, town, JobRules()) if h.name == name)
    obj = pod() if kind == "Pod" else {"metadata": {}, "spec": {"template": template()}}
    obj["metadata"]["labels"] = {QUEUE: queue}
    return hook.judge(Asked("CREATE", "team", obj)).warnings


@pytest.mark.skipif(not GUIDE.is_file(), reason="no guides in ../shared/guides")
@pytest.mark.parametrize("kind", KINDS)
def test_the_guides_preemptive_queue_warns_and_the_other_one_does_not(kind: str) -> None:
    town = tenancy(*yaml.safe_load_all(GUIDE.read_text(encoding="utf-8")))
    assert warnings(town, kind, "team-a-queue") == (
        (
            f"{kind} cannot be suspended, and LocalQueue team/team-a-queue can be hit by "
            "preemption (withinClusterQueue: LowerPriority of ClusterQueue team-a-queue), which "
            "deletes its pods; use a queue that cannot"
        ),
    )
    assert warnings(town, kind, "non-preemptive-queue") == ()


QUIET = {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"}
RECLAIMING = {"withinClusterQueue": "Never", "reclaimWithinCohort": "Any"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_queue_that_never_preempts_can_be_hit_where_it_borrows(kind: str) -> None:
    borrowing = cluster_queue("quiet", group({"cpu": 4}), cohortName="all", preemption=QUIET)
    lending = cluster_queue("owner", group({"cpu": 4}), cohortName="all", preemption=RECLAIMING)
    (warning,) = warnings(tenancy(borrowing, lending), kind, "quiet")
    assert "(reclaimWithinCohort: Any of ClusterQueue owner)" in warning


@pytest.mark.parametrize(
    ("own", "other"),
    [
        ({"preemption": QUIET}, {"preemption": RECLAIMING}),
        ({"preemption": QUIET, "cohortName": "all"}, {"preemption": QUIET, "cohortName": "all"}),
        ({"preemption": QUIET, "cohortName": "a"}, {"preemption": RECLAIMING, "cohortName": "b"}),
    ],
)
def test_a_queue_is_safe_without_a_cohort_or_where_nobody_reclaims(own: Json, other: Json) -> None:
    queues = (
        cluster_queue("quiet", group({"cpu": 4}), **own),
        cluster_queue("owner", group({"cpu": 4}), **other),
    )
    assert warnings(tenancy(*queues), "Pod", "quiet") == ()


def test_a_queue_that_may_not_borrow_is_safe() -> None:
    limited = group({"cpu": 4})
    for flavor in limited["flavors"]:
        for resource in flavor["resources"]:
            resource["borrowingLimit"] = 0
    own = cluster_queue("quiet", limited, cohortName="all", preemption=QUIET)
    other = cluster_queue("owner", group({"cpu": 4}), cohortName="all", preemption=RECLAIMING)
    assert warnings(tenancy(own, other), "Pod", "quiet") == ()


def test_kinds_that_can_be_suspended_are_not_warned() -> None:
    own = cluster_queue(
        "team", group({"cpu": 4}), preemption={"withinClusterQueue": "LowerPriority"}
    )
    for kind in ("Job", "JobSet", "RayService"):
        assert warnings(tenancy(own), kind, "team") == ()
