"""Reads a recorded case of topology-aware assignment into the engine's values."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, Final

from reprieve.engine.quota.model import Taint
from reprieve.engine.topology.assign import Placing, assign
from reprieve.engine.topology.model import (
    Domain,
    Outcome,
    PodsWanted,
    TopologyAssignment,
    TopologyNode,
)
from reprieve.engine.topology.replacing import replace_node
from reprieve.engine.topology.tree import Tree, Usage
from tests.conformance.quota_objects import (
    amount,
    expressions,
    preferred_terms,
    toleration,
    topology_gates,
    topology_request,
)

Json = dict[str, Any]

FOLDER: Final = Path(__file__).resolve().parents[2].parent / "shared" / "topology"


def files() -> list[Path]:
    """Return the files of cases that lie beside the project, none where it lies alone."""
    found = [*FOLDER.glob("Generated_*.json.gz"), *FOLDER.glob("Test*.json")]
    return sorted(found)


def cases(path: Path) -> list[Json]:
    """Return the cases of one file."""
    data = path.read_bytes()
    found: list[Json] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return found


def assignment(form: Json | None) -> TopologyAssignment | None:
    """Return an assignment in list form."""
    if form is None:
        return None
    domains = tuple(Domain(tuple(e["values"]), e["count"]) for e in form["domains"])
    return TopologyAssignment(tuple(form["levels"]), domains)


def listed(assigned: TopologyAssignment | None) -> Json | None:
    """Return the list form of an assignment."""
    if assigned is None:
        return None
    return {
        "levels": [*assigned.levels],
        "domains": [{"values": [*e.values], "count": e.count} for e in assigned.domains],
    }


def decide(case: Json) -> dict[str, Json]:
    """Return what the engine answers to a case of kind tasAssignment, in the form of `expect`."""
    tree = tree_of(case)
    used = Usage(tree)
    for key, amounts in (case.get("usage") or {}).items():
        used.add_leaf(tuple(key.split(",")), amounts)
    on = Placing(
        tree,
        () if case.get("simulateEmpty") else (used,),
        tuple(map(toleration, case.get("flavorTolerations") or ())),
        topology_gates(case.get("featureGates") or {}),
    )
    wanted = [pod_set(each) for each in case["podSets"]]
    replacing = case.get("workload")
    if replacing is None:
        found = assign(on, wanted)
    else:
        admitted = {name: assignment(each) for name, each in replacing["admission"].items()}
        node, single = replacing["unhealthyNodes"][0], replacing.get("ownedBySinglePod", False)
        found = replace_node(on, wanted, admitted, node, single)
    return {name: _answer(outcome) for name, outcome in found.items()}


def tree_of(case: Json) -> Tree:
    """Return the tree of a case, without the usage of topologies."""
    tree = Tree(case["topologyName"], case["levels"], nodes(case), case.get("flavorNodeLabels"))
    for pod in case.get("pods") or ():
        if pod.get("phase") not in ("Succeeded", "Failed"):
            tree.use_nodes(pod["node"], pod["requests"])
    return tree


def nodes(case: Json) -> list[TopologyNode]:
    """Return the nodes of a case."""
    return [
        TopologyNode(
            each["name"],
            each.get("labels") or {},
            {r: amount(r, q) for r, q in (each.get("allocatable") or {}).items()},
            tuple(
                Taint(t["key"], t.get("value") or "", t["effect"]) for t in each.get("taints") or ()
            ),
            each.get("ready", True),
            each.get("unschedulable", False),
        )
        for each in case["nodes"]
    ]


def _answer(outcome: Outcome) -> Json:
    found: Json = {"assignment": listed(outcome.assignment)}
    if outcome.reason:
        found["reason"] = outcome.reason
    return found


def pod_set(each: Json) -> PodsWanted:
    affinity = each.get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return PodsWanted(
        each["name"],
        each["count"],
        each.get("requests") or {},
        topology_request(each.get("topologyRequest")),
        bool(each.get("implied")),
        each.get("podSetGroupName") or "",
        each.get("nodeSelector") or {},
        None
        if required is None
        else tuple(
            expressions(term.get("matchExpressions") or ())
            for term in required["nodeSelectorTerms"]
        ),
        preferred_terms(preferred),
        tuple(map(toleration, each.get("tolerations") or ())),
        assignment(each.get("previousAssignment")),
    )
