"""Every command of `docs/quota/troubleshooting.md` answers its question, on the page's scenario.

They are typed into a shell while the first victim of the scenario is still ending.
"""

from __future__ import annotations

import copy
import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reprieve.scenarios.catalogue import packaged
from reprieve.scenarios.embedded import embedded_stage
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.scenarios.result import Outcome
from reprieve.scenarios.runner import play_scenario
from reprieve.scenarios.steps import Apply, Sleep, Step, WaitPreempted
from tests.docs.shell import PATIENCE_S, Shell
from tests.docs.tables import DOCS, topic

TEXT = topic("quota")
SCENARIO = packaged("quota")
TERMINATION = "sim.reprieve.dev/termination-time"
# Question -> what the answer of each of its commands has to hold.
ANSWERS = {
    "A job waits, and nothing is preempted?": [
        "WaitingForPreemptedWorkloads couldn't assign flavors to pod set main: ",
        "team-b 9 6 0",
        "team-a LowerPriority Any Never",
    ],
    "Which work uses my quota?": [
        "due to reclamation within the cohort; preemptor path: /research/team-a",
        "job-a-batch-",
        "the same plan",
    ],
    "A queue is not active?": [
        "Can't admit new workloads: references missing ResourceFlavor(s): nowhere.",
        "research b team-b",
    ],
    "Victims keep their quota?": [
        "b-batch-",
        'cluster_queue="team-b",priority_class="low",reason="Preempted"',
    ],
}
BROKEN = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {"name": "broken"},
    "spec": {
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "nowhere", "resources": [{"name": "cpu", "nominalQuota": 1}]}],
            }
        ]
    },
}


def commands() -> dict[str, list[str]]:
    """Return the commands of the page's console blocks by question."""
    page = (DOCS / "quota" / "troubleshooting.md").read_text(encoding="utf-8")
    found = {}
    for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        question, _, body = part.partition("\n")
        lines = [line.removeprefix("$ ") for line in body.splitlines() if line.startswith("$ ")]
        found[question] = lines
    return found


def first_steps() -> list[str]:
    """Return the kubectl commands of "First steps" that look at the scenario."""
    section = TEXT.partition("## First steps\n")[2].partition("\n## ")[0]
    lines = [line.removeprefix("$ ") for line in section.splitlines()]
    return [line for line in lines if line.startswith("kubectl get ")]


def steps() -> tuple[Step, ...]:
    """Return the scenario up to its first preemption, with victims that take long to end."""
    found: list[Step] = []
    for step in SCENARIO.steps:
        if isinstance(step, WaitPreempted):
            break
        if isinstance(step, Apply) and step.object["kind"] == "Job":
            obj: dict[str, Any] = copy.deepcopy(step.object)
            template = obj["spec"]["template"]
            template["spec"]["terminationGracePeriodSeconds"] = 3_600
            template["metadata"] = {"annotations": {TERMINATION: "1h"}}
            found.append(Apply(obj))
        elif not isinstance(step, Sleep):
            found.append(step)
    return (Apply(BROKEN), *found)


@pytest.fixture
async def shell(tmp_path: Path, kubectl: Path) -> AsyncIterator[Shell]:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(kubectl)
    reprieve = programs / "reprieve"
    reprieve.write_text(f'#!/bin/sh\nexec {sys.executable} -m reprieve "$@"\n')
    reprieve.chmod(0o755)
    operators: list[OperatorProcesses] = []
    async with embedded_stage(
        SCENARIO.nodes, tmp_path, operator_arguments=("--controllers", "quota"), kueue=True
    ) as embedded:
        try:
            result = await play_scenario(
                msgspec.structs.replace(SCENARIO, steps=steps()),
                embedded.stage,
                on_operator=operators.append,
                keep_operator=True,
            )
            assert result.outcome is Outcome.PASSED, result.text()
            observer = embedded.stage.observer
            told = await observer.until(
                lambda: any(e["reason"] == "Preempted" for e in observer.all("events")) or None,
                PATIENCE_S,
            )
            assert told, operators[0].tail()
            (started,) = [line for line in operators[0].tail(400) if "telemetry on port" in line]
            yield Shell(tmp_path, int(started.rpartition(" ")[2]), squeezed=True)
        finally:
            for operator in operators:
                await operator.stop()


def test_each_question_has_its_commands() -> None:
    assert {question: len(lines) for question, lines in commands().items()} == {
        question: len(answers) for question, answers in ANSWERS.items()
    }
    assert len(first_steps()) == 4


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_each_command_answers_its_question(shell: Shell) -> None:
    asked = [
        *(
            (command, "team-b" if "clusterqueues" in command else "job-")
            for command in first_steps()
        ),
        *(
            pair
            for question, lines in commands().items()
            for pair in zip(lines, ANSWERS[question], strict=True)
        ),
    ]
    missing = []
    for command, expected in asked:
        answer = await shell.answers(command, expected)
        if expected not in answer:
            missing.append((command, expected, answer))
    assert missing == []
