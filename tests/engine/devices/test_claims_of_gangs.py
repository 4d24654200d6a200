"""A gang whose members need devices: placed together, and victims with `simulate_claims` only."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.proofs.proof import faults_of
from reprieve.engine.scheduling.session import Session
from reprieve.units.ids import Uid
from tests.engine.builders import group, node, pod, snapshot_of
from tests.engine.devices.drivers import (
    asks,
    claims,
    device_class,
    gpus,
    published,
    resource_claim,
)


def cluster(members: int, low: int) -> Snapshot:
    """Two nodes of two GPUs; `low` of the four are held by pods of low priority, one each."""
    rows: list[Any] = [
        device_class(),
        node("n1"),
        node("n2"),
        group(min_count=members, priority=10),
    ]
    rows += [published("n1", gpus(2)), published("n2", gpus(2))]
    for number in range(low):
        at = f"n{number // 2 + 1}"
        got, users = [(at, f"gpu-{number % 2}")], [f"low-{number}"]
        rows.append(resource_claim(f"v{number}", asks(), got=got, only=at, users=users))
        rows.append(pod(f"low-{number}", node=at, claims=claims(f"v{number}"), cpu=100))
    for number in range(members):
        rows.append(resource_claim(f"c{number}", asks()))
        rows.append(
            pod(f"g-{number}", group="g", claims=claims(f"c{number}"), priority=10, cpu=100)
        )
    return snapshot_of(rows)


def attempt(snapshot: Snapshot, **policy: Any) -> Attempt:
    pods = tuple(sorted(snapshot.pending))
    found = Session(snapshot, Policy(**policy)).attempt(Unit(pods, "default/g"))
    assert found is not None
    assert faults_of(snapshot, Policy(**policy), found) == ()
    return found


def test_members_share_out_the_devices_of_the_nodes() -> None:
    found = attempt(cluster(members=4, low=0))
    assert found.code is Code.SUCCESS
    assert sorted(member.bind for member in found.members) == ["n1", "n1", "n2", "n2"]


@pytest.mark.parametrize("low", [0, 4])
def test_a_gang_that_needs_more_devices_than_there_are_takes_none(low: int) -> None:
    for simulate in (False, True):
        found = attempt(cluster(members=5, low=low), simulate_claims=simulate)
        assert found.code is Code.UNSCHEDULABLE
        assert not any(member.bind for member in found.members)
        assert found.preemption is not None and not found.preemption.victims


@pytest.mark.parametrize(
    ("simulate", "low", "expected"), [(False, 4, 0), (True, 4, 3), (True, 3, 2), (True, 1, 0)]
)
def test_pods_are_evicted_for_their_devices_only_when_claims_are_simulated(
    simulate: bool, low: int, expected: int
) -> None:
    snapshot = cluster(members=3, low=low)
    found = attempt(snapshot, simulate_claims=simulate)
    victims = found.preemption.victims if found.preemption else ()
    assert sum(len(unit.pods) for unit in victims) == expected
    if expected:
        assert found.preemption is not None
        assert {uid for uid, _ in found.preemption.nominated} == {
            Uid(f"pod-g-{number}") for number in range(3)
        }
    if low == 1:
        assert found.code is Code.SUCCESS
