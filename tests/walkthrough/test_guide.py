"""The walkthrough of the GPU-preemption guide with a real kubectl, the operator as a process.

The manifests say what the guide's say, with grace periods of seconds.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from textwrap import dedent

from tests.walkthrough.conftest import Site, normalised

GOLDEN = Path(__file__).parent / "golden"
ORDER = ["PendingOther", "Active", "Idle", "Preempting", "Preempted"]
NAMESPACE = """
apiVersion: v1
kind: Namespace
metadata:
  name: ml-team
  annotations:
    kaiwo.silogen.ai/gpu-preemption.enabled: "true"
    kaiwo.silogen.ai/gpu-preemption.grace-period: "15m"
"""


def golden(name: str) -> str:
    return (GOLDEN / name).read_text(encoding="utf-8")


def job(name: str, gpus: int, **settings: str) -> str:
    annotations = "".join(
        f'\n    kaiwo.silogen.ai/gpu-preemption.{key.replace("_", "-")}: "{value}"'
        for key, value in settings.items()
    )
    return f"""---
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  namespace: ml-team
  annotations:{annotations or " {}"}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: registry.example/main:1
        resources:
          requests:
            amd.com/gpu: "{gpus}"
          limits:
            amd.com/gpu: "{gpus}"
"""


def reports(site: Site, root: str, percent: float) -> None:
    """Let the exporter report this for the pods of a root in ml-team."""
    site.cluster.stage.exporter.set_utilization("ml-team", root, percent, gpu=None, pod_index=None)


async def test_an_idle_job_makes_way_for_a_pending_one_and_kubectl_shows_it(site: Site) -> None:
    reports(site, "Job/batch-inference", 1.2)
    applied = await site.says(
        "apply", "-f", "-", stdin=NAMESPACE + job("batch-inference", 4, grace_period="3s")
    )
    assert applied == "namespace/ml-team created\njob.batch/batch-inference created\n"

    idle = await site.gpuworkload_of("job", "batch-inference", "ml-team")
    await site.until("jsonpath={.status.phase}=Idle", idle, "ml-team")

    assert normalised(await site.says("get", "gpuworkloads", "-A")) == dedent(
        """\
        NAMESPACE  NAME  PHASE  UTILIZATION  IDLE SINCE  OWNER  OWNERNAME
        ml-team  job-batch-inference-<id>  Idle  1.2  <age>  Job  batch-inference
        """
    )
    assert normalised(await site.says("get", "gpuworkloads", "-A", "-o", "wide")) == (
        "NAMESPACE  NAME  PHASE  UTILIZATION  IDLE SINCE  OWNER  OWNERNAME  POLICY  GPUS"
        "  PREEMPTED FOR  METRICS AGE\n"
        "ml-team  job-batch-inference-<id>  Idle  1.2  <age>  Job  batch-inference  OnPressure"
        "  4 amd.com/gpu  <age>\n"
    )
    event = (
        "  Normal  WorkloadIdle  <age>  gpuworkload-controller  "
        "GPU utilization dropped to 1.2%, workload is now considered idle"
    )
    described = ("describe", "gpuworkload", idle, "-n", "ml-team")
    description = await site.until_says(lambda said: event in normalised(said), *described)
    assert normalised(description).partition("Events:")[0] == golden("describe.txt")

    await site.says("apply", "-f", "-", stdin=job("high-priority-demand", 4, enabled="true"))
    demand = await site.gpuworkload_of("job", "high-priority-demand", "ml-team")
    reports(site, "Job/high-priority-demand", 88)
    await site.until("jsonpath={.status.phase}=Preempted", idle, "ml-team")
    await site.until("jsonpath={.status.phase}=Active", demand, "ml-team")
    await site.until("jsonpath={.status.aggregatedUtilization}=88", demand, "ml-team")

    gone = await site.kubectl("get", "job", "batch-inference", "-n", "ml-team")
    assert gone.code == 1
    assert gone.stderr == ('Error from server (NotFound): jobs.batch "batch-inference" not found\n')
    assert normalised(await site.says("get", "gpuworkloads", "-A", "-o", "wide")) == (
        "NAMESPACE  NAME  PHASE  UTILIZATION  IDLE SINCE  OWNER  OWNERNAME  POLICY  GPUS"
        "  PREEMPTED FOR  METRICS AGE\n"
        "ml-team  job-batch-inference-<id>  Preempted  Job  batch-inference  OnPressure"
        "  4 amd.com/gpu  job-high-priority-demand-<id>  <age>\n"
        "ml-team  job-high-priority-demand-<id>  Active  88  Job  high-priority-demand"
        "  OnPressure  4 amd.com/gpu  <age>\n"
    )
    reason = "jsonpath={.status.preemptionReason}"
    assert await site.says("get", "gpuworkload", idle, "-n", "ml-team", "-o", reason) == (
        f"Preempted to free 4 amd.com/gpu for pending workload {demand}"
    )
    wanted = {
        "Normal WorkloadIdle",
        "Warning PreemptionStarted",
        "Warning WorkloadPreempted",
    }
    await site.until_says(
        lambda said: wanted <= set(said.splitlines()),
        "get",
        "events",
        "-n",
        "ml-team",
        "--field-selector",
        f"involvedObject.name={idle}",
        "-o",
        'jsonpath={range .items[*]}{.type} {.reason}{"\\n"}{end}',
    )


async def test_a_watch_of_kubectl_shows_each_phase_of_a_reclaim(site: Site) -> None:
    always = job("batch-inference", 1, policy="Always", grace_period="1s")
    phases: list[str] = []
    async with site.watching("gpuworkloads", "-A", "--no-headers") as lines:

        async def shown(phase: str) -> None:
            while phases[-1:] != [phase]:
                cells = (await asyncio.wait_for(lines.get(), 60)).split()
                # A GpuWorkload without a phase yet has only its names and its owner.
                phases.extend(cells[2:3] if len(cells) > 4 else [])

        reports(site, "Job/batch-inference", 90)
        await site.says("apply", "-f", "-", stdin=NAMESPACE + always)
        # Only now the watch is surely there, which misses nothing that comes later.
        await shown("Active")
        reports(site, "Job/batch-inference", 1.2)
        await shown("Preempted")

    assert set(phases) >= {"Active", "Idle", "Preempting", "Preempted"}
    assert phases == sorted(phases, key=ORDER.index)


async def test_people_change_workloads_with_kubectl_and_the_operator_follows(site: Site) -> None:
    reports(site, "Job/batch-inference", 90)
    await site.says("apply", "-f", "-", stdin=NAMESPACE + job("batch-inference", 1, ttl="1h"))
    name = await site.gpuworkload_of("job", "batch-inference", "ml-team")
    reference = f"gpuworkload/{name}"
    await site.until("jsonpath={.status.phase}=Active", name, "ml-team")

    annotated = await site.says(
        "annotate",
        "job",
        "batch-inference",
        "-n",
        "ml-team",
        "kaiwo.silogen.ai/gpu-preemption.grace-period=20m",
    )
    assert annotated == "job.batch/batch-inference annotated\n"
    await site.until("jsonpath={.spec.gracePeriod}=20m0s", name, "ml-team")

    labelled = await site.says("label", reference, "-n", "ml-team", "team=ml")
    assert labelled == f"gpuworkload.kaiwo.silogen.ai/{name} labeled\n"
    patched = await site.says(
        "patch",
        reference,
        "-n",
        "ml-team",
        "--type=merge",
        "-p",
        '{"spec":{"utilizationThreshold":95}}',
    )
    assert patched == f"gpuworkload.kaiwo.silogen.ai/{name} patched\n"
    await site.until("jsonpath={.status.phase}=Idle", name, "ml-team")
    listed = await site.says("get", "gpuworkloads", "-n", "ml-team", "-l", "team=ml", "-o", "name")
    assert listed == f"gpuworkload.kaiwo.silogen.ai/{name}\n"

    refused = await site.kubectl(
        "patch", reference, "-n", "ml-team", "--type=merge", "-p", '{"spec":{"gpuResources":7}}'
    )
    assert refused.code == 1
    assert "spec.gpuResources" in refused.stderr

    deleted = await site.says("delete", "job", "batch-inference", "-n", "ml-team")
    assert deleted == 'job.batch "batch-inference" deleted from ml-team namespace\n'
    await site.until("jsonpath={.status.phase}=Deleted", name, "ml-team")
    manifest = await site.says("get", reference, "-n", "ml-team", "-o", "yaml")
    assert "ttlAfterFinished: 1h0m0s" in manifest
    assert "finishedAt:" in manifest


async def test_kubectl_explains_the_settings_of_a_gpuworkload(bare_site: Site) -> None:
    resources = await bare_site.says(
        "api-resources", "--api-group=kaiwo.silogen.ai", "--no-headers", "-o", "name"
    )
    explained = await bare_site.says("explain", "gpuworkload.spec")

    assert "gpuworkloads.kaiwo.silogen.ai" in resources.splitlines()
    assert explained == golden("explain.txt")


async def test_an_unknown_field_is_refused_before_anything_is_stored(bare_site: Site) -> None:
    manifest = (
        job("typo", 1).replace("restartPolicy", "restartPolice").replace("ml-team", "default")
    )
    refused = await bare_site.kubectl("apply", "-f", "-", stdin=manifest)
    listed = await bare_site.says("get", "jobs", "-n", "default", "-o", "name")

    assert refused.code == 1
    assert 'unknown field "spec.template.spec.restartPolice"' in refused.stderr
    assert listed == ""
