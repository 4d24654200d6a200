"""`reprieve explain` tells a preemption's story from its record and decides it again.

The documentation shows what the first test prints.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubelocal.server.rights.identity import ADMINISTRATOR
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE
from tests.docs.tables import topic
from tests.idle.site import NAMESPACE, Site, container, job

pytestmark = pytest.mark.real_time


async def explain(
    site: Site, *arguments: str, operator: str = OPERATOR_NAMESPACE
) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of `reprieve explain`.

    `operator`: where the caller's variables place the operator.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "reprieve",
        "explain",
        *arguments,
        env={
            **os.environ,
            "KUBECONFIG": str(site.embedded.kubeconfig),
            "GPU_PREEMPTION_OPERATOR_NAMESPACE": operator,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    told, complaint = await process.communicate()
    return process.returncode or 0, told.decode(), complaint.decode()


async def reclaimed(site: Site) -> dict[str, Any]:
    """Return the record of four GPUs that `batch-inference` gave up for `training`."""
    site.busy("Job/training", 90)
    await site.create(job("assistant", container(gpu=2), enabled="true"))
    await site.run()
    await site.until_phase("Job/assistant", "Idle")
    await site.create(
        job("batch-inference", container(gpu=4), enabled="true"),
        job("notebook", container(gpu=2), grace_period="1h"),
    )
    await site.until_phase("Job/batch-inference", "Idle")
    await site.until_phase("Job/notebook", "Idle")
    await site.create(job("training", container(gpu=4), enabled="true"))
    await site.until_phase("Job/training", "Active")

    async def completed() -> dict[str, Any] | None:
        records = await site.records()
        return next((r for r in records if r["status"]["phase"] == "Completed"), None)

    return await site.until(completed)


def neutral(text: str) -> str:
    """Return the text without what differs from run to run: uids, instants and durations."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "INSTANT", text)
    text = re.sub(r"plan [0-9a-f]{16}", "plan ID", text)
    text = re.sub(r"idle for [0-9hms.]+", "idle for DURATION", text)
    text = re.sub(r"-[0-9a-f]{8}\b", "-UID", text)
    text = re.sub(r"-[a-z0-9]{5} fits on", "-SUFFIX fits on", text)
    text = re.sub(r"by \S+, epoch \d+", "by OWNER, epoch N", text)
    return text.strip()


def shown() -> list[str]:
    """Return what the documentation shows that `reprieve explain` prints, by command."""
    text = topic("idle")
    return re.findall(r"^\$ reprieve explain [^\n]*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


async def test_the_story_of_a_reclaim_is_told_and_its_decision_is_upheld(site: Site) -> None:
    record = await reclaimed(site)
    name = record["metadata"]["name"]

    story = await explain(site, name)
    notebook = await explain(site, name, "--workload", f"{NAMESPACE}/notebook")
    subject = record["spec"]["victims"][0]["subject"]["name"]
    victim = await explain(site, name, "--workload", f"{NAMESPACE}/{subject}")

    assert [(code, neutral(told), why) for code, told, why in (story, notebook, victim)] == [
        (0, neutral(text), "") for text in shown()
    ]


async def test_a_record_is_found_wherever_the_operator_is_installed(site: Site) -> None:
    record = await reclaimed(site)
    name = record["metadata"]["name"]
    here = await explain(site, name)
    assert here[0] == 0
    assert await explain(site, name, operator="elsewhere") == here
    copy = {"apiVersion": record["apiVersion"], "kind": record["kind"], "spec": record["spec"]}
    await site.create(copy | {"metadata": {"name": name, "namespace": NAMESPACE}})
    code, told, complaint = await explain(site, name, operator="elsewhere")
    assert (code, told) == (2, "")
    assert complaint == (
        f"Error: Preemption '{name}' is in namespaces {OPERATOR_NAMESPACE}, {NAMESPACE}; "
        "accepted: one of them by -n\n"
    )
    assert await explain(site, name, "-n", OPERATOR_NAMESPACE, operator="elsewhere") == here


async def test_a_record_in_a_file_is_judged_as_the_one_in_the_cluster_and_a_forged_one_is_not(
    site: Site, tmp_path: Path
) -> None:
    record = await reclaimed(site)
    true, forged = tmp_path / "true.yaml", tmp_path / "forged.yaml"
    true.write_text(yaml.safe_dump({"kind": "List", "items": [record]}))
    victim = record["spec"]["victims"][0]
    spec = {**record["spec"], "victims": [{**victim, "amounts": {"amd.com/gpu": 5}}]}
    forged.write_text(yaml.safe_dump({**record, "spec": spec}))

    assert await explain(site, "-f", str(true)) == await explain(site, record["metadata"]["name"])
    code, told, _ = await explain(site, "-f", str(forged))
    assert (code, told.splitlines()[1]) == (
        1,
        "Decided again from its stored input (4 workloads): NOT the recorded plan, other: victims",
    )
    code, told, complaint = await explain(site, "-f", str(forged), "--workload", "team/notebook")
    assert code == 1
    assert "it is within its grace period" in told
    assert "NOT the recorded plan" in complaint


async def test_what_a_dry_run_would_have_done_can_be_explained_too(site: Site) -> None:
    await site.create(job("training", container(gpu=2), policy="Always"))
    await site.run(None, "--dry-run")
    (record,) = await site.until(site.records)

    code, told, complaint = await explain(site, record["metadata"]["name"])

    assert (code, complaint) == (0, "")
    assert "Decided again from its stored input (1 workload): the same plan" in told
    assert "Preemptor: none" in told
    assert "Status: Planned (dry run: nothing is marked or evicted)" in told
    assert await site.phase("Job/training") == "Idle"


async def test_what_cannot_be_explained_is_said_in_one_line(site: Site) -> None:
    code, told, complaint = await explain(site, "unknown")
    assert (code, told) == (2, "")
    assert complaint == (
        "Error: no Preemption 'unknown' in any namespace; "
        "those there are: kubectl get preemptions -A\n"
    )
    code, told, complaint = await explain(site, "unknown", "-n", OPERATOR_NAMESPACE)
    assert (code, told) == (2, "")
    assert complaint == (
        f"Error: no Preemption 'unknown' in namespace '{OPERATOR_NAMESPACE}'; "
        "those there are: kubectl get preemptions -A\n"
    )
    site.cluster.deny(ADMINISTRATOR, "list", "reprieve.dev", "preemptions")
    code, told, complaint = await explain(site, "unknown")
    assert (code, told) == (2, "")
    assert complaint == (
        f"Error: no Preemption 'unknown' in namespace '{OPERATOR_NAMESPACE}', and you may not "
        "list those of other namespaces; accepted: -n NAMESPACE\n"
    )

    site.cluster.deny(ADMINISTRATOR, "get", "reprieve.dev", "preemptions")
    code, told, complaint = await explain(site, "unknown", "-n", "elsewhere")
    assert (code, told, complaint.count("\n")) == (1, "", 1)
    rule = '- {apiGroups: ["reprieve.dev"], resources: ["preemptions"], verbs: ["get"]}'
    assert complaint.endswith(f"the rule to add: {rule}\n")

    code, told, complaint = await explain(site)
    assert (code, told) == (2, "")
    assert complaint.startswith("Error: nothing is named; accepted: KIND/NAME ")
    assert complaint.count("\n") == 1
