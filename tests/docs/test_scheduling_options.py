"""The examples of `docs/scheduling.md` beyond KEP-5710 are what the engine decides.

Each shows a small full cluster, a gang that waits, and who is preempted with an option as it is by
default and switched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy, Protection, VictimChoice
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.session import Session
from tests.docs.tables import topic
from tests.engine.builders import gang, node, pod, priority_class, snapshot_of

TEXT = topic("scheduling")


@dataclass(frozen=True)
class Example:
    """`cluster` in words for people and in rows; `settings` by the names of the options."""

    words: tuple[str, ...]
    cluster: Callable[[], Snapshot]
    field: str
    settings: tuple[tuple[str, Any], ...]
    beside: tuple[tuple[str, Any], ...] = ()


def levels() -> Snapshot:
    return snapshot_of(
        node("a", gpus=8, cpu=64_000),
        node("b", gpus=8, cpu=32_000),
        pod("middle", gpus=8, priority=5, node="a"),
        pod("low", gpus=8, priority=1, node="b"),
        gang(1, "train", gpus=8, cpu=1000, priority=10),
    )


def two_for_one() -> Snapshot:
    return snapshot_of(
        node("a", gpus=8, cpu=64_000),
        node("b", gpus=8, cpu=32_000),
        pod("a-0", gpus=4, priority=1, node="a"),
        pod("a-1", gpus=4, priority=1, node="a"),
        pod("b-0", gpus=8, priority=1, node="b"),
        gang(1, "train", gpus=8, cpu=1000, priority=10),
    )


def racks() -> Snapshot:
    return snapshot_of(
        node("a-0", gpus=8, labels={"rack": "a"}),
        node("b-0", gpus=8, labels={"rack": "b"}),
        pod("middle", gpus=8, priority=2, node="a-0"),
        pod("low", gpus=8, priority=1, node="b-0"),
        gang(1, "train", gpus=8, priority=10, topology_key="rack"),
    )


def elsewhere() -> Snapshot:
    return snapshot_of(
        node("a", gpus=8, cpu=64_000),
        node("b", gpus=8, cpu=32_000),
        node("c", gpus=2, cpu=64_000),
        pod("large", gpus=8, priority=1, node="a"),
        pod("small", gpus=2, cpu=30_000, priority=1, node="b"),
        gang(1, "train", gpus=7, cpu=4000, priority=10),
    )


def steady() -> Snapshot:
    return snapshot_of(
        node("a", gpus=8, cpu=64_000),
        node("b", gpus=8, cpu=32_000),
        pod("serving", gpus=8, priority=1, node="a", protection="steady"),
        pod("batch", gpus=8, priority=2, node="b"),
        gang(1, "train", gpus=8, cpu=1000, priority=10),
        priority_class("steady", 20),
    )


NOW = 1_800_000_000


def checkpoints() -> Snapshot:
    ago: dict[str, Any] = {"start": NOW - 7_200, "priority": 1, "gpus": 8}
    return snapshot_of(
        node("a", gpus=8, cpu=64_000),
        node("b", gpus=8, cpu=32_000),
        pod("silent", node="a", **ago),
        pod("saved", node="b", checkpoint=NOW - 600, **ago),
        gang(1, "train", gpus=8, cpu=1000, priority=10),
    )


def silences() -> Snapshot:
    return snapshot_of(
        node("a", gpus=8, cpu=64_000),
        node("b", gpus=8, cpu=32_000),
        pod("saved", node="a", gpus=8, priority=1, start=NOW - 7_200, checkpoint=NOW - 2_400),
        pod("silent", node="b", gpus=8, priority=1, start=NOW - 7_200),
        gang(1, "train", gpus=8, cpu=1000, priority=10),
    )


def just_started() -> Snapshot:
    return snapshot_of(
        node("a", gpus=8, cpu=64_000),
        node("b", gpus=8, cpu=32_000),
        pod("fresh", node="a", gpus=8, priority=1, start=NOW - 120, min_runtime=600),
        pod("batch", node="b", gpus=8, priority=2, start=NOW - 7_200),
        gang(1, "train", gpus=8, cpu=1000, priority=10),
    )


def replicas() -> Snapshot:
    rows: list[Any] = gang(
        4, "serving", gpus=4, min_count=1, priority=1, nodes=["a", "a", "b", "b"], start=NOW
    )
    return snapshot_of(
        node("a", gpus=8, cpu=64_000),
        node("b", gpus=8, cpu=32_000),
        [replace(rows[0], floor=3), *rows[1:]],
        gang(1, "train", gpus=8, cpu=1000, priority=10),
    )


EXAMPLES = {
    "nonUniformGroups": Example(
        (
            "a  8 GPUs, 64 CPUs: serving-0, serving-1 (4 GPUs each, priority 1)",
            "b  8 GPUs, 32 CPUs: serving-2, serving-3 (the same group, disruption-floor 3)",
            "waits: train (8 GPUs, priority 10)",
        ),
        replicas,
        "non_uniform_groups",
        (("false", False), ("true", True)),
    ),
    "binarySearchPriority": Example(
        (
            "a  8 GPUs, 64 CPUs: middle (8 GPUs, priority 5)",
            "b  8 GPUs, 32 CPUs: low (8 GPUs, priority 1)",
            "waits: train (8 GPUs, priority 10)",
        ),
        levels,
        "binary_search_priority",
        (("false", False), ("true", True)),
    ),
    "profile": Example(
        (
            "a  8 GPUs, 64 CPUs: a-0, a-1 (4 GPUs each, priority 1)",
            "b  8 GPUs, 32 CPUs: b-0 (8 GPUs, priority 1)",
            "waits: train (8 GPUs, priority 10)",
        ),
        two_for_one,
        "choice",
        (("compatible", VictimChoice.COMPATIBLE), ("best", VictimChoice.BEST)),
    ),
    "maxPlacements": Example(
        (
            "a  8 GPUs, 64 CPUs: a-0, a-1 (4 GPUs each, priority 1)",
            "b  8 GPUs, 32 CPUs: b-0 (8 GPUs, priority 1)",
            "waits: train (8 GPUs, priority 10)",
        ),
        two_for_one,
        "max_placements",
        (("1", 1), ("2", 2)),
    ),
    "topologyPreemption": Example(
        (
            "a-0  rack a, 8 GPUs: middle (8 GPUs, priority 2)",
            "b-0  rack b, 8 GPUs: low (8 GPUs, priority 1)",
            "waits: train (8 GPUs, priority 10, within one rack)",
        ),
        racks,
        "topology_preemption",
        (("false", False), ("true", True)),
    ),
    "cascadeAware": Example(
        (
            "a  8 GPUs, 64 CPUs: large (8 GPUs, priority 1)",
            "b  8 GPUs, 32 CPUs: small (2 GPUs, 30 CPUs, priority 1)",
            "c  2 GPUs, 64 CPUs: nobody",
            "waits: train (7 GPUs, 4 CPUs, priority 10), with maxPlacements: 2",
        ),
        elsewhere,
        "cascade_aware",
        (("false", False), ("true", True)),
        (("max_placements", 2),),
    ),
    "harmOrder": Example(
        (
            "a  8 GPUs, 64 CPUs: silent (8 GPUs, priority 1, runs for 2 h)",
            "b  8 GPUs, 32 CPUs: saved (8 GPUs, priority 1, runs for 2 h, checkpoint 10 min ago)",
            "waits: train (8 GPUs, priority 10)",
        ),
        checkpoints,
        "harm_order",
        (("false", False), ("true", True)),
    ),
    "preemptionPriority": Example(
        (
            "a  8 GPUs, 64 CPUs: serving (8 GPUs, priority 1, names a class of value 20)",
            "b  8 GPUs, 32 CPUs: batch (8 GPUs, priority 2)",
            "waits: train (8 GPUs, priority 10)",
        ),
        steady,
        "protection",
        (("{}", None), ("{cap: 50}", Protection(50))),
    ),
    "maxMinRuntime": Example(
        (
            "a  8 GPUs, 64 CPUs: fresh (8 GPUs, priority 1, for 2 min, asks for 10m)",
            "b  8 GPUs, 32 CPUs: batch (8 GPUs, priority 2, runs for 2 h)",
            "waits: train (8 GPUs, priority 10)",
        ),
        just_started,
        "max_min_runtime",
        (("0s", 0), ("30m", 1_800)),
    ),
    "maxLostWork": Example(
        (
            "a  8 GPUs, 64 CPUs: saved (8 GPUs, priority 1, runs for 2 h, checkpoint 40 min ago)",
            "b  8 GPUs, 32 CPUs: silent (8 GPUs, priority 1, runs for 2 h)",
            "waits: train (8 GPUs, priority 10), with harmOrder: true",
        ),
        silences,
        "max_lost_work",
        (("1h", 3_600), ("30m", 1_800)),
        (("harm_order", True),),
    ),
}


def shown(option: str, example: Example) -> str:
    """Return the example as people read it."""
    snapshot = example.cluster()
    lines = [*example.words, ""]
    for text, value in example.settings:
        policy = replace(Policy(), **dict(example.beside), **{example.field: value})
        unit = Unit(tuple(snapshot.pending), "default/train")
        attempt = Session(snapshot, policy, now=NOW).attempt(unit)
        assert attempt is not None and attempt.plan is not None
        nodes = ", ".join(sorted({node for _, node in attempt.plan.placement}))
        victims = ", ".join(sorted(victim.root.name for victim in attempt.plan.victims))
        lines.append(f"{option}: {text:5}  train gets {nodes}; preempted: {victims}")
    return "\n".join(lines)


@pytest.mark.parametrize("option", EXAMPLES)
def test_the_example_of_an_option_is_what_it_changes(option: str) -> None:
    text = shown(option, EXAMPLES[option])
    outcomes = {line.partition("  ")[2] for line in text.splitlines()[-2:]}
    assert len(outcomes) == 2, "switching it changes nothing"
    assert f"```text\n{text}\n```" in TEXT, f"docs/scheduling.md lacks:\n{text}"
