"""What `-v 6` says of a gang that is neither placed nor preempts, and of a failing plugin."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.outcome import Attempt, Explanation, Sentence, Unit
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
            "default/low, a unit of 1 on a, is of lower priority than default/g: evicting it does "
            "not help"
        ),
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
