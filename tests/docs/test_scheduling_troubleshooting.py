"""Every command of "Troubleshooting" in `docs/scheduling.md` answers its question.

They are typed into a shell, beside an operator with `-v 6` on an embedded cluster where the gang of
the document's own example waits for its victims to end.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprieve.kube.resource import PODS
from reprieve.scenarios.model import NodeSpec
from tests.docs.shell import Shell
from tests.docs.tables import topic
from tests.scheduling.site import Site, group, pod, site

TEXT = topic("scheduling")
HOME = "gangs"
NODES = [
    NodeSpec(
        f"gpu-node-{n}", {"cpu": "16", "memory": "64Gi", "pods": "110", "amd.com/gpu": "4"}, {}
    )
    for n in range(2)
]
# Question -> what the answer of each of its commands has to hold.
ANSWERS = {
    "Preemption is slow?": [
        'duration_seconds_count{result="success"}',
        'duration_seconds_count{preemptor="podgroup",result="success"} 1.0',
        "scheduler_stale_decisions_total 0.0",
        (
            "a unit of 4, is a victim of gangs/training (lower priority, whole group): "
            "NodeResourcesFit refuses its reprieve"
        ),
    ],
    "A gang waits, and nothing is preempted?": [
        "(2) cannot be satisfied: 0 scheduled, 1 remaining, pod group preemption: ",
        "0/2 nodes are available: 2 Insufficient amd.com/gpu.",
        "training-0",
        "training",
        'scheduler_podgroup_preemption_attempts_total{result="success"}',
        'scheduler_queued_entities{queue="backoff",type="podgroup"}',
    ],
    "More pods are preempted than necessary?": [
        "Preempted by podgroup ",
        "training    4",
        "the same plan",
        "gangs/nightly-0 (on gpu-node-",
    ],
    "Victims have left the plan, but not their nodes?": [
        "reprieve-scheduler: preempting to accommodate a higher priority podgroup",
        "scheduler_preemption_overdue_victims_total 0.0",
    ],
}


def commands() -> dict[str, list[str]]:
    """Return the commands of the section's console blocks by question."""
    section = re.split(r"^## ", TEXT.partition("## Troubleshooting\n")[2], flags=re.MULTILINE)[0]
    found = {}
    for part in re.split(r"^### ", section, flags=re.MULTILINE)[1:]:
        question, _, body = part.partition("\n")
        blocks = re.findall(r"```console\n(.*?)```", body, re.DOTALL)
        lines = [line for block in blocks for line in block.splitlines()]
        found[question] = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return found


def first_steps() -> list[str]:
    """Return the kubectl commands of "First steps" that look at the example."""
    section = TEXT.partition("## First steps\n")[2].partition("\n## ")[0]
    lines = [line.removeprefix("$ ") for line in section.splitlines()]
    return [line for line in lines if line.startswith("kubectl get ")]


def example() -> list[dict[str, Any]]:
    """The gang of the document."""
    blocks = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    (block,) = [block for block in blocks if "kind: Pod\n" in block]
    return list(yaml.safe_load_all(block))


async def waiting_gang(cluster: Site) -> None:
    """Fill both nodes with the group `nightly`, and let the document's gang preempt it."""
    await cluster.operator("-v", "6", names=("default-scheduler", "reprieve-scheduler"))
    await cluster.create({"kind": "Namespace", "metadata": {"name": HOME}})
    await cluster.classes()
    low: list[dict[str, Any]] = [group("nightly", min_count=4, mode="all", priority="low")]
    low += [pod(f"nightly-{n}", 0, group="nightly", priority="low") for n in range(4)]
    for each in low:
        each["metadata"]["namespace"] = HOME
    for each in low[1:]:
        each["spec"]["containers"][0]["resources"] = {"limits": {"amd.com/gpu": "2"}}
    await cluster.create(*low)

    async def filled() -> bool:
        return len(await cluster.placed(HOME)) == 4

    await cluster.until("nightly is placed", filled)
    await cluster.run(HOME)
    await cluster.create(*example())

    async def told() -> bool:
        page = await cluster.client.list(PODS, dict, namespace=HOME)
        nominated = [
            each
            for each in page.items
            if not each["spec"].get("nodeName") and each["status"].get("nominatedNodeName")
        ]
        events = [event["reason"] for event in await cluster.events(HOME)]
        groups = events.count("Preempted") == 4 and "FailedScheduling" in events
        logged = any("refuses its reprieve" in line for line in cluster.lines)
        return groups and logged and len(nominated) == 2

    await cluster.until("training waits for its victims", told)


@pytest.fixture
async def shell(tmp_path: Path, kubectl: Path) -> AsyncIterator[Shell]:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(kubectl)
    reprieve = programs / "reprieve"
    reprieve.write_text(f'#!/bin/sh\nexec {sys.executable} -m reprieve "$@"\n')
    reprieve.chmod(0o755)
    async with site(NODES, tmp_path) as cluster:
        await waiting_gang(cluster)
        (tmp_path / "reprieve.log").write_text("\n".join(cluster.lines))
        (started,) = [line for line in cluster.lines if "telemetry on port" in line]
        yield Shell(tmp_path, int(started.rpartition(" ")[2]))


def test_each_question_has_its_commands() -> None:
    assert {question: len(lines) for question, lines in commands().items()} == {
        question: len(answers) for question, answers in ANSWERS.items()
    }


async def test_the_first_steps_show_the_gang_and_its_preemption(shell: Shell) -> None:
    shown = [await shell.answers(command, "training") for command in first_steps()]
    assert [text for text in shown if "training" not in text] == []
    assert len(shown) == 3


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_each_command_answers_its_question(shell: Shell) -> None:
    missing = []
    for question, lines in commands().items():
        for command, expected in zip(lines, ANSWERS[question], strict=True):
            answer = await shell.answers(command, expected)
            if expected not in answer:
                missing.append((command, expected, answer))
    assert missing == []
