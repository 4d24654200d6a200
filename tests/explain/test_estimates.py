"""`explain` says of what waits when it starts at the latest, and why nobody idle makes way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reprieve.cli.deciding import deciders_of
from reprieve.cli.explain import explain
from reprieve.whatif.run import settled
from reprieve.whatif.stored import stored_bytes
from tests.explain.test_from_snapshot import snapshot as served
from tests.whatif.plan_stories import NODES_OF_TWO, Object, pod, submitted
from tests.whatif.test_kinds import snapshot

MINE = pod("mine", 8, "low")


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
