"""Attempts in a row over one snapshot end as if each had a snapshot of its own, with all before it.

A session keeps compiled filters, scores and counters from one unit to the next; a new snapshot has
none of them.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.outcome import Attempt, Diagnosis, Unit
from reprieve.engine.scheduling.proofs.proof import faults_of
from reprieve.engine.scheduling.session import Session
from tests.engine.api_objects import Json, cluster_of, policy_of
from tests.engine.scheduling import engine_cycle
from tests.oracle.scheduling.clusters import random_cluster
from tests.oracle.scheduling.situations import PREEMPTOR_PRIORITY
from tests.tiers import first_of

CHUNK, CHUNKS = 100, 4
FIRST = 7_000
_NEVER = 10**18


def crowded(seed: int) -> Json:
    """A random cluster in which some of the placed pods wait instead, a few with constraints."""
    case, random = random_cluster(seed), Random(seed)
    wanted = case["pending"][0]["spec"] if case["pending"] else {}
    shared = {k: wanted[k] for k in ("affinity", "topologySpreadConstraints") if k in wanted}
    for pod in case["pods"]:
        spec = pod["spec"]
        mine = spec.get("schedulingGroup", {}).get("podGroupName") == "preemptor"
        if not mine and random.random() < 0.4:
            spec["nodeName"] = ""
            spec.pop("schedulingGroup", None)
            spec.update(shared if random.random() < 0.5 else {})
    return case


def units_of(case: Json, snapshot: Snapshot, policy: Policy, seed: int) -> list[Unit]:
    groups = policy.gates.generic_workload
    units = [
        Unit((uid,)) for uid, each in snapshot.pending.items() if not (groups and each.row.group)
    ]
    if "podGroup" in case["preemptor"]:
        units.append(engine_cycle.unit_of(case, snapshot))
    Random(seed).shuffle(units)
    return [unit for unit in units if unit.pods]


def seen(attempt: Attempt) -> object:
    """An attempt without what depends on numbers of a snapshot."""
    members = [(m.uid, m.bind, m.nominate, _reasons(m.diagnosis)) for m in attempt.members]
    found = attempt.preemption
    preemption = found and (found.code, found.explanation, found.nominated, found.violating)
    return attempt.code, members, attempt.status, preemption


def _reasons(diagnosis: Diagnosis | None) -> object:
    if diagnosis is None:
        return None
    return diagnosis.nodes, Counter(dict(diagnosis.counts)), diagnosis.everywhere


@pytest.mark.parametrize("chunk", first_of(range(CHUNKS)))
def test_a_session_decides_as_new_snapshots_do(chunk: int) -> None:
    counts = Counter[str]()
    for seed in range(FIRST + chunk * CHUNK, FIRST + (chunk + 1) * CHUNK):
        case = crowded(seed)
        policy, cluster = policy_of(case), cluster_of(case)
        snapshot = cluster.snapshot()
        session = Session(snapshot, policy)
        for unit in units_of(case, snapshot, policy, seed):
            expected = Session(cluster.snapshot(), policy).attempt(unit)
            attempt = session.attempt(unit)
            if attempt is None:  # victims may be among those placed here: as the caller does
                counts["taken anew"] += 1
                session = Session(cluster.snapshot(), policy)
                attempt = session.attempt(unit)
            assert attempt is not None and expected is not None
            assert seen(attempt) == seen(expected), seed
            if attempt.plan is not None:
                known = session.nominations
                assert faults_of(session.snapshot, policy, attempt, 0, known) == (), seed
                counts["preempting"] += 1
                counts["beside others"] += len(known) > len(session.snapshot.nominations) + 1
            for member in attempt.members:
                priority = snapshot.pending[member.uid].row.priority
                if member.bind:
                    counts["bound"] += 1
                    cluster.assume(member.uid, member.bind, _NEVER)
                elif isinstance(member.nominate, str):
                    own = PREEMPTOR_PRIORITY if unit.group else priority
                    cluster.nominate(member.uid, member.nominate, own, _NEVER)
    assert counts["bound"] >= CHUNK
    assert min(counts["preempting"], counts["taken anew"]) >= CHUNK // 4
    assert counts["beside others"] >= CHUNK // 20
