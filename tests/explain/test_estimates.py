"""`explain` says of what waits when it starts at the latest, and why no idle work is preempted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reprieve.answers.diagnosing import asked_of_planes
from reprieve.answers.unit import Unit
from reprieve.cli.explain import explain
from reprieve.cli.sessions.deciding import deciders_of
from reprieve.engine.diagnosis.estimates import Basis, Estimate
from reprieve.engine.plan import Plane
from reprieve.kube.resource import PODS
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.questions.planning import planned
from reprieve.whatif.run import settled
from reprieve.whatif.snapshots.snapshot import Snapshot
from reprieve.whatif.snapshots.stored import stored_bytes
from tests.explain.test_from_snapshot import snapshot as served
from tests.whatif.plan_stories import NODES_OF_TWO, Object, pod, submitted
from tests.whatif.test_kinds import snapshot

MINE = pod("mine", 8, "low")
#: So much processor time may be asked for: nothing is cut short on a busy machine.
ENDLESS = 3_600.0


def ran(number: int) -> Object:
    """Return a pod of `MINE`'s size and priority that waited for more than an hour."""
    waited = {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": f"2026-01-01T01:{number:02}:00Z",
    }
    status = {"phase": "Succeeded", "conditions": [waited]}
    found = pod(f"ran-{number}", 8, "low", nodeName="gone") | {"status": status}
    found["spec"]["priority"] = 100
    return found


def planned_estimate(there: Snapshot, deciders: Deciders) -> Estimate | None:
    """Return what a plan says of `MINE` on this cluster."""
    found = asyncio.run(planned(None, there, deciders, submitted([MINE]), asking=ENDLESS))
    (outcome,) = found.outcomes
    return outcome.estimate


def asked(folder: Path, *before: Sequence[Object], form: str = "json") -> Any:
    """Return what is told of `mine`, once this was submitted, one after the other."""
    deciders = deciders_of("scheduling", ("default-scheduler",), {})
    found = snapshot(deciders, *NODES_OF_TWO)
    for wave in before:
        found = settled(found, deciders, submitted(wave)).overlay.frozen()
    file = folder / "cluster.snapshot"
    file.write_bytes(stored_bytes(replace(found, documents=served().documents)))
    told = CliRunner().invoke(
        explain, ["pod/mine", "-n", "team", "--from", str(file), "-o", form], catch_exceptions=False
    )
    return json.loads(told.output) if form == "json" else told.output


def test_a_declared_run_time_of_who_holds_the_room_is_told(tmp_path: Path) -> None:
    hour = pod("hour", 8, "high", activeDeadlineSeconds=3600)
    day = pod("day", 8, "high", activeDeadlineSeconds=86400)
    told = asked(tmp_path, [hour, day], [MINE])
    estimate = told["waiting"]["estimate"]
    assert (estimate["basis"], estimate["holder"]) == ("DeclaredRunTime", "Pod team/hour")
    assert "idle" not in told["waiting"]
    (fact,) = [each["text"] for each in told["evidence"] if each["name"] == "start"]
    assert fact.startswith("not later than ")
    assert "Pod team/hour ends at the latest (activeDeadlineSeconds)" in fact


@pytest.mark.parametrize("others", [0, 3])
def test_without_anything_measured_there_is_no_estimate_and_why(
    tmp_path: Path, others: int
) -> None:
    """Those of the same size and priority that have waited longer are similar; there are few."""
    holders = [pod(f"holds-{n}", 8, "high") for n in range(2)]
    waiting = [pod(f"waits-{n}", 8, "low") for n in range(others)]
    told = asked(tmp_path, holders, waiting, [MINE])
    estimate = told["waiting"]["estimate"]
    assert (estimate["basis"], estimate["notLaterThan"], estimate["cases"]) == ("", "", others)
    assert estimate["why"].endswith("measured among pods of default-scheduler, 29 are needed")
    text = asked(tmp_path, holders, waiting, [MINE], form="text")
    assert "no estimate: " in text


@pytest.mark.parametrize("similar", [[], [ran(number) for number in range(30)]])
@pytest.mark.parametrize("ends", [{}, {"activeDeadlineSeconds": 3600}])
def test_a_plan_tells_the_estimate_that_an_explanation_then_tells(
    similar: list[Object], ends: dict[str, int]
) -> None:
    deciders = deciders_of("scheduling", ("default-scheduler",), {})
    there = snapshot(deciders, *NODES_OF_TWO, *similar)
    holders = [pod(f"holds-{number}", 8, "high", **ends) for number in range(2)]
    there = settled(there, deciders, submitted(holders)).overlay.frozen()
    plan = planned_estimate(there, deciders)

    run = settled(settled(there, deciders, submitted([MINE])).overlay.frozen(), deciders)
    (mine,) = (each for each in run.overlay.all(PODS) if each["metadata"]["name"] == "mine")
    unit = Unit(mine, pods=(mine,))
    told = asyncio.run(asked_of_planes(unit, run, Plane.SCHEDULING, deciders, ENDLESS))
    assert plan is not None and told.estimate is not None
    assert told.estimate == plan
    expected = Basis.RUN_TIME if ends else Basis.MEASURED if similar else None
    assert plan.basis is expected, plan
