"""What harm budgets promise: the ledger is what happened, and nobody gets around a budget."""

from __future__ import annotations

import csv
import io
from functools import partial
from random import Random

import pytest

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.records.harm_sums import part_rows
from reprieve.records.harm_table import as_csv, harm_rows
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import NAMESPACE, Object, pod
from tests.scheduling.test_harm_budgets import budget, displaced, on_gpus, parts, put, started, told

GPU = "nvidia.com/gpu"
RECORDS = "preemptions.reprieve.dev"
STEPS, MOST = 14, 10


def add_nodes(cluster: Memory, count: int) -> None:
    """Create nodes of four GPUs."""
    amounts = {"cpu": "8", "memory": "256Gi", "pods": "110", GPU: "4"}
    status = {"allocatable": amounts, "capacity": amounts}
    for number in range(count):
        node = {"metadata": {"name": f"node-{number}"}, "spec": {}, "status": status}
        cluster.api.put("nodes", node)


def counted(cluster: Memory) -> float:
    """Return the device seconds that the metric of the last process counts."""
    registry = cluster.planes[-1].context.metrics.registry
    return sum(
        sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "reprieve_lost_device_seconds_total"
    )


def _is_decided(cluster: Memory, name: str) -> bool:
    return bool(cluster.victims()) or "harm budget" in told(cluster, name)


def _is_held(cluster: Memory, name: str) -> bool:
    return "harm budget batch-day" in told(cluster, name)


async def test_an_hour_of_displacements_is_the_same_in_ledger_metric_and_records() -> None:
    random = Random(11)
    async with memory() as cluster:
        add_nodes(cluster, 3)
        put(cluster, budget(window="24h", limits={"displacements": MOST}))
        await started(cluster)
        began, metric = cluster.clock.wall(), 0.0
        for number in range(STEPS):
            free = {f"node-{place}" for place in range(3)} - set(cluster.placed().values())
            for node in sorted(free):
                name = f"low-{number}-{node}"
                cluster.running(on_gpus(pod(name, 4, priority="low")), node)
            await cluster.pass_time(random.randrange(240, 420) * SECOND)
            urgent = f"high-{number}"
            cluster.create(on_gpus(pod(urgent, 4, priority="high")))
            await cluster.until(partial(_is_decided, cluster, urgent))
            cluster.end_all()
            await cluster.pass_time(10 * SECOND)
            cluster.end(urgent)
            if random.random() < 0.2:
                metric += counted(cluster)
                await cluster.stop()
                await started(cluster)
        await cluster.pass_time(MINUTE)
        metric += counted(cluster)
        assert cluster.clock.wall() - began > HOUR
        ledger = [row for part in parts(cluster).values() for row in part_rows(part)[0].items()]
        records = cluster.api.objects[RECORDS].values()
        lost = [v["lostDeviceSeconds"] for each in records for v in each["spec"]["victims"]]
        rows = harm_rows(ledger, Nanos(0), "month")
        assert sum(row.displacements for row in rows) == len(lost) == MOST
        # What was deleted is what happened, whatever is said of it.
        gone = [name for name in cluster.api.deleted.elements() if name.startswith("low-")]
        assert len(gone) == len(set(gone)) == MOST
        table = list(csv.DictReader(io.StringIO(as_csv(rows))))
        assert sum(int(row["displacements"]) for row in table) == MOST
        hours = sum(float(row["lost_gpu_hours"]) for row in table)
        assert hours == pytest.approx(metric / 3_600, abs=0.01 * len(table))
        assert sum(row.lost_device_seconds for _, row in ledger) == sum(lost) == metric


def disguised(name: str, number: int) -> Object:
    """Return a preemptor under other names each time."""
    found = pod(name, 4, priority="high")
    metadata = found["metadata"]
    if number == 1:
        metadata["labels"]["reprieve.dev/lineage"] = "another"
    if number == 2:
        # Nobody checks who owns what is named here.
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "theirs", "uid": "theirs"}
        metadata["ownerReferences"] = [{**owner, "controller": True}]
    return found


async def test_no_tenant_gets_more_by_other_names_labels_or_owners() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        put(cluster, budget(scope="Caused", limits={"displacements": 1}))
        plane = await started(cluster)
        await displaced(cluster, 0)
        cluster.running(pod("spared", 4, priority="low"), "node-0")
        for number in range(3):
            cluster.create(disguised(f"again-{number}", number))
        for number in range(3):
            await cluster.until(partial(_is_held, cluster, f"again-{number}"))
        await cluster.pass_time(MINUTE)
        assert not cluster.victims()
        (use,) = plane.context.governor.harm.used("batch-day", cluster.clock.wall())
        assert (use.account, use.displacements) == (NAMESPACE, 1)


async def test_the_account_of_a_lineage_is_its_namespaces_whatever_owner_others_name() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        put(cluster, budget(scope="Work", limits={"displacements": 1}))
        plane = await started(cluster)
        cluster.running(on_gpus(pod("old", 4, priority="low")), "node-0")
        cluster.create(pod("urgent", 4, priority="high"))
        await cluster.until(cluster.victims)
        (use,) = plane.context.governor.harm.used("batch-day", cluster.clock.wall())
        assert use.account == f"{NAMESPACE}/owner/train"
