"""Nodes that a check provides after quota is reserved: places come once the checks are ready."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reprieve.api.kueue_topology import PROVISIONING
from reprieve.kube.resource import NODES
from tests.quota_plane.gated_site import gated_site
from tests.quota_plane.kind_stories import ROWS
from tests.quota_plane.pod_lives import ACTIVE
from tests.quota_plane.site import ADMISSION_CHECKS, NAMESPACE, WORKLOADS, Object, Site
from tests.quota_plane.test_topologies import HOST, asking, hosts, lose, queues, racks

MORE = "example.com/provided"
LACKS = (
    "couldn't assign flavors to pod set main: topology \"racks\" doesn't allow to fit any of "
    "2 pod(s). Total nodes: 2; excluded: nodeSelector: 2"
)


def checked(**queue: Any) -> tuple[Object, ...]:
    """Return queues whose nodes are provided by the check `more`."""
    rules = {"admissionChecks": [{"name": "more"}]}
    return queues(admissionChecksStrategy=rules, **queue)


async def check(cluster: Site) -> None:
    """Create the check, as one that a controller answers."""
    made = {"metadata": {"name": "more"}, "spec": {"controllerName": PROVISIONING}}
    await cluster.client.create(ADMISSION_CHECKS, made, dict)
    await cluster.client.patch_status(ADMISSION_CHECKS, "", "more", ACTIVE, dict)


async def held(cluster: Site) -> Object:
    """Return the status of the one Workload, empty before it is there."""
    workloads = [*(await cluster.workloads()).values()]
    found: Object = (workloads[0].get("status") or {}) if workloads else {}
    return found


async def until_delayed(cluster: Site, state: str) -> None:
    async def said() -> bool:
        assigned = ((await held(cluster)).get("admission") or {}).get("podSetAssignments") or [{}]
        return bool(assigned[0].get("delayedTopologyRequest") == state)

    await cluster.until(f"its topology request is {state}", said)


async def provide(cluster: Site, **changes: Any) -> None:
    """Answer the check: the pods are to be on nodes with a label, or change otherwise."""
    (name,) = (each["metadata"]["name"] for each in (await cluster.workloads()).values())
    update = {"name": "main", **(changes or {"nodeSelector": {MORE: "gang"}})}
    answer = {
        "name": "more",
        "state": "Ready",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "podSetUpdates": [update],
    }
    status = {"admissionChecks": [answer]}
    await cluster.client.patch_status(WORKLOADS, NAMESPACE, name, status, dict)


async def label(cluster: Site, *names: str) -> None:
    for name in names:
        changed = {"metadata": {"labels": {MORE: "gang"}}}
        await cluster.client.patch(NODES, "", name, changed, dict)


async def until_on(cluster: Site, *names: str) -> None:
    async def bound() -> bool:
        return await hosts(cluster, "gang") == [*names]

    await cluster.until(f"its pods run on {names}", bound)


async def test_places_come_with_the_nodes_that_a_check_provides(tmp_path: Path) -> None:
    """Quota is reserved without places; the check's node selector decides where the pods go."""
    nodes, kinds = racks(a="r1", b="r2"), (ROWS["Job"],)
    async with gated_site(tmp_path, *checked(), kinds=kinds, nodes=nodes, prepare=check) as cluster:
        await cluster.create(asking("gang", 2))
        await until_delayed(cluster, "Pending")
        status = await held(cluster)
        assert "topologyAssignment" not in status["admission"]["podSetAssignments"][0]
        await provide(cluster)

        async def told() -> bool:
            return LACKS in [e[4] for e in await cluster.events() if e[3] == "SecondPassFailed"]

        await cluster.until("an event says that no node has the label", told)
        said = (await cluster.conditions("gang"))["Admitted"]
        assert said == (
            "False",
            "PendingDelayedTopologyRequests",
            "There are pending delayed topology requests",
        )
        await label(cluster, "b")
        await until_on(cluster, "b", "b")
        await until_delayed(cluster, "Ready")
        assert "gang" in await cluster.admitted()


async def test_tolerations_that_a_check_adds_open_the_nodes_it_provides_and_no_others(
    tmp_path: Path,
) -> None:
    """Both nodes are tainted, and only the taint of `b` is tolerated by what the check adds."""
    nodes, kinds = racks(a="r1", b="r2"), (ROWS["Job"],)
    async with gated_site(tmp_path, *checked(), kinds=kinds, nodes=nodes, prepare=check) as cluster:
        for name, key in (("a", "repair"), ("b", MORE)):
            taint = {"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}}
            await cluster.client.patch(NODES, "", name, taint, dict)
        await cluster.create(asking("gang", 2))
        await until_delayed(cluster, "Pending")
        tolerated = {"key": MORE, "operator": "Exists", "effect": "NoSchedule"}
        await provide(cluster, tolerations=[tolerated])
        await until_on(cluster, "b", "b")
        await until_delayed(cluster, "Ready")


async def test_an_operator_that_starts_between_reservation_and_places_assigns_them(
    tmp_path: Path,
) -> None:
    nodes, kinds = racks(a="r1", b="r2"), (ROWS["Job"],)
    async with gated_site(tmp_path, *checked(), kinds=kinds, nodes=nodes, prepare=check) as cluster:
        await cluster.create(asking("gang", 2))
        await until_delayed(cluster, "Pending")
        await cluster.stop()
        await label(cluster, "b")
        await provide(cluster)
        await cluster.start()
        await until_on(cluster, "b", "b")


async def test_a_failed_node_is_replaced_by_one_that_the_check_provided(tmp_path: Path) -> None:
    """The check's node selector holds for the replacement: `c` has room, and not its label."""
    nodes, kinds = racks(a="r1", b="r1", c="r1", d="r1"), (ROWS["Job"],)
    async with gated_site(tmp_path, *checked(), kinds=kinds, nodes=nodes, prepare=check) as cluster:
        await label(cluster, "b", "d")
        await cluster.create(asking("gang", 2, level=HOST))
        await until_delayed(cluster, "Pending")
        await provide(cluster)
        await until_on(cluster, "b", "b")
        await lose(cluster, "b")
        await until_on(cluster, "d", "d")
