"""Cases whose outcome differs on purpose, with what is asserted instead. See DEVIATIONS.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.oracle.scheduling import topology, units
from tests.oracle.scheduling.objects import Cluster, own_priority

#: What is in force where nothing that is given is accepted.
_BUILT_IN: dict[str, Any] = {
    "threshold": 5.0,
    "gracePeriodSeconds": 600,
    "policy": "OnPressure",
    "aggregation": "Max",
    "ttlSeconds": 86400,
    "tracked": True,
}
EXPECTED: dict[str, Any] = {
    "decision_reconcile.json::multi-pod-total": {
        "gpuResources": {"amd.com/gpu": 2},
        "status": {"phase": "Active", "idleSince": None, "aggregatedUtilization": None},
    },
    "config_resolution.json::threshold-negative-annotation": _BUILT_IN,
    "config_resolution.json::grace-negative": _BUILT_IN,
}

_PREEMPTION = ", pod group preemption: "
_CLAIMS = ", deallocation and deletion of ResourceClaims completed, pod group preemption: "
_VICTIMS = tuple(f"default/v-{number}" for number in ("001", "014", "017", "032", "042"))
_WITHOUT_NODE_1 = ("node-00", "node-02", "node-04", "node-06", "node-08", "node-09")
#: Parts of the expectation of workload-aware cases that are asserted instead.
WORKLOAD_AWARE: dict[str, Any] = {
    "generated_group_constraints.json::group-constraints-0018": {
        "victims": list(_VICTIMS),
        "disruptionTarget": lambda published: dict.fromkeys(_VICTIMS, published["default/v-001"]),
        "nominated": {
            "default/preemptor-0": "node-02",
            "default/preemptor-2": "node-00",
            "default/preemptor-3": "node-08",
            "default/preemptor-4": "node-06",
        },
    },
    "generated_pod_constraints.json::pod-constraints-0018": {
        "candidates": lambda published: [c for c in published if c["node"] in _WITHOUT_NODE_1],
        "nodeStatus": lambda published: {
            **published,
            "node-01": "Unschedulable|node(s) didn't have free ports for the requested pod ports",
        },
    },
    "integration_podgroup.json::Topology-Aware Preemption: insufficient capacity across all "
    "topologies, no preemption performed": {
        "podGroupConditions": lambda published: {
            name: {**each, "message": each["message"].replace(_PREEMPTION, _CLAIMS)}
            for name, each in published.items()
        },
    },
}


def idle(case_id: str, plane_format: str, case: dict[str, Any]) -> Any:
    """Return what is asserted of a case of the idle plane."""
    expected = EXPECTED.get(case_id, case["expect"])
    if plane_format in ("resources", "has_gpu") and _asks_by_limits(case):
        gpus = _gpus(_pods(case))
        return bool(gpus) if plane_format == "has_gpu" else gpus
    return expected


def _pods(case: dict[str, Any]) -> list[dict[str, Any]]:
    return case.get("pods") or [case["pod"]] if case.get("pods") or case.get("pod") else []


def _asks_by_limits(case: dict[str, Any]) -> bool:
    """Whether an init container has limits of GPUs above its requests: the reference reads none.

    The API server stores no such pod, as it makes requests of limits.
    """
    return any(
        limit > _amounts(container, "requests").get(name, 0)
        for pod in _pods(case)
        for container in pod["spec"].get("initContainers") or ()
        for name, limit in _amounts(container, "limits").items()
    )


def _gpus(pods: list[dict[str, Any]]) -> dict[str, int]:
    """Return the sum over pods by the specification's recommendation (idle plane, 8)."""
    total: dict[str, int] = {}
    for pod in pods:
        spec, sums = pod["spec"], dict[str, int]()
        for container in spec.get("containers") or ():
            for name, amount in _asked(container).items():
                sums[name] = sums.get(name, 0) + amount
        for container in spec.get("initContainers") or ():
            for name, amount in _asked(container).items():
                sums[name] = max(sums.get(name, 0), amount)
        for name, amount in sums.items():
            total[name] = total.get(name, 0) + amount
    return {name: amount for name, amount in total.items() if amount}


def _asked(container: dict[str, Any]) -> dict[str, int]:
    requests, limits = _amounts(container, "requests"), _amounts(container, "limits")
    return {
        name: max(requests.get(name, 0), limits.get(name, 0)) for name in {**requests, **limits}
    }


def _amounts(container: dict[str, Any], kind: str) -> dict[str, int]:
    amounts = (container.get("resources") or {}).get(kind) or {}
    return {
        name: int(amount)
        for name, amount in amounts.items()
        if name.startswith("amd.com/") and str(amount).isdigit()
    }


def workload_aware(case_id: str, expect: dict[str, Any]) -> dict[str, Any]:
    """Return what is asserted of a workload-aware case."""
    instead = WORKLOAD_AWARE.get(case_id, {})
    return {
        **expect,
        **{k: v(expect[k]) if callable(v) else v for k, v in instead.items()},
    }


def shares_a_port(case: dict[str, Any]) -> bool:
    """Whether two placed pods hold one host port of a node, which no kubelet admits."""
    held: set[tuple[object, ...]] = set()
    for pod in case.get("pods") or ():
        own = {
            (pod["spec"]["nodeName"], port["hostPort"], port.get("protocol") or "TCP")
            for container in pod["spec"].get("containers") or ()
            for port in container.get("ports") or ()
            if port.get("hostPort")
        }
        if own & held:
            return True
        held |= own
    return False


def spreads_widely(case: dict[str, Any]) -> bool:
    """Whether a constraint counts over three or more domains, where the reference forgets some."""
    for pod in (*(case.get("pods") or ()), *(case.get("pending") or ())):
        for constraint in pod["spec"].get("topologySpreadConstraints") or ():
            key, hard = constraint["topologyKey"], constraint["whenUnsatisfiable"]
            nodes = case.get("nodes") or ()
            domains = {(node["metadata"].get("labels") or {}).get(key) for node in nodes}
            if hard == "DoNotSchedule" and len(domains - {None}) > 2:
                return True
    return False


def skips_affinity(case: dict[str, Any]) -> bool:
    """Whether lower pods alone bar a member of a group, without terms of its own, by anti-affinity.

    Where they are gone inter-pod affinity has nothing to check for that member, and the reference
    looks at it no more when it puts them back.
    """
    name = (case.get("preemptor") or {}).get("podGroup")
    if name is None:
        return False
    cluster = Cluster.of(case)
    group = cluster.one("podGroups", name)
    if group is None:
        return False
    priority = own_priority(group)
    below = [u for u in units.cluster_units(cluster) if u.priority < priority]
    emptied = cluster.removing(pod for unit in below for pod in unit.pods)
    return any(
        topology.nothing_to_check(pod, emptied) and not topology.nothing_to_check(pod, cluster)
        for pod in case["pending"]
    )


def documented() -> set[str]:
    """Return the cases that DEVIATIONS.md names."""
    text = Path(__file__).with_name("DEVIATIONS.md").read_text(encoding="utf-8")
    return set(re.findall(r"`(\S+\.json::[^`]+)`", text))
