"""What lets a gang preempt wakes it: ElasticQuotas of both doors and Koordinator's ConfigMap.

Each gang waits since its victims are protected, or preemption is off; the change that lets them go
is answered within 5 s, without the backoff of the gang.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kubeworld.units.durations import SECOND
from reprieve.api.gangs import DOORS, Door
from reprieve.settings.coscheduling import CONFIG_MAP, CONFIG_NAMESPACE
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import NAMESPACE, pod

WITHIN = 5 * SECOND
PREFIX = "gang.scheduling.koordinator.sh/"
PREEMPTIBLE = "quota.scheduling.koordinator.sh/preemptible"
QUOTA = "quota.scheduling.koordinator.sh/name"


def put_quota(
    cluster: Memory, door: Door, *, preemptible: bool, guaranteed: int, used: int
) -> None:
    labels = {} if preemptible else {PREEMPTIBLE: "false"}
    cluster.api.put(
        f"elasticquotas.{door.api_version.partition('/')[0]}",
        {
            "metadata": {
                "name": "gold",
                "namespace": NAMESPACE,
                "uid": "gold",
                "labels": labels,
            },
            "spec": {"min": {"cpu": str(guaranteed)}},
            "status": {"used": {"cpu": str(used)}},
        },
    )


def protect_by_label(cluster: Memory, door: Door, on: bool) -> None:
    put_quota(cluster, door, preemptible=not on, guaranteed=0, used=8)


def protect_by_minimum(cluster: Memory, door: Door, on: bool) -> None:
    put_quota(cluster, door, preemptible=True, guaranteed=8 if on else 4, used=8)


def protect_while_it_is_there(cluster: Memory, door: Door, on: bool) -> None:
    if on:
        protect_by_label(cluster, door, on)
    else:
        cluster.api.remove(f"elasticquotas.{door.api_version.partition('/')[0]}", NAMESPACE, "gold")


def configure(cluster: Memory, door: Door, on: bool) -> None:
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- schedulerName: default-scheduler\n  pluginConfig:\n  - name: Coscheduling\n"
        f"    args:\n      kind: CoschedulingArgs\n      enablePreemption: {str(not on).lower()}\n"
    )
    metadata = {"name": CONFIG_MAP, "namespace": CONFIG_NAMESPACE}
    cluster.api.put("configmaps", {"metadata": metadata, "data": {CONFIG_MAP: text}})


def member(number: int) -> Any:
    made = pod(f"gang-{number}", 3, priority="high")
    made["metadata"]["annotations"] = {f"{PREFIX}name": "g", f"{PREFIX}min-available": "2"}
    return made


@pytest.mark.parametrize("seconds", [180, 185])
@pytest.mark.parametrize("door", DOORS, ids=["koordinator", "plugins"])
@pytest.mark.parametrize(
    "protect", [protect_by_label, protect_by_minimum, protect_while_it_is_there, configure]
)
async def test_a_gang_preempts_as_soon_as_its_victims_are_protected_no_longer(
    protect: Callable[[Memory, Door, bool], None], door: Door, seconds: int
) -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        for number in range(2):
            low = pod(f"low-{number}", 4, priority="low")
            low["metadata"]["labels"] = {QUOTA: "gold"}
            cluster.running(low, f"node-{number}")
        protect(cluster, door, True)
        cluster.start(section={"gangs": {"elasticQuotas": "Min"}})
        cluster.create(member(0), member(1))
        # Its backoff is as long as it can be, and ends after one of both waits.
        await cluster.pass_time(seconds * SECOND)
        assert cluster.victims() == set()
        protect(cluster, door, False)
        await cluster.pass_time(WITHIN)
        assert cluster.victims() == {"low-0", "low-1"}
