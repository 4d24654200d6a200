"""NodeResourcesFit and NodeResourcesBalancedAllocation, by hand (specification 17.2).

Amounts are (milli-CPU, MiB, GPUs). `a` is allocatable, `q` what is used there plus the pod's own.
"""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.engine.placement.profile import ScoreName, ScoringStrategy, ScoringType
from tests.engine.builders import GPU, node, pod
from tests.engine.scores.scoring import MIB, score_of, scored

FIT, BALANCED = ScoreName.NODE_RESOURCES_FIT, ScoreName.BALANCED_ALLOCATION
LEAST, MOST = ScoringType.LEAST_ALLOCATED, ScoringType.MOST_ALLOCATED
RATIO = ScoringType.REQUESTED_TO_CAPACITY_RATIO
EVEN = (("cpu", 1), ("memory", 1))
HILL = ((0, 0), (70, 10), (100, 3))

Amounts = tuple[int, int, int]


def situation(a: Amounts, used: Amounts, own: Amounts, *, exact: bool) -> list[object]:
    """A node, a pod on it and the pod to be placed; `exact`: an absent request counts 0."""

    def amounts(cpu: int, mib: int, gpus: int) -> dict[str, Any]:
        given = {"cpu": cpu, "memory": mib * MIB, "gpus": gpus}
        return {**given, "scored_cpu": cpu, "scored_memory": mib * MIB} if exact else given

    cpu, mib, gpus = a
    rows: list[object] = [node("n1", cpu=cpu, memory=mib * MIB, gpus=gpus)]
    if any(used):
        rows.append(pod("there", node="n1", **amounts(*used)))
    return [*rows, pod("new", **amounts(*own))]


FIT_CASES = [
    # LeastAllocated: (a - q) * 100 / a, 0 if q > a.
    ("cpu 2000/4000 = 50, memory 2/8 = 25, mean 37.5",
     LEAST, EVEN, (), (4000, 8192, 0), (1000, 2048, 0), (1000, 4096, 0), 37),
    ("cpu 70, memory 90, mean 80",
     LEAST, EVEN, (), (10000, 10000, 0), (0, 0, 0), (3000, 1000, 0), 80),
    ("one third left is 33 of each",
     LEAST, EVEN, (), (3000, 3000, 0), (1000, 1000, 0), (1000, 1000, 0), 33),
    ("cpu over a is 0, memory 50, mean 25",
     LEAST, EVEN, (), (2000, 8000, 0), (1500, 2000, 0), (1000, 2000, 0), 25),
    ("all taken, exactly",
     LEAST, EVEN, (), (2000, 4000, 0), (1000, 2000, 0), (1000, 2000, 0), 0),
    ("63999/64000 and 65535/65536 are 99 each",
     LEAST, EVEN, (), (64000, 65536, 0), (0, 0, 0), (1, 1, 0), 99),
    ("a node over-committed by others: memory 0, cpu 60, mean 30",
     LEAST, EVEN, (), (1000, 1000, 0), (300, 1500, 0), (100, 100, 0), 30),
    ("cpu weighs 3: (3 * 50 + 25) / 4 = 43.75",
     LEAST, (("cpu", 3), ("memory", 1)), (), (4000, 8192, 0), (1000, 2048, 0), (1000, 4096, 0), 43),
    ("memory alone: 25",
     LEAST, (("memory", 7),), (), (4000, 8192, 0), (1000, 2048, 0), (1000, 4096, 0), 25),
    ("gpu (8 - 2 - 2) * 100 / 8 = 50",
     LEAST, ((GPU, 1),), (), (4000, 8192, 8), (100, 100, 2), (100, 100, 2), 50),
    ("an extended resource that the pod does not request is left out: cpu 50 alone",
     LEAST, (("cpu", 1), (GPU, 9)), (), (4000, 8192, 8), (1000, 0, 7), (1000, 1, 0), 50),
    ("gpu 3/4 left = 25 after own 2 of 8 and 4 used; (9 * 25 + 50) / 10 = 27.5",
     LEAST, (("cpu", 1), (GPU, 9)), (), (4000, 8192, 8), (1000, 0, 4), (1000, 1, 2), 27),
    ("a resource that the node does not offer is left out: cpu 50 alone",
     LEAST, (("cpu", 1), (GPU, 9)), (), (4000, 8192, 0), (1000, 0, 0), (1000, 1, 1), 50),
    ("nothing left that counts",
     LEAST, ((GPU, 1),), (), (4000, 8192, 0), (0, 0, 0), (1000, 1, 1), 0),
    ("a resource that nobody has is left out",
     LEAST, (("cpu", 1), ("example.com/none", 1)), (), (1000, 1000, 0), (0, 0, 0), (250, 1, 0), 75),
    # MostAllocated: min(q, a) * 100 / a.
    ("cpu 50, memory 75, mean 62.5",
     MOST, EVEN, (), (4000, 8192, 0), (1000, 2048, 0), (1000, 4096, 0), 62),
    ("q over a counts as a: 100 and 50, mean 75",
     MOST, EVEN, (), (2000, 8000, 0), (1500, 2000, 0), (1000, 2000, 0), 75),
    ("memory weighs 2: (50 + 2 * 75) / 3 = 66.7",
     MOST, (("cpu", 1), ("memory", 2)), (), (4000, 8192, 0), (1000, 2048, 0), (1000, 4096, 0), 66),
    ("1000/3000 = 33, 2000/3000 = 66, mean 49.5",
     MOST, EVEN, (), (3000, 3000, 0), (0, 1000, 0), (1000, 1000, 0), 49),
    ("gpu 7/8 = 87, cpu 50: (5 * 87 + 50) / 6 = 80.8",
     MOST, ((GPU, 5), ("cpu", 1)), (), (4000, 8192, 8), (1000, 0, 6), (1000, 1, 1), 80),
    ("one milli-CPU of 4000 is 0, one MiB of 8192 is 0",
     MOST, EVEN, (), (4000, 8192, 0), (0, 0, 0), (1, 1, 0), 0),
    # RequestedToCapacityRatio: shape(q * 100 / a), mean over scores above 0, rounded.
    ("50 % is 71, 75 % is 100 - 70 * 5 / 30 = 89, mean 80",
     RATIO, EVEN, HILL, (4000, 8192, 0), (1000, 2048, 0), (1000, 4096, 0), 80),
    ("q over a is shape(100) = 30, 70 % is 100, mean 65",
     RATIO, EVEN, HILL, (2000, 1000, 0), (1500, 300, 0), (1000, 400, 0), 65),
    ("50 % is 71, 70 % is 100, mean 85.5 rounds to 86",
     RATIO, EVEN, HILL, (2000, 1000, 0), (500, 300, 0), (500, 400, 0), 86),
    ("cpu weighs 2: (2 * 71 + 100) / 3 = 80.67 rounds to 81",
     RATIO, (("cpu", 2), ("memory", 1)), HILL, (2000, 1000, 0), (500, 300, 0), (500, 400, 0), 81),
    ("less than 1 % of cpu scores 0 and its weight 3 leaves: memory 35 % = 50",
     RATIO, (("cpu", 3), ("memory", 1)), HILL, (4000, 1000, 0), (0, 0, 0), (1, 350, 0), 50),
    ("all scores 0",
     RATIO, EVEN, HILL, (4000, 8192, 0), (0, 0, 0), (1, 1, 0), 0),
    ("falling line: 25 % is 75, 50 % is 50, mean 62.5 rounds to 63",
     RATIO, EVEN, ((0, 10), (100, 0)), (1000, 1000, 0), (0, 0, 0), (250, 500, 0), 63),
    ("constant outside the points: 10 % is 20, 90 % is 80, mean 50",
     RATIO, EVEN, ((20, 2), (80, 8)), (1000, 1000, 0), (0, 0, 0), (100, 900, 0), 50),
    ("truncated towards zero: 1 % is 100 - 70 / 30 = 100 - 2 = 98",
     RATIO, EVEN, ((0, 10), (30, 3)), (1000, 1000, 0), (0, 0, 0), (10, 10, 0), 98),
    ("one point is a constant",
     RATIO, EVEN, ((50, 4),), (1000, 1000, 0), (0, 0, 0), (10, 900, 0), 40),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "resources", "shape", "a", "used", "own", "expected"),
    [case[1:] for case in FIT_CASES],
    ids=[f"{case[1]}: {case[0]}" for case in FIT_CASES],
)
def test_node_resources_fit(
    kind: ScoringType,
    resources: tuple[tuple[str, int], ...],
    shape: tuple[tuple[int, int], ...],
    a: Amounts,
    used: Amounts,
    own: Amounts,
    expected: int,
) -> None:
    strategy = ScoringStrategy(kind, resources, shape)
    rows = situation(a, used, own, exact=True)
    assert scored(FIT, rows, strategy=strategy) == {"n1": expected}


DEFAULT_CASES = [
    ("no requests count 100m and 200 MiB: 90 and 80, mean 85",
     (1000, 1000, 0), (0, 0, 0), (0, 0, 0), 85),
    ("own memory counts 200 MiB: cpu 75, memory 80, mean 77.5",
     (1000, 1000, 0), (0, 0, 0), (250, 0, 0), 77),
    ("so do those of a pod on the node: 900 - 400 = 50, 800 - 300 = 50",
     (1000, 1000, 0), (100, 0, 0), (400, 300, 0), 50),
]  # fmt: skip


@pytest.mark.parametrize(
    ("a", "used", "own", "expected"),
    [case[1:] for case in DEFAULT_CASES],
    ids=[case[0] for case in DEFAULT_CASES],
)
def test_a_container_without_requests_counts_with_defaults(
    a: Amounts, used: Amounts, own: Amounts, expected: int
) -> None:
    rows = situation(a, used, own, exact=False)
    assert scored(FIT, rows) == {"n1": expected}


def test_an_explicit_zero_stays_zero() -> None:
    rows = situation((1000, 1000, 0), (0, 0, 0), (0, 0, 0), exact=True)
    assert scored(FIT, rows) == {"n1": 100}


def test_ephemeral_storage_counts_though_the_pod_requests_none() -> None:
    rows = [
        node("n1", storage=100),
        pod("there", node="n1", storage=40),
        pod("new", cpu=100),
    ]
    strategy = ScoringStrategy(MOST, (("ephemeral-storage", 1),))
    assert scored(FIT, rows, strategy=strategy) == {"n1": 40}


BALANCED_CASES = [
    ("after 0.5 and 0.75: 87; before 0.25 twice: 100; 50 + 37 / 2",
     ("cpu", "memory"), (4000, 8192, 0), (1000, 2048, 0), (1000, 4096, 0), 68),
    ("both are even: 50 + 50 / 2",
     ("cpu", "memory"), (4000, 8192, 0), (0, 0, 0), (1000, 2048, 0), 75),
    ("after 1 and 0: 50; before 100; 50 + 0 / 2",
     ("cpu", "memory"), (4000, 8192, 0), (0, 0, 0), (4000, 0, 0), 50),
    ("before 0.5 and 0: 75; after 0.5 twice: 100; 50 + 75 / 2",
     ("cpu", "memory"), (4000, 8192, 0), (2000, 0, 0), (0, 4096, 0), 87),
    ("before 1 and 0: 50; after 1 and 1: 100; 50 + 100 / 2",
     ("cpu", "memory"), (4000, 8192, 0), (4000, 0, 0), (0, 8192, 0), 100),
    ("a fraction is at most 1: even before and after",
     ("cpu", "memory"), (4000, 8192, 0), (6000, 8192, 0), (1000, 0, 0), 75),
    ("after 1/3 and 0: 83; before 100; 50 + 33 / 2",
     ("cpu", "memory"), (3000, 3000, 0), (0, 0, 0), (1000, 0, 0), 66),
    ("after 0.25 and 0: 87; before 100; 50 + 37 / 2",
     ("cpu", "memory"), (4000, 8192, 0), (0, 0, 0), (1000, 0, 0), 68),
    ("after 0.5, 0.5, 1: deviation 0.2357, 76; before 0.25, 0.25, 0: 0.1179, 88; 50 + 38 / 2",
     ("cpu", "memory", GPU), (4000, 8192, 8), (1000, 2048, 0), (1000, 2048, 8), 69),
    ("after 0.25, 0.25, 0.25: 100; before 0.25, 0.25, 0: 88; 50 + 62 / 2",
     ("cpu", "memory", GPU), (4000, 8192, 8), (1000, 2048, 0), (0, 0, 2), 81),
    ("one resource does not deviate",
     ("cpu",), (4000, 8192, 0), (1000, 0, 0), (3000, 0, 0), 75),
    ("an extended resource that the pod does not request is left out",
     ("cpu", "memory", GPU), (4000, 8192, 8), (1000, 2048, 8), (1000, 4096, 0), 68),
    ("and one that the node does not offer",
     ("cpu", "memory", GPU), (4000, 8192, 0), (1000, 2048, 0), (1000, 4096, 1), 68),
]  # fmt: skip


@pytest.mark.parametrize(
    ("resources", "a", "used", "own", "expected"),
    [case[1:] for case in BALANCED_CASES],
    ids=[case[0] for case in BALANCED_CASES],
)
def test_balanced_allocation(
    resources: tuple[str, ...], a: Amounts, used: Amounts, own: Amounts, expected: int
) -> None:
    rows = situation(a, used, own, exact=False)
    found = scored(BALANCED, rows, balanced_resources=resources)
    assert found == {"n1": expected}


def test_balanced_allocation_skips_a_pod_that_requests_none_of_the_resources() -> None:
    rows = [node("n1", gpus=8), pod("new", gpus=1)]
    assert score_of(BALANCED, rows) is None
