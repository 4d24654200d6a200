"""Every command of the section "Troubleshooting" answers its question, run by a real kubectl.

The objects stand as the operator would have left them; what the operator writes is other tests'
concern.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubelocal.cluster import EmbeddedCluster
from reprieve.api.crds import all_crds
from tests.docs.tables import topic

UID = "0a1b2c3d-0000-4000-8000-000000000000"
DEMAND_UID = "1b2c3d4e-0000-4000-8000-000000000000"
PREFIX = "kaiwo.silogen.ai/gpu-preemption."

# Question -> what the answer of each of its commands has to hold.
ANSWERS = {
    "GpuWorkload not created?": [
        f'{{"{PREFIX}grace-period":"5 minutes"}}',
        f'{{"{PREFIX}enabled":"true"}}',
        "batch-inference-x",
        "grace-period",
    ],
    "Workload stuck in Idle but not preempted?": ["OnPressure", "Idle Since:"],
    "Metrics not updating?": ["METRICS AGE", "Utilization samples are out of date"],
    "Over-preemption concerns?": ["idle-1b2c3d4e", '"need":{"amd.com/gpu":4}', "reprieve"],
}


def commands() -> dict[str, list[str]]:
    """Return the commands of the section's console blocks by question."""
    text = topic("idle")
    section = re.split(r"^## ", text.partition("## Troubleshooting\n")[2], flags=re.MULTILINE)[0]
    found = {}
    for part in re.split(r"^### ", section, flags=re.MULTILINE)[1:]:
        question, _, body = part.partition("\n")
        blocks = re.findall(r"```console\n(.*?)```", body, re.DOTALL)
        lines = [line for block in blocks for line in block.splitlines()]
        found[question] = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return found


def reference(name: str, uid: str) -> dict[str, str]:
    return {
        "apiVersion": "kaiwo.silogen.ai/v1alpha1",
        "kind": "GpuWorkload",
        "namespace": "ml-team",
        "name": name,
        "uid": uid,
    }


def manifests() -> list[dict[str, Any]]:
    root = {"apiVersion": "batch/v1", "kind": "Job", "name": "batch-inference", "uid": UID}
    container = {
        "name": "main",
        "image": "registry.example/main:1",
        "resources": {"requests": {"amd.com/gpu": "4"}, "limits": {"amd.com/gpu": "4"}},
    }
    pod = {"restartPolicy": "Never", "containers": [container]}
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "ml-team", "annotations": {f"{PREFIX}enabled": "true"}},
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "batch-inference",
                "namespace": "ml-team",
                "annotations": {f"{PREFIX}grace-period": "5 minutes"},
            },
            "spec": {"template": {"spec": pod}},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "batch-inference-x", "namespace": "ml-team"},
            "spec": pod,
        },
        {
            "apiVersion": "kaiwo.silogen.ai/v1alpha1",
            "kind": "GpuWorkload",
            "metadata": {"name": "job-batch-inference-0a1b2c3d", "namespace": "ml-team"},
            "spec": {"workloadRef": root, "gpuResources": {"amd.com/gpu": 4}},
        },
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "batch-inference.1", "namespace": "ml-team"},
            "involvedObject": {**root, "namespace": "ml-team"},
            "type": "Warning",
            "reason": "InvalidAnnotation",
            "message": f"{PREFIX}grace-period: '5 minutes'; accepted: a Go duration; in force: 10m",
        },
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "reprieve", "namespace": "ml-team"},
            "spec": {"holderIdentity": "reprieve-0", "leaseDurationSeconds": 15},
        },
        {
            "apiVersion": "reprieve.dev/v1alpha1",
            "kind": "Preemption",
            "metadata": {"name": f"idle-{DEMAND_UID}-0", "namespace": "ml-team"},
            "spec": {
                "plane": "idle",
                "planId": "0123456789abcdef",
                "proof": {"level": "Sum", "need": {"amd.com/gpu": 4}, "freed": {"amd.com/gpu": 4}},
                "preemptor": reference("job-high-priority-demand-1b2c3d4e", DEMAND_UID),
                "victims": [
                    {
                        "subject": reference("job-batch-inference-0a1b2c3d", UID),
                        "root": {**root, "namespace": "ml-team"},
                        "amounts": {"amd.com/gpu": 4},
                        "rule": "OldestIdle",
                    }
                ],
            },
        },
    ]


STATUS = {
    "phase": "Idle",
    "idleSince": "2026-03-04T10:00:00Z",
    "lastMetricsUpdate": "2026-03-04T10:14:45Z",
    "policy": "OnPressure",
    "gpus": "4 amd.com/gpu",
    "conditions": [
        {
            "type": "MetricsAvailable",
            "status": "False",
            "reason": "Stale",
            "message": "Utilization samples are out of date",
            "lastTransitionTime": "2026-03-04T10:14:45Z",
        }
    ],
}


@dataclass(frozen=True)
class Shell:
    binary: Path
    kubeconfig: Path

    async def run(self, command: str, stdin: str = "") -> str:
        """Return the output of a kubectl command that has to succeed without a complaint."""
        program, *arguments = shlex.split(command)
        assert program == "kubectl"
        process = await asyncio.create_subprocess_exec(
            self.binary,
            *arguments,
            env={
                "KUBECONFIG": str(self.kubeconfig),
                "HOME": str(self.kubeconfig.parent),
                "PATH": os.defpath,
            },
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = await process.communicate(stdin.encode())
        assert (process.returncode, stderr.decode()) == (0, ""), command
        return stdout.decode()


@pytest.fixture
async def shell(tmp_path: Path, kubectl: Path) -> AsyncIterator[Shell]:
    async with EmbeddedCluster() as cluster:
        cluster.write_kubeconfig(tmp_path / "kubeconfig")
        shell = Shell(kubectl, tmp_path / "kubeconfig")
        for objects in (all_crds(), manifests()):
            await shell.run("kubectl create -f -", yaml.safe_dump_all(objects))
        await shell.run(
            "kubectl patch gpuworkload job-batch-inference-0a1b2c3d -n ml-team --subresource=status"
            f" --type=merge --patch {shlex.quote(yaml.safe_dump({'status': STATUS}))}"
        )
        yield shell


def test_each_of_the_four_questions_has_its_commands() -> None:
    assert {question: len(lines) for question, lines in commands().items()} == {
        question: len(answers) for question, answers in ANSWERS.items()
    }


async def test_each_command_answers_its_question(shell: Shell) -> None:
    missing = []
    for question, lines in commands().items():
        for command, expected in zip(lines, ANSWERS[question], strict=True):
            answer = await shell.run(command)
            if expected not in answer:
                missing.append((command, expected, answer))
    assert missing == []
