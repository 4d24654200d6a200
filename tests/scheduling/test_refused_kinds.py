"""Kinds that protect somebody and may not be read: nothing is decided, and the log says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reprieve.api.gangs import DOORS, Door
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, HARM_BUDGETS, Resource
from tests.scheduling.site import NAMESPACE, Object, Site, node, pod, site

PREFIX = "gang.scheduling.koordinator.sh/"
QUOTA = "quota.scheduling.koordinator.sh/"
KOORDINATOR = DOORS[0]


def quotas(door: Door) -> Resource:
    group, _, version = door.api_version.partition("/")
    return Resource(group, version, "elasticquotas", "ElasticQuota")


def definition(kind: Resource) -> Object:
    """Return a definition that keeps every field."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"plural": kind.plural, "singular": "elasticquota", "kind": kind.kind},
            "versions": [version],
        },
    }


def member(number: int) -> Any:
    made = pod(f"gang-{number}", 3, priority="high")
    made["metadata"]["annotations"] = {f"{PREFIX}name": "g", f"{PREFIX}min-available": "2"}
    return made


async def full(cluster: Site, quota: str = "") -> None:
    """Fill both nodes with pods of low priority, of a quota or of none."""
    await cluster.classes()
    for number in range(2):
        low = pod(f"low-{number}", 4, priority="low")
        low["metadata"]["labels"] |= {f"{QUOTA}name": quota} if quota else {}
        await cluster.create(low)
    await cluster.until_placed({"low-0", "low-1"})
    await cluster.run()


def told(cluster: Site, *words: str) -> list[str]:
    return [line for line in cluster.lines if all(word in line for word in words)]


async def test_a_quota_that_exists_and_may_not_be_read_stops_decisions_until_it_may(
    tmp_path: Path,
) -> None:
    kind = quotas(KOORDINATOR)
    async with site([node("node-0", 4), node("node-1", 4)], tmp_path) as cluster:
        rights = cluster.embedded.stage.rights
        assert rights is not None
        first = await cluster.operator()
        await full(cluster, "gold")
        await first.stop()
        await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition(kind), dict)
        protecting = {
            "metadata": {
                "name": "gold",
                "namespace": NAMESPACE,
                "labels": {f"{QUOTA}preemptible": "false"},
            }
        }
        await cluster.client.create(kind, protecting, dict)
        await rights.deny("list", kind.group, kind.plural)
        await cluster.operator()
        await cluster.create(member(0), member(1), pod("small", 0))

        async def decided() -> bool:
            return bool(await cluster.victims()) or "small" in await cluster.placed()

        await cluster.never("something is decided", decided, 60)
        (line,) = told(cluster, "WARNING", "elasticquotas")
        assert f'apiGroups: ["{kind.group}"], resources: ["elasticquotas"]' in line
        assert "none preempted until it is granted" in line
        await rights.allow("list", kind.group, kind.plural)
        await cluster.until_placed({"small"})
        await cluster.never("a protected pod is evicted", cluster.victims, 60)


@pytest.mark.parametrize("door", DOORS, ids=["koordinator", "plugins"])
async def test_a_refused_kind_that_does_not_exist_holds_nothing_back(
    door: Door, tmp_path: Path
) -> None:
    kind = quotas(door)
    async with site([node("node-0", 4), node("node-1", 4)], tmp_path) as cluster:
        rights = cluster.embedded.stage.rights
        assert rights is not None
        await rights.deny("list", kind.group, kind.plural)
        await cluster.operator()
        await full(cluster)
        await cluster.create(member(0), member(1))
        assert await cluster.until_victims(2) == {"low-0", "low-1"}
        assert told(cluster, "WARNING", "elasticquotas") == []


async def test_harm_budgets_that_may_not_be_read_stop_decisions_until_they_may(
    tmp_path: Path,
) -> None:
    async with site([node("node-0", 4), node("node-1", 4)], tmp_path) as cluster:
        rights = cluster.embedded.stage.rights
        assert rights is not None
        first = await cluster.operator()
        await full(cluster)
        await first.stop()
        budget = {
            "metadata": {"name": "none"},
            "spec": {"limits": {"displacements": 0}, "window": "1h"},
        }
        await cluster.client.create(HARM_BUDGETS, budget, dict)
        await rights.deny("list", HARM_BUDGETS.group, HARM_BUDGETS.plural)
        await cluster.operator()
        await cluster.create(pod("urgent", 4, priority="high"))
        await cluster.never("a pod is evicted", cluster.victims, 60)
        (line,) = told(cluster, "WARNING", "harmbudgets")
        assert "the rule to add" in line and "no plane evicts until it is granted" in line
        await rights.allow("list", HARM_BUDGETS.group, HARM_BUDGETS.plural)
        # The budget is read now, and keeps it so.
        await cluster.never("a budget is broken", cluster.victims, 60)
        await cluster.client.delete(HARM_BUDGETS, "", "none")
        await cluster.until_victims(1)
