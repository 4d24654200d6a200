"""The recorded cases with something wrong in each: an answer comes all the same, and no fault.

Labels go from nodes, nodes are there twice, are gone, not ready or tainted; pod sets ask for no
pods, for other slices, and for levels that there are not; topologies lose a level.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from reprieve.engine.quota.entries import Outcome
from reprieve.engine.victim_choice import VictimChoice
from tests.conformance.quota_runners import Scheduler
from tests.conformance.topology_cycles import grounds
from tests.conformance.topology_objects import cases, decide, files
from tests.conformance.topology_stories import played

Json = dict[str, Any]
TAINT = {"key": "repair", "effect": "NoSchedule"}
CYCLES = ("tasScheduler", "tasSchedulerGenerated")
_ABSENT = pytest.param(
    None, id="absent", marks=pytest.mark.skip("no cases of topologies beside the project")
)


@pytest.mark.thorough
@pytest.mark.parametrize("path", files() or [_ABSENT], ids=lambda path: path.name.split(".")[0])
def test_no_case_with_something_wrong_ends_in_a_fault(path: Path, seed: int = 0) -> None:
    seen: Counter[str] = Counter()
    for number, case in enumerate(cases(path)):
        draw = random.Random(f"{seed} {path.name} {number}")
        case = copy.deepcopy(case)
        _spoil_nodes(case, draw)
        if case["kind"] == "tasAssignment":
            _spoil_pod_sets(case["podSets"], "topologyRequest", draw)
            for name, answer in decide(case).items():
                placed = answer["assignment"]
                seen["placed" if placed else "refused"] += 1
                assert placed is not None or answer["reason"], (case["name"], name)
        elif case["kind"] in CYCLES:
            _spoil_topologies(case, draw)
            for each in case["workloads"]:
                if not (each.get("status") or {}).get("admission"):
                    _spoil_pod_sets(each["spec"]["podSets"], "topologyRequest", draw)
            scheduler = Scheduler(case)
            scheduler.holdings.stand_on(grounds(case))
            result = scheduler.cycle()
            assert result.fault is None, (case["name"], result.fault)
            for entry in result.entries:
                assert entry.outcome is not Outcome.FAULT, (case["name"], entry.message)
                seen[entry.outcome.value] += 1
            assert played(case, VictimChoice.BEST, staggered=False).faults == []
    assert seen.total() < 40 or len(seen) >= 2, seen


def _spoil_nodes(case: Json, draw: random.Random) -> None:
    nodes = case.get("nodes") or []
    if not nodes:
        return
    for _ in range(draw.randint(1, 3)):
        one = draw.choice(nodes)
        match draw.randint(0, 7):
            case 0:
                one["labels"].pop(draw.choice([*one["labels"]] or [""]), None)
            case 1:
                one["labels"] = {}
            case 2:
                nodes.append(copy.deepcopy(one))
            case 3:
                nodes.remove(one)
            case 4:
                one["ready"] = False
            case 5:
                one["taints"] = [TAINT]
            case 6:
                one["allocatable"] = {}
            case _:
                one["labels"] = dict.fromkeys(one["labels"], "")
        if not nodes:
            return


def _spoil_pod_sets(pod_sets: list[Json], name: str, draw: random.Random) -> None:
    one = draw.choice(pod_sets)
    request = one.setdefault(name, {}) or {}
    levels = ("cloud.com/rack", "cloud.com/block", "kubernetes.io/hostname", "nowhere")
    match draw.randint(0, 6):
        case 0:
            one["count"] = 0
        case 1:
            one["count"] = 10_000
        case 2:
            request["required"] = draw.choice(levels)
        case 3:
            request["podSetSliceRequiredTopology"] = draw.choice(levels)
            request["podSetSliceSize"] = draw.choice((0, 1, 3, 4))
        case 4:
            sizes = sorted(draw.choices((1, 2, 3, 4, 8), k=3), reverse=True)
            request.pop("podSetSliceRequiredTopology", None)
            request["podsetSliceRequiredTopologyConstraints"] = [
                {"topology": draw.choice(levels), "size": size} for size in sizes
            ]
        case 5:
            request["podSetGroupName"] = one["podSetGroupName"] = "g"
        case _:
            one[name] = {}
            return
    one[name] = request


def _spoil_topologies(case: Json, draw: random.Random) -> None:
    found = case.get("topologies") or []
    if not found or draw.random() < 0.6:
        return
    one = draw.choice(found)
    if draw.random() < 0.3:
        found.append(copy.deepcopy(one))
    elif len(one["spec"]["levels"]) > 1:
        one["spec"]["levels"].pop(draw.randrange(len(one["spec"]["levels"])))
    else:
        found.remove(one)
