"""The chart in a pod, and each plane evicting real pods that save: one after the other.

Each story leaves the nodes empty; the last one removes the release.
"""

from __future__ import annotations

import contextlib
import json
import tarfile
from typing import Any

import pytest

from tests.node.cluster import GPUS
from tests.node.machine import IMAGE
from tests.node.release import NAMESPACE, Release, deaf, job
from tests.node.work import followed, gang, queue, records, running, sweep

pytestmark = [pytest.mark.slow, pytest.mark.node]

# What the page answers, and metrics without a token.
READ_PAGE = """
import ssl, urllib.error, urllib.request
context = ssl._create_unverified_context()
for url in ("http://reprieve-web.reprieve.svc.cluster.local", "https://localhost:8080/metrics"):
    try:
        print(urllib.request.urlopen(url, context=context).status)
    except urllib.error.HTTPError as refused:
        print(refused.code)
"""
KILL_OPERATOR = (
    "import os, signal; children = open('/proc/1/task/1/children').read().split(); "
    "os.kill(int(children[0]), signal.SIGKILL)"
)


def test_the_operator_is_ready_by_its_probes_and_runs_as_nobody(release: Release) -> None:
    pod = release.pod()
    (status,) = pod["status"]["containerStatuses"]
    assert status["ready"] and status["restartCount"] == 0
    identity = release.cluster.kubectl(
        *("exec", "deploy/reprieve", "-n", NAMESPACE, "--", "python", "-c"),
        "import os; print(os.getuid(), os.access('/opt', os.W_OK))",
    )
    assert identity.split() == ["65532", "False"]
    events = release.cluster.get("events", "-n", NAMESPACE)["items"]
    warnings = [each["message"] for each in events if each["type"] == "Warning"]
    # A slow machine has not opened the port, or not read its lists, when it is probed first, and a
    # kubelet that has just started has not read the ConfigMap of an account.
    early = ("Startup probe failed", "Readiness probe failed")
    reads = "failed to sync configmap cache"
    assert [each for each in warnings if not each.startswith(early) and reads not in each] == []
    assert "forbidden" not in release.log().lower()


@pytest.mark.usefixtures("release")
def test_the_image_has_less_than_150_mb_on_top_of_its_base() -> None:
    with tarfile.open(IMAGE) as archive:
        manifest = archive.extractfile("manifest.json")
        assert manifest is not None
        (image,) = json.load(manifest)
        _, *own = [archive.getmember(layer).size for layer in image["Layers"]]
    assert 50e6 < sum(own) < 150e6


def test_helm_test_prints_what_the_operator_says(release: Release) -> None:
    said = release.helm("test", "--logs", "--timeout", "3m")
    assert "Phase:          Succeeded" in said
    assert "POD LOGS: reprieve-test" in said and "ok" in said


def test_a_killed_operator_gives_its_lease_back(release: Release) -> None:
    before = release.holder()
    with contextlib.suppress(RuntimeError):  # what kills it may end with the container, too
        release.cluster.kubectl(
            *("exec", "deploy/reprieve", "-n", NAMESPACE, "--", "python", "-c", KILL_OPERATOR)
        )

    def leads() -> bool:
        holder = release.holder()
        return holder not in ("", before)

    release.cluster.until("the operator leads again", leads)

    def started_again() -> Any:
        (status,) = release.pod()["status"]["containerStatuses"]
        return status["restartCount"] and status["ready"] and status

    status = release.cluster.until("it is ready", started_again)
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 137
    # Nobody had to be waited for.
    assert "stands by" not in release.log()


def test_idle_work_is_told_to_end_saves_and_gives_its_gpus_to_who_waits(
    release: Release, space: str
) -> None:
    cluster = release.cluster
    annotation = "kaiwo.silogen.ai/gpu-preemption.enabled=true"
    cluster.kubectl("annotate", "namespace", space, annotation)
    cluster.apply(job("idle-notebook", space, GPUS), job("busy-train", space, GPUS))
    workers = followed(cluster, space, 2)
    cluster.apply(job("demand", space, GPUS))
    followed(cluster, space, 1, "job-name=demand")
    (idle,) = [name for name in workers if name.startswith("idle")]
    assert workers[idle].said() == ["works", "TERM", "saved"]
    assert [name.rpartition("-")[0] for name in running(cluster, space)] == ["busy-train", "demand"]


@pytest.mark.usefixtures("classes")
def test_a_gang_evicts_work_that_saves_and_starts_when_it_has_ended(
    release: Release, space: str
) -> None:
    cluster = release.cluster
    cluster.apply(*sweep(space, 2, GPUS))
    workers = followed(cluster, space, 2)
    cluster.apply(*gang(space, 2, GPUS))
    followed(cluster, space, 2, "gang=train")
    assert [each.said() for each in workers.values()] == [["works", "TERM", "saved"]] * 2
    (record,) = records(cluster, space)
    assert len(record["spec"]["victims"]) == 2


@pytest.mark.usefixtures("classes")
def test_work_that_ignores_its_end_is_killed_when_its_time_is_over(
    release: Release, space: str
) -> None:
    cluster = release.cluster
    pods = sweep(space, 2, GPUS, grace=8)
    cluster.apply(*({**pod, "spec": deaf(pod["spec"])} for pod in pods))
    workers = followed(cluster, space, 2)
    cluster.apply(*gang(space, 2, GPUS))
    followed(cluster, space, 2, "gang=train")
    assert [each.said() for each in workers.values()] == [["works", "hook"]] * 2
    (record,) = records(cluster, space)
    assert len(record["spec"]["victims"]) == 2


@pytest.mark.usefixtures("classes")
def test_upgrade_and_rollback_with_a_plan_open_evict_the_same_victims_once(
    release: Release, space: str
) -> None:
    cluster = release.cluster
    cluster.apply(*sweep(space, 4, GPUS // 2, saves=45, grace=120))
    workers = followed(cluster, space, 4)
    cluster.apply(*gang(space, 2, GPUS // 2))
    (record,) = cluster.until("the plan is recorded", lambda: records(cluster, space))
    release.helm("upgrade", "--wait", "--timeout", "5m", verbosity=5)
    release.helm("rollback", "--wait", "--timeout", "5m")
    followed(cluster, space, 2, "gang=train")
    victims = {each["root"]["name"] for each in record["spec"]["victims"]}
    assert len(victims) == 2
    assert [each["spec"] for each in records(cluster, space)] == [record["spec"]]
    for name in victims:
        assert workers[name].said() == ["works", "TERM", "saved"]
    assert set(running(cluster, space, "app=sweep")) == workers.keys() - victims


def test_of_two_replicas_one_leads_and_the_other_follows_and_the_page_is_shown(
    release: Release,
) -> None:
    cluster = release.cluster
    options: dict[str, Any] = {"metrics": {"authentication": True}, "flowSchema": {"enabled": True}}
    release.helm(
        *("upgrade", "--wait", "--timeout", "5m"), replicas=2, web={"enabled": True}, **options
    )

    def leader() -> str:
        """Return the pod that leads; the last one that did may be on its way out."""
        name = release.holder().partition("_")[0]
        return name if name in running(cluster, NAMESPACE) else ""

    try:
        page = cluster.kubectl(
            *("exec", "deploy/reprieve", "-n", NAMESPACE, "--", "python", "-c", READ_PAGE)
        )
        assert page.split() == ["200", "401"]
        before = cluster.until("one leads", leader)
        cluster.kubectl("delete", "pod", before, "-n", NAMESPACE, "--force", "--grace-period=0")
        cluster.until("the other leads", lambda: leader() not in ("", before))
    finally:
        release.helm("rollback", "--wait", "--timeout", "5m")
    cluster.until("one pod is left", lambda: len(running(cluster, NAMESPACE)) == 1)


def test_quota_is_taken_back_from_work_that_saves_and_nothing_hangs_without_the_operator(
    release: Release, space: str
) -> None:
    cluster = release.cluster
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor"}
    cluster.apply({**flavor, "metadata": {"name": "gpus"}})
    for name in ("lender", "borrower"):
        cluster.apply(*queue(space, name))
    for name in ("own", "borrowed"):
        cluster.apply(job(name, space, GPUS, queue="borrower"))
        workers = followed(cluster, space, 1 if name == "own" else 2)
    cluster.apply(job("owner", space, GPUS, queue="lender"))
    followed(cluster, space, 1, "job-name=owner")
    (victim,) = workers.keys() - set(running(cluster, space))
    assert workers[victim].said() == ["works", "TERM", "saved"]

    release.helm("uninstall", "--timeout", "5m")
    leases = cluster.get("leases", "-n", NAMESPACE)["items"]
    assert {each["metadata"]["name"] for each in leases} == {"gpu-preemption-eval", "reprieve"}
    assert [each["spec"].get("holderIdentity") for each in leases] == ["", ""]
    old = cluster.kubectl("get", "workloads.v1beta1.kueue.x-k8s.io", "-n", space)
    assert len(old.splitlines()) == 4
    cluster.kubectl("delete", "clusterqueue", "lender", "borrower", "--timeout=60s")
    cluster.kubectl("delete", "resourceflavor", "gpus", "--timeout=60s")
    left = cluster.kubectl("get", "pods,jobs,roles", "-n", NAMESPACE, "-o", "name").split()
    assert left == []
