"""DynamicResources: can the pod's claims be allocated on the node? Section 21.9, naively.

What assumed pods took is found by allocating for them again, in the order in which they were
assumed. Claims of removed pods stay in use unless `simulateClaims` is set in the cluster's objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from tests.oracle.scheduling import objects
from tests.oracle.scheduling.filters import Refusal
from tests.oracle.scheduling.objects import Cluster, Object, key_of, name_of, namespace_of
from tests.oracle.scheduling.selectors import class_and_request_hold, qualified

MOST_USERS, MOST_DEVICES = 256, 32


class Device(NamedTuple):
    driver: str
    pool: str
    name: str
    spec: Object
    counters: Object


class Taken(NamedTuple):
    """One allocated device; `capacity` is what it takes of a device that several may share."""

    device: Device
    claim: str
    request: str
    admin: bool
    capacity: dict[str, int]
    alternative: int


class NoClass(Exception):
    """A request names a device class that does not exist."""


def dynamic_resources(pod: Object, node: Object, cluster: Cluster) -> Refusal | None:
    claims, wanted = claims_of(pod, node, cluster), []
    if not claims:
        return None
    for claim in claims:
        allocation = _allocation(claim, cluster)
        if allocation is None:
            wanted.append(claim)
            continue
        selector = allocation.get("nodeSelector")
        if selector is not None and not objects.selector_holds(selector, node):
            return Refusal("DynamicResources", "X", ("resourceclaim not available on the node",))
        users = (claim.get("status") or {}).get("reservedFor") or ()
        names = (name_of(pod), (pod["spec"].get("schedulingGroup") or {}).get("podGroupName"))
        if len(users) >= MOST_USERS and not any(u["name"] in names for u in users):
            return Refusal("DynamicResources", "X", ("resourceclaim in use",))
    taken = taken_devices(cluster)
    # Claims that an earlier member of the group was given are shared, not given again.
    wanted = [c for c in wanted if key_of(c) not in {t.claim for t in taken}]
    try:
        if wanted and allocate(wanted, node, cluster, taken) is None:
            # Only where devices come back with their users does it help that these go.
            simulated = cluster.objects.get("simulateClaims")
            code = "U" if simulated and allocate(wanted, node, cluster, []) is not None else "X"
            return Refusal("DynamicResources", code, ("cannot allocate all claims",))
    except NoClass as missing:
        return Refusal("DynamicResources", "X", (str(missing),))
    return None


def claims_of(pod: Object, node: Object, cluster: Cluster) -> list[Object]:
    """The pod's claims, and one for extended resources that only device classes offer here."""
    generated = {
        s["name"]: s.get("resourceClaimName")
        for s in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    names = [
        r.get("resourceClaimName") or generated.get(r["name"])
        for r in pod["spec"].get("resourceClaims") or ()
    ]
    found = [cluster.one("resourceClaims", n, namespace_of(pod)) for n in names if n]
    claims = [c for c in found if c is not None]
    if not cluster.every("deviceClasses"):
        return claims
    requests = []
    for resource, count in objects.requests_of(pod).items():
        stands = [
            c
            for c in cluster.every("deviceClasses")
            if resource
            in (
                c["spec"].get("extendedResourceName"),
                f"deviceclass.resource.kubernetes.io/{name_of(c)}",
            )
        ]
        if stands and count and not objects.allocatable(node).get(resource):
            exactly = {"deviceClassName": name_of(stands[0]), "count": count}
            requests.append({"name": resource.replace("/", "-"), "exactly": exactly})
    if requests:
        metadata = {"name": f"{name_of(pod)}-extended", "namespace": namespace_of(pod)}
        claims.append({"metadata": metadata, "spec": {"devices": {"requests": requests}}})
    return claims


def _allocation(claim: Object, cluster: Cluster) -> Object | None:
    """The allocation of a claim; with `simulateClaims` none if no pod that uses it is left."""
    status = claim.get("status") or {}
    users = {u["name"] for u in status.get("reservedFor") or ()}
    left = {name_of(p) for p in cluster.live if namespace_of(p) == namespace_of(claim)}
    if cluster.objects.get("simulateClaims") and users and not users & left:
        return None
    allocation: Object | None = status.get("allocation")
    return allocation


def all_devices(cluster: Cluster) -> list[tuple[Object, Device]]:
    """(slice, device) of the complete pools in their newest generation, in order of search."""
    pools: dict[tuple[str, str], list[Object]] = {}
    for each in sorted(cluster.every("resourceSlices"), key=name_of):
        pools.setdefault((each["spec"]["driver"], each["spec"]["pool"]["name"]), []).append(each)
    found = []
    for (driver, pool), slices in sorted(pools.items()):
        for each in _newest(slices):
            counters = {
                s["name"]: s["counters"]
                for other in _newest(slices)
                for s in other["spec"].get("sharedCounters") or ()
            }
            for spec in each["spec"].get("devices") or ():
                found.append((each, Device(driver, pool, spec["name"], spec, counters)))
    return found


def _newest(slices: list[Object]) -> list[Object]:
    generation = max(s["spec"]["pool"].get("generation", 0) for s in slices)
    return [s for s in slices if s["spec"]["pool"].get("generation", 0) == generation]


def _incomplete(driver: str, pool: str, cluster: Cluster) -> bool:
    slices = [
        s
        for s in cluster.every("resourceSlices")
        if (s["spec"]["driver"], s["spec"]["pool"]["name"]) == (driver, pool)
    ]
    newest = _newest(slices)
    promised: int = newest[0]["spec"]["pool"].get("resourceSliceCount", 1)
    return len(newest) < promised


def reachable(node: Object, cluster: Cluster) -> list[Device]:
    def offers(holder: Object) -> bool:
        selector = holder.get("nodeSelector")
        return bool(
            holder.get("nodeName") == name_of(node)
            or holder.get("allNodes")
            or (selector is not None and objects.selector_holds(selector, node))
        )

    return [
        device
        for each, device in all_devices(cluster)
        if offers(device.spec if each["spec"].get("perDeviceNodeSelection") else each["spec"])
    ]


def taken_devices(cluster: Cluster) -> list[Taken]:
    """What claims hold, and what assumed pods are going to be given."""
    known = {(d.driver, d.pool, d.name): d for _, d in all_devices(cluster)}
    taken = []
    for claim in cluster.every("resourceClaims"):
        allocation = _allocation(claim, cluster) or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            device = known.get((result["driver"], result["pool"], result["device"]))
            if device:
                capacity = objects.amounts(result.get("consumedCapacity"))
                admin = bool(result.get("adminAccess"))
                request = result["request"]
                taken.append(Taken(device, key_of(claim), request, admin, capacity, 0))
    for pod in cluster.live:
        node = cluster.one("nodes", pod["spec"]["nodeName"])
        if node is None:
            continue
        held = {t.claim for t in taken}
        wanted = [
            c
            for c in claims_of(pod, node, cluster)
            if _allocation(c, cluster) is None and key_of(c) not in held
        ]
        taken += allocate(wanted, node, cluster, taken) or []
    return taken


def allocate(
    claims: list[Object], node: Object, cluster: Cluster, taken: list[Taken]
) -> list[Taken] | None:
    """The first full solution for all claims, depth first; None if there is none."""
    todo = [(c, r) for c in claims for r in c["spec"]["devices"].get("requests") or ()]
    return _search(todo, node, cluster, taken, [])


def _search(
    todo: list[tuple[Object, Object]],
    node: Object,
    cluster: Cluster,
    taken: list[Taken],
    chosen: list[Taken],
) -> list[Taken] | None:
    if not todo:
        return chosen
    (claim, request), *rest = todo
    for choice in _choices(claim, request, node, cluster, [*taken, *chosen]):
        together = [*chosen, *choice]
        mine = [t for t in together if t.claim == key_of(claim)]
        if len(mine) <= MOST_DEVICES and _constraints_hold(claim, mine):
            found = _search(rest, node, cluster, taken, together)
            if found is not None:
                return found
    return None


def _choices(
    claim: Object, request: Object, node: Object, cluster: Cluster, taken: list[Taken]
) -> Iterator[list[Taken]]:
    alternatives = [request["exactly"]] if "exactly" in request else request["firstAvailable"]
    for number, exactly in enumerate(alternatives):
        device_class = cluster.one("deviceClasses", exactly["deviceClassName"])
        if device_class is None:
            missing = exactly["deviceClassName"]
            raise NoClass(f"request {request['name']}: device class {missing} does not exist")
        name = request["name"]
        if "firstAvailable" in request:
            name = f"{name}/{exactly['name']}"
        admin = bool(exactly.get("adminAccess"))
        matching = [
            d
            for d in reachable(node, cluster)
            if class_and_request_hold(d.spec, d.driver, device_class, exactly, key_of(claim))
            and _tolerated(d.spec, exactly)
        ]
        whole = [d for d in matching if not _incomplete(d.driver, d.pool, cluster)]
        every = exactly.get("allocationMode") == "All"
        if every and (not matching or len(whole) < len(matching)):
            continue
        count = len(whole) if every else exactly.get("count", 1)
        for devices in combinations(whole, count):
            choice: list[Taken] = []
            for d in devices:
                one = Taken(d, key_of(claim), name, admin, _share(d, exactly), number)
                if not admin and not _free(one, [*taken, *choice]):
                    break
                choice.append(one)
            else:
                yield choice


def _tolerated(device: Object, request: Object) -> bool:
    tolerations = request.get("tolerations") or ()
    return all(
        taint.get("effect") not in ("NoSchedule", "NoExecute")
        or any(objects.covers(t, taint) for t in tolerations)
        for taint in device.get("taints") or ()
    )


def _share(device: Device, request: Object) -> dict[str, int]:
    whole = {n: c["value"] for n, c in (device.spec.get("capacity") or {}).items()}
    asked = (request.get("capacity") or {}).get("requests") or {}
    return objects.amounts({**whole, **asked})


def _free(wanted: Taken, taken: list[Taken]) -> bool:
    device, counted = wanted.device, [t for t in taken if not t.admin]
    same = [t for t in counted if t.device[:3] == device[:3]]
    if device.spec.get("allowMultipleAllocations"):
        for name, limit in (device.spec.get("capacity") or {}).items():
            used = sum(t.capacity.get(name, 0) for t in [*same, wanted])
            if used > objects.amount(name, limit["value"]):
                return False
    elif same:
        return False
    pool = [t.device for t in counted if t.device[:2] == device[:2]]
    if device.spec.get("allowMultipleAllocations") and same:
        pool = [d for d in pool if d[:3] != device[:3]]
    for use in device.spec.get("consumesCounters") or ():
        for name in use["counters"]:
            users = [
                u["counters"][name]["value"]
                for d in [*pool, device]
                for u in d.spec.get("consumesCounters") or ()
                if u["counterSet"] == use["counterSet"] and name in u["counters"]
            ]
            limit = device.counters[use["counterSet"]][name]["value"]
            if sum(map(objects.number, users)) > objects.number(limit):
                return False
    return True


def _constraints_hold(claim: Object, chosen: list[Taken]) -> bool:
    for constraint in claim["spec"]["devices"].get("constraints") or ():
        requests = constraint.get("requests") or []
        values = []
        for each in chosen:
            if (
                requests
                and each.request not in requests
                and each.request.split("/")[0] not in requests
            ):
                continue
            wanted = constraint.get("matchAttribute") or constraint["distinctAttribute"]
            domain, _, name = wanted.rpartition("/")
            there = qualified(each.device.spec, each.device.driver, "attributes")
            if (domain, name) not in there:
                return False
            values.append(tuple(there[domain, name].items()))
        distinct = len(set(values))
        if "matchAttribute" in constraint and distinct > 1:
            return False
        if "distinctAttribute" in constraint and distinct < len(values):
            return False
    return True


def score(pod: Object, nodes: list[Object], cluster: Cluster) -> dict[str, int]:
    """Raw scores: 8 - i for each alternative number i of a `firstAvailable` request."""
    result = {}
    for node in nodes:
        taken = taken_devices(cluster)
        claims = [
            c
            for c in claims_of(pod, node, cluster)
            if _allocation(c, cluster) is None and key_of(c) not in {t.claim for t in taken}
        ]
        found = allocate(claims, node, cluster, taken) or []
        alternatives = {(t.claim, t.request): t.alternative for t in found if "/" in t.request}
        result[name_of(node)] = sum(8 - number for number in alternatives.values())
    return result
