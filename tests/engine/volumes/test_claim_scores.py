"""Scores of volumes and of device alternatives, by hand (17.2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reprieve.engine.cluster.rows import Change
from reprieve.engine.cluster.storage import NO_PROVISIONER
from reprieve.engine.placement.filtering import Score
from reprieve.engine.placement.profile import Policy, Profile
from reprieve.engine.placement.scores.devices import compile_device_score
from reprieve.engine.placement.scores.volume_binding import compile_volume_binding_score
from reprieve.engine.placement.simulation import Simulation
from tests.engine.builders import node, pending_of, pod, snapshot_of
from tests.engine.devices.drivers import (
    DRIVER,
    alternative,
    asks,
    claims,
    device,
    device_class,
    first_of,
    published,
    resource_claim,
)
from tests.engine.volumes.storage import (
    ZONE,
    capacity,
    claim,
    csi_driver,
    simulation_of,
    storage_class,
    uses,
    volume,
)


def values(score: Score | None, simulation: Simulation) -> list[int] | None:
    count = len(simulation.snapshot.nodes)
    return None if score is None else score.values(np.arange(count)).tolist()


def volumes(*rows: Any, shape: tuple[tuple[int, int], ...] = ((0, 10), (100, 0))) -> Any:
    snapshot = snapshot_of(*rows)
    simulation = Simulation(snapshot, Policy(), Profile(volume_shape=shape))
    score = compile_volume_binding_score(simulation, pending_of(snapshot, "p"))
    return values(score, simulation)


LOCAL = storage_class("local", provisioner=NO_PROVISIONER)


@pytest.mark.parametrize(
    ("request_", "size", "expected"),
    [(50, 100, 50), (1, 100, 99), (100, 100, 0), (1, 3, 67), (0, 10, 100)],
)
def test_a_static_volume_scores_by_the_share_that_is_asked(
    request_: int, size: int, expected: int
) -> None:
    rows: list[Change] = [
        node("n1"),
        node("n2"),
        LOCAL,
        claim(storage_class="local", request=request_),
        volume("v1", storage_class="local", capacity=size, on="n1"),
        volume("v2", storage_class="local", capacity=max(request_, 1), on="n2"),
        pod(volumes=uses("c")),
    ]
    assert volumes(rows) == [expected, 0 if request_ else 100]


def test_classes_count_alike_and_claims_of_a_class_together() -> None:
    rows: list[Change] = [
        node("n1"),
        LOCAL,
        storage_class("other", provisioner=NO_PROVISIONER),
        claim("a", storage_class="local", request=10),
        claim("b", storage_class="local", request=20),
        claim("d", storage_class="other", request=1),
        volume("v1", storage_class="local", capacity=20),
        volume("v2", storage_class="local", capacity=40),
        volume("v3", storage_class="other", capacity=4),
        pod(volumes=uses("a", "b", "d")),
    ]
    # (10 + 20) * 100 / 60 = 50 -> 50; 25 -> 75; mean 62.5 -> 63
    assert volumes(rows) == [63]


def test_storage_capacity_counts_where_no_volume_is_taken() -> None:
    rows: list[Change] = [
        node("n1", labels={ZONE: "a"}),
        node("n2", labels={ZONE: "b"}),
        node("n3", labels={ZONE: "c"}),
        storage_class(),
        csi_driver(storage_capacity=True),
        claim(storage_class="sc", request=10),
        capacity("a", zone="a", capacity=100),
        capacity("b", zone="b", capacity=40, maximum=10),
        volume("v", storage_class="sc", capacity=20, on="n3"),
        pod(volumes=uses("c")),
    ]
    assert volumes(rows) == [90, 75, 50]
    assert volumes(rows, shape=((0, 0), (100, 10))) == [10, 25, 50]


def test_a_driver_that_reports_no_capacity_scores_nothing() -> None:
    rows: list[Change] = [node("n1"), storage_class(), claim(storage_class="sc", request=1)]
    assert volumes(rows, pod(volumes=uses("c"))) == [0]


def test_a_pod_that_lacks_no_volume_has_no_score() -> None:
    rows: list[Change] = [node("n1"), claim(volume="v"), volume(), pod(volumes=uses("c"))]
    assert volumes(rows) is None


def test_earlier_alternatives_score_more() -> None:
    n = f"device.attributes['{DRIVER}'].n"
    forms = [alternative(f"s{i}", 1, f"{n} == {i}") for i in range(3)]
    rows: list[Any] = [device_class(), pod(claims=claims("a", "b"))]
    rows.append(resource_claim("a", first_of("r", *forms)))
    rows.append(resource_claim("b", first_of("r", *forms), asks("x")))
    offered = {"n1": (0, 0, 9), "n2": (2, 2, 9), "n3": (0, 1, 9), "n4": (9,)}
    for name, kinds in offered.items():
        rows.append(node(name))
        rows.append(published(name, [device(f"d{i}", n=k) for i, k in enumerate(kinds)]))
    simulation = simulation_of(snapshot_of(*rows))
    pending = pending_of(simulation.snapshot, "p")
    passing = np.flatnonzero(simulation.codes(pending) == 0)
    assert passing.tolist() == [0, 1, 2]
    score = compile_device_score(simulation, pending)
    assert score is not None
    # 8 + 8, 6 + 6, 8 + 7 of at most 16
    assert score.values(passing).tolist() == [100, 75, 93]


def test_claims_without_alternatives_have_no_score() -> None:
    rows: list[Change] = [
        node("n1"),
        device_class(),
        pod(claims=claims("c")),
        resource_claim("c", asks()),
    ]
    simulation = simulation_of(snapshot_of(rows))
    pending = pending_of(simulation.snapshot, "p")
    assert compile_device_score(simulation, pending) is None
