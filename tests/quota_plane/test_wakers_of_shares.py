"""What a fresh decision would admit or evict for is done within 5 s: shares, flavors and places.

Played as in `test_wakers`, with changes of weights, parents of cohorts, preemption while borrowing,
several flavors, partial admission, harm budgets, and of nodes on which pods are placed.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from reprieve.engine.quota.model import Settings
from reprieve.kube.errors import AlreadyExists, NotFound
from reprieve.kube.resource import NODES, PODS
from reprieve.planes.quota.context import QuotaOptions
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    FLAVORS,
    LOCAL_QUEUES,
    NAMESPACE,
    TOPOLOGIES,
    Object,
    cluster_queue,
    flavor,
    job,
    local_queue,
    node,
    priority_class,
    site,
)
from tests.quota_plane.test_topologies import HOST, RACK, REQUIRED, racks, topology
from tests.quota_plane.test_wakers import COHORTS, Tenants, play

_PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
_CLASSES: Final = [
    priority_class(name, value) for name, value in (("low", 1), ("middle", 50), ("high", 100))
]
_FAIR: Final = QuotaOptions(settings=Settings(fair_sharing=()))


def two_flavors(name: str, first: int, second: int, **spec: Any) -> Object:
    """Return a ClusterQueue of two flavors."""
    flavors = [
        {"name": flavor_name, "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]}
        for flavor_name, cpu in (("default-flavor", first), ("second", second))
    ]
    groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
    return cluster_queue(name, 0, "cohort", resourceGroups=groups, **spec)


class Lenders(Tenants):
    """Who changes what queues share and in which order they use flavors, at random."""

    def steps(self) -> list[Callable[[], Awaitable[object]]]:
        return [
            *[self.submit] * 6,
            self.reclassify,
            self.reclassify,
            self.remove,
            self.remove,
            self.repolicy,
            self.borrow_within_the_cohort,
            self.borrow_within_the_cohort,
            self.weigh_a_queue,
            self.weigh_a_queue,
            self.weigh_a_cohort,
            self.weigh_a_door,
            self.move_a_cohort,
            self.limit_a_cohort,
            self.order_flavors,
            self.order_flavors,
            self.prefer,
            self.accept_fewer,
            self.retaint,
            self.taint_the_second,
            self.move_a_queue,
            self.end_a_flavor,
            self.limit_lending,
            self.protect_a_queue,
            self.protect_a_door,
        ]

    async def submit(self) -> None:
        self.jobs += 1
        fewer = self.chance.choice(({}, {}, {"kueue.x-k8s.io/job-min-parallelism": "1"}))
        made = job(
            f"job-{self.jobs}",
            self.chance.choice(("q", "other")),
            priority=self.chance.choice(("low", "middle", "high")),
            pods=self.chance.choice((1, 2, 3)),
            annotations=fewer,
        )
        if self.chance.random() < 0.2:
            tolerations = [{"key": "example.com/away", "operator": "Exists"}]
            made["spec"]["template"]["spec"]["tolerations"] = tolerations
        await self.cluster.create(made)

    async def repolicy(self) -> None:
        """Preemption while borrowing needs reclaim, so that both change together."""
        await self.borrow_within_the_cohort()

    async def borrow_within_the_cohort(self) -> None:
        borrow = self.chance.choice(
            (
                None,
                {"policy": "LowerPriority", "maxPriorityThreshold": None},
                {"policy": "LowerPriority", "maxPriorityThreshold": self.chance.choice((0, 50))},
            )
        )
        preemption = {
            "withinClusterQueue": self.chance.choice(("Never", "LowerPriority")),
            "reclaimWithinCohort": self.chance.choice(("LowerPriority", "Any")),
            "borrowWithinCohort": borrow,
        }
        await self.change_queue(preemption=preemption)

    def weight(self) -> Object:
        return {"fairSharing": {"weight": self.chance.choice(("0", "1", "3"))}}

    async def weigh_a_queue(self) -> None:
        await self.change_queue(**self.weight())

    async def weigh_a_cohort(self) -> None:
        await self.change_cohort("cohort", self.weight())

    async def weigh_a_door(self) -> None:
        await self.change_door(**self.weight())

    async def move_a_cohort(self) -> None:
        await self.change_cohort("cohort", {"parentName": self.chance.choice(("root", None))})

    async def limit_a_cohort(self) -> None:
        groups = two_flavors("any", self.chance.choice((0, 2)), 1)["spec"]["resourceGroups"]
        await self.change_cohort("root", {"resourceGroups": groups})

    async def change_cohort(self, name: str, spec: Object) -> None:
        try:
            await self.client.create(COHORTS, {"metadata": {"name": name}, "spec": spec}, dict)
        except AlreadyExists:
            await self.client.patch(COHORTS, "", name, {"spec": spec}, dict)

    async def order_flavors(self) -> None:
        name = self.chance.choice(("cq", "cq-other"))
        held: Object = await self.client.get(CLUSTER_QUEUES, "", name, dict)
        groups = held["spec"]["resourceGroups"]
        groups[0]["flavors"].reverse()
        for each in groups[0]["flavors"]:
            each["resources"][0]["nominalQuota"] = str(self.chance.randint(0, 3))
            each["resources"][0].pop("lendingLimit", None)
        await self.change_one(name, resourceGroups=groups)

    async def prefer(self) -> None:
        words = ("MayStopSearch", "TryNextFlavor")
        orders = ("BorrowingOverPreemption", "PreemptionOverBorrowing", None)
        await self.change_queue(
            flavorFungibility={
                "whenCanBorrow": self.chance.choice(words),
                "whenCanPreempt": self.chance.choice(words),
                "preference": self.chance.choice(orders),
            }
        )

    async def accept_fewer(self) -> None:
        value = self.chance.choice(("1", None))
        notes = {"kueue.x-k8s.io/job-min-parallelism": value}
        await self.change_job({"metadata": {"annotations": notes}})

    async def taint_the_second(self) -> None:
        taint = {"key": "example.com/away", "value": "", "effect": "NoSchedule"}
        patch = {"spec": {"nodeTaints": self.chance.choice(([], [taint]))}}
        await self.client.patch(FLAVORS, "", "second", patch, dict)

    async def end_a_flavor(self) -> None:
        try:
            await self.cluster.create(flavor("second"))
        except AlreadyExists:
            await self.client.delete(FLAVORS, "", "second")

    async def protect_a_queue(self) -> None:
        await self.client.patch(
            CLUSTER_QUEUES, "", self.chance.choice(("cq", "cq-other")), self.runtime(), dict
        )

    async def protect_a_door(self) -> None:
        await self.client.patch(
            LOCAL_QUEUES, NAMESPACE, self.chance.choice(("q", "other")), self.runtime(), dict
        )

    def runtime(self) -> Object:
        name = self.chance.choice(
            ("reprieve.dev/preempt-min-runtime", "reprieve.dev/reclaim-min-runtime")
        )
        return {"metadata": {"annotations": {name: self.chance.choice((None, "1h"))}}}


class Movers(Tenants):
    """Who changes nodes, topologies and what else runs there, at random."""

    def steps(self) -> list[Callable[[], Awaitable[object]]]:
        return [
            *[self.submit] * 5,
            self.reclassify,
            self.remove,
            self.remove,
            self.requota,
            self.cordon,
            self.taint_a_node,
            self.move_a_node,
            self.relabel_a_node,
            self.enlarge_a_node,
            self.add_a_node,
            self.occupy,
            self.occupy,
            self.leave,
            self.change_levels,
            self.end_the_topology,
            self.change_the_topology_of_a_flavor,
            self.tolerate,
        ]

    async def submit(self) -> None:
        self.jobs += 1
        made = job(
            f"job-{self.jobs}",
            priority=self.chance.choice(("low", "middle", "high")),
            pods=self.chance.choice((1, 2, 4, 6)),
        )
        level = self.chance.choice((RACK, HOST))
        notes = self.chance.choice(({REQUIRED: level}, {REQUIRED: RACK}, {_PREFERRED: level}, {}))
        made["spec"]["template"]["metadata"] = {"annotations": notes}
        await self.cluster.create(made)

    async def requota(self) -> None:
        groups = cluster_queue("cq", self.chance.choice((4, 12, 12, 30)))["spec"]["resourceGroups"]
        await self.change_one("cq", resourceGroups=groups)

    async def change_node(self, change: Object, **kind: str) -> None:
        page = await self.client.list(NODES, dict)
        name = self.chance.choice(sorted(each["metadata"]["name"] for each in page.items))
        if kind:
            await self.client.patch_status(NODES, "", name, change["status"], dict)
        else:
            await self.client.patch(NODES, "", name, change, dict)

    async def cordon(self) -> None:
        said = self.chance.choice((None, None, True))
        await self.change_node({"spec": {"unschedulable": said}})

    async def taint_a_node(self) -> None:
        taint = {"key": "example.com/away", "effect": "NoSchedule"}
        await self.change_node({"spec": {"taints": self.chance.choice(([], [], [taint]))}})

    async def move_a_node(self) -> None:
        await self.change_node({"metadata": {"labels": {RACK: self.chance.choice(("r1", "r2"))}}})

    async def relabel_a_node(self) -> None:
        label = {"pool": self.chance.choice(("gpu", "gpu", "cpu"))}
        await self.change_node({"metadata": {"labels": label}})

    async def enlarge_a_node(self) -> None:
        amounts = {"cpu": self.chance.choice(("2", "4", "6"))}
        await self.change_node({"status": {"allocatable": amounts}}, part="status")

    async def add_a_node(self) -> None:
        name = self.chance.choice("de")
        try:
            await self.client.delete(NODES, "", name)
        except NotFound:
            made = racks(**{name: "r1"})[0]
            status = {
                "allocatable": made.allocatable,
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            body = {"metadata": {"name": name, "labels": made.labels}, "spec": {}}
            await self.client.create(NODES, {**body, "status": status}, dict)
            await self.client.patch_status(NODES, "", name, status, dict)

    async def occupy(self) -> None:
        """Have a pod of nobody's queue run on a node."""
        self.jobs += 1
        page = await self.client.list(NODES, dict)
        where = self.chance.choice(sorted(each["metadata"]["name"] for each in page.items))
        container = {
            "name": "c",
            "image": "registry.example/app:1",
            "resources": {"requests": {"cpu": self.chance.choice(("1", "3"))}},
        }
        spec = {"nodeName": where, "containers": [container]}
        metadata = {"name": f"foreign-{self.jobs}", "namespace": NAMESPACE}
        await self.client.create(PODS, {"metadata": metadata, "spec": spec}, dict)

    async def leave(self) -> None:
        page = await self.client.list(PODS, dict, namespace=NAMESPACE)
        found = sorted(
            name for each in page.items if (name := each["metadata"]["name"]).startswith("foreign-")
        )
        if found:
            await self.client.delete(PODS, NAMESPACE, self.chance.choice(found))

    async def change_levels(self) -> None:
        levels = [{"nodeLabel": each} for each in self.chance.choice(((RACK, HOST), (HOST,)))]
        await self.client.patch(TOPOLOGIES, "", "racks", {"spec": {"levels": levels}}, dict)

    async def end_the_topology(self) -> None:
        try:
            await self.cluster.create(topology())
        except AlreadyExists:
            await self.client.delete(TOPOLOGIES, "", "racks")

    async def change_the_topology_of_a_flavor(self) -> None:
        named = self.chance.choice(("racks", "racks", None))
        patch = {"spec": {"topologyName": named}}
        await self.client.patch(FLAVORS, "", "default-flavor", patch, dict)

    async def tolerate(self) -> None:
        held = {"key": "example.com/away", "operator": "Exists"}
        patch = {"spec": {"tolerations": self.chance.choice(([], [held]))}}
        await self.client.patch(FLAVORS, "", "default-flavor", patch, dict)


_SHARED: Final[Sequence[Object]] = [
    flavor(),
    flavor("second"),
    two_flavors("cq", 2, 1),
    two_flavors("cq-other", 1, 2),
    local_queue("q", "cq"),
    local_queue("other", "cq-other"),
    *_CLASSES,
]
_PLACED: Final[Sequence[Object]] = [
    topology(),
    flavor(topologyName="racks", nodeLabels={"pool": "gpu"}),
    cluster_queue("cq", 12, preemption={"withinClusterQueue": "LowerPriority"}),
    local_queue("q", "cq"),
    *_CLASSES,
]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("options", [QuotaOptions(), _FAIR], ids=["classical", "fair"])
async def test_a_plane_that_decides_about_shares_anew_finds_nothing_to_do(
    options: QuotaOptions, seed: int, tmp_path: Path
) -> None:
    async with site(tmp_path, *_SHARED, nodes=[node("node-0", cpu=64)], options=options) as cluster:
        await play(cluster, Lenders(cluster, random.Random(seed)), 14, options)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(2))
async def test_a_plane_that_decides_about_places_anew_finds_nothing_to_do(
    seed: int, tmp_path: Path
) -> None:
    nodes = racks(a="r1", b="r1", c="r2")
    async with site(tmp_path, *_PLACED, nodes=nodes) as cluster:
        await play(cluster, Movers(cluster, random.Random(seed)), 14)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
@pytest.mark.parametrize("options", [QuotaOptions(), _FAIR], ids=["classical", "fair"])
async def test_it_finds_nothing_in_many_more_plays_of_shares(
    options: QuotaOptions, seed: int, tmp_path: Path
) -> None:
    async with site(tmp_path, *_SHARED, nodes=[node("node-0", cpu=64)], options=options) as cluster:
        await play(cluster, Lenders(cluster, random.Random(seed)), 25, options)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
async def test_it_finds_nothing_in_many_more_plays_of_places(seed: int, tmp_path: Path) -> None:
    nodes = racks(a="r1", b="r1", c="r2")
    async with site(tmp_path, *_PLACED, nodes=nodes) as cluster:
        await play(cluster, Movers(cluster, random.Random(seed)), 25)
