"""What `-v 6` says of a gang that is neither placed nor preempts, and of a failing plugin."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.disruptions.questions import Rule
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.outcome import Attempt, Explanation, Held, Sentence, Spared, Unit
from reprieve.engine.scheduling.session import Session
from reprieve.planes.scheduling.cycle.failed_attempts import log_failed
from reprieve.telemetry.log import DETAIL
from tests.engine.builders import gang, node, pod, snapshot_of
from tests.scheduling.site import node as machine
from tests.scheduling.site import site

PLAIN = Policy()
LOGGER = "reprieve.scheduling"


def failed(*rows: object) -> tuple[Attempt, Snapshot]:
    snapshot = snapshot_of(*rows)  # type: ignore[arg-type]
    attempt = Session(snapshot, PLAIN).attempt(Unit(tuple(snapshot.pending), "default/g"))
    assert attempt is not None and attempt.code is not Code.SUCCESS
    return attempt, snapshot


def test_a_gang_is_told_of_node_by_node_and_unit_by_unit(caplog: pytest.LogCaptureFixture) -> None:
    rows = [
        node("a", gpus=8),
        node("b", gpus=8, unschedulable=True),
        pod("low", node="a", gpus=2, priority=1),
        pod("equal", node="a", gpus=6, priority=5),
    ]
    with caplog.at_level(DETAIL, LOGGER):
        log_failed(*failed(rows, gang(2, gpus=4, priority=5)), PLAIN)
    of = "for default/g-0 of default/g:"
    without = "without pods of lower priority:"
    assert caplog.messages == [
        f"node a {of} NodeResourcesFit; {without} NodeResourcesFit",
        f"node b {of} NodeUnschedulable; {without} NodeUnschedulable",
        (
            "default/low, a unit of 1 on a, is of lower priority than default/g: evicting all of "
            "them does not help"
        ),
    ]


NEVER = "not eligible due to preemptionPolicy=Never."


@pytest.mark.parametrize(
    ("preempts", "changes", "why"),
    [
        (False, {}, f"no victims were searched for: {NEVER}"),
        (True, {"preemption": None}, "no victims were searched for"),
        (
            True,
            {"delayed": Nanos(60 * SECOND)},
            "preemption is delayed until 1970-01-01T00:01:00Z (preemptionDelay)",
        ),
        (
            True,
            {
                "spared": Spared(1, 60),
                "held": Held(2, Nanos(90 * SECOND), Rule.CYCLE),
                "protected": 3,
            },
            (
                "evicting those that may be does not help: 1 within the minimum run time, the "
                "first until 1970-01-01T00:01:00Z, 2 held until 1970-01-01T00:01:30Z (governor, "
                f"rule {Rule.CYCLE}), 3 protected by the preemption priority of their class"
            ),
        ),
        (True, {}, "evicting all of them does not help"),
    ],
)
def test_a_unit_of_lower_priority_is_logged_with_why_it_was_not_evicted(
    preempts: bool,
    changes: dict[str, Any],
    why: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A group that may not preempt states nothing of what its preemption would have helped."""
    low = [node("a", gpus=8), pod("low", node="a", gpus=4, priority=1)]
    owner, *pods = gang(3, gpus=4, priority=5, preempts=preempts)
    assert isinstance(owner, GroupRow)
    attempt, snapshot = failed(low, replace(owner, preempts=preempts), *pods)
    with caplog.at_level(DETAIL, LOGGER):
        log_failed(replace(attempt, **changes), snapshot, PLAIN)
    assert [each for each in caplog.messages if "lower priority than" in each] == [
        f"default/low, a unit of 1 on a, is of lower priority than default/g: {why}"
    ]


def test_below_that_level_nothing_is_worked_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, LOGGER):
        log_failed(*failed(node("a", gpus=2), gang(2, gpus=4)), PLAIN)
    assert caplog.messages == []


def test_a_plugin_that_fails_is_logged_whatever_the_level(caplog: pytest.LogCaptureFixture) -> None:
    attempt, snapshot = failed(node("a", gpus=2), gang(2, gpus=4))
    said = Explanation(Sentence.PLUGIN_FAILED, ("Mine", "no such key"))
    broken = Attempt(attempt.unit, Code.ERROR, attempt.members, status=(said,))
    with caplog.at_level(logging.INFO, LOGGER):
        log_failed(broken, snapshot, PLAIN)
    assert [(each.levelname, each.message) for each in caplog.records] == [
        ("ERROR", "PodGroupPostFilter plugin Mine failed for default/g: no such key")
    ]


async def test_an_operator_with_v_6_says_it_of_a_gang_that_has_no_room(tmp_path: Path) -> None:
    async with site([machine("node-0")], tmp_path) as cluster:
        await cluster.operator("--verbosity", "6")
        await cluster.filled(count=2)
        await cluster.gang(2, 3, name="wide")

        async def said() -> bool:
            return any("node node-0 for team/wide-0 of team/wide: " in e for e in cluster.lines)

        await cluster.until("the node is named with what it says", said)
