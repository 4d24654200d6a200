"""Kubelets: how pods start, run, end and are deleted."""

from __future__ import annotations

from typing import Any

from kubelocal.machines.node.kubelet import KubeletTimes
from kubelocal.tests.machines.cluster import gpu_node, job, pod, running, sim
from kubeworld.units.durations import SECOND


async def test_a_started_pod_says_what_a_kubelet_says() -> None:
    async with running() as cluster:
        await cluster.create(pod("p", 1))
        await cluster.wait(1)
        status = cluster.one("pods", "p")["status"]
        assert status["phase"] == "Running"
        assert {t: c[0] for t, c in cluster.conditions("pods", "p").items()} == {
            "PodScheduled": "True",
            "PodReadyToStartContainers": "True",
            "Initialized": "True",
            "ContainersReady": "True",
            "Ready": "True",
        }
        [container] = status["containerStatuses"]
        assert (container["name"], container["ready"], container["restartCount"]) == (
            "main",
            True,
            0,
        )
        assert container["state"]["running"]["startedAt"] == status["startTime"]
        assert status["podIP"].startswith("10.244.")
        assert status["hostIP"] == "198.18.0.1"


async def test_start_latency_is_spent_creating_containers() -> None:
    async with running(times=KubeletTimes(start_latency=5 * SECOND)) as cluster:
        await cluster.create(pod("usual", 1), pod("slow", 1, annotations=sim(start_latency="60s")))
        await cluster.wait(4)
        assert cluster.phases() == {"usual": "Pending", "slow": "Pending"}
        [container] = cluster.one("pods", "slow")["status"]["containerStatuses"]
        assert container["state"] == {"waiting": {"reason": "ContainerCreating"}}
        assert cluster.conditions("pods", "slow")["Ready"] == (
            "False",
            "ContainersNotReady",
            "containers with unready status: [main]",
        )
        await cluster.wait(2)
        assert cluster.phases() == {"usual": "Running", "slow": "Pending"}
        await cluster.wait(55)
        assert cluster.phases() == {"usual": "Running", "slow": "Running"}


async def test_a_pod_that_never_restarts_ends_with_its_exit_code() -> None:
    async with running() as cluster:
        never: dict[str, Any] = {"restartPolicy": "Never"}
        await cluster.create(
            pod("good", 1, annotations=sim(run_time="10s"), **never),
            pod("bad", 1, annotations=sim(run_time="10s", exit_code="7"), **never),
        )
        await cluster.wait(11)
        assert cluster.phases() == {"good": "Succeeded", "bad": "Failed"}
        [container] = cluster.one("pods", "bad")["status"]["containerStatuses"]
        ended = container["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (7, "Error")
        assert cluster.conditions("pods", "good")["Ready"][:2] == ("False", "PodCompleted")


async def test_restart_policies_decide_who_is_started_again() -> None:
    async with running() as cluster:
        fails, works = sim(run_time="10s", exit_code="1"), sim(run_time="10s")
        await cluster.create(
            pod("always", 1, annotations=works, restartPolicy="Always"),
            pod("on-failure", 1, annotations=fails, restartPolicy="OnFailure"),
            pod("on-success", 1, annotations=works, restartPolicy="OnFailure"),
        )
        await cluster.wait(35)
        restarts = {
            p["metadata"]["name"]: p["status"]["containerStatuses"][0]["restartCount"]
            for p in cluster.all("pods")
        }
        assert cluster.phases() == {
            "always": "Running",
            "on-failure": "Running",
            "on-success": "Succeeded",
        }
        assert restarts == {"always": 3, "on-failure": 3, "on-success": 0}


async def test_a_pod_runs_for_ever_without_a_run_time() -> None:
    async with running() as cluster:
        await cluster.create(pod("p", 1, restartPolicy="Never"))
        await cluster.wait(365 * 24 * 3600)
        assert cluster.phases() == {"p": "Running"}


async def test_a_deleted_pod_ends_after_its_termination_time() -> None:
    async with running() as cluster:
        await cluster.create(pod("p", 1, annotations=sim(termination_time="20s")))
        await cluster.wait(1)
        await cluster.delete("pods", "p")
        await cluster.wait(19)
        assert cluster.one("pods", "p")["metadata"]["deletionGracePeriodSeconds"] == 30
        assert cluster.phases() == {"p": "Running"}
        await cluster.wait(2)
        assert cluster.names("pods") == []
        assert [w for w in cluster.store.writes if w[1] == "pods"][-2:] == [
            ("update status", "pods", "p"),
            ("delete", "pods", "p"),
        ]


async def test_no_pod_outlives_its_grace_period() -> None:
    async with running() as cluster:
        await cluster.create(
            pod("p", 1, annotations=sim(termination_time="1h"), terminationGracePeriodSeconds=5)
        )
        await cluster.wait(1)
        await cluster.delete("pods", "p")
        await cluster.wait(4)
        assert cluster.names("pods") == ["p"]
        await cluster.wait(2)
        assert cluster.names("pods") == []


async def test_a_pod_with_a_finalizer_stays_until_that_is_gone() -> None:
    async with running() as cluster:
        held = pod("p", 1)
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await cluster.create(held)
        await cluster.wait(1)
        await cluster.delete("pods", "p")
        await cluster.wait(60)
        left = cluster.one("pods", "p")
        assert left["status"]["phase"] == "Failed"
        del left["metadata"]["finalizers"]
        await cluster.store.update("pods", left)
        assert cluster.names("pods") == []


async def test_a_setting_on_the_owner_reaches_pods_that_run() -> None:
    async with running() as cluster:
        await cluster.create(job("train", 1))
        await cluster.wait(10)
        await cluster.annotate("jobs.batch", "train", run_time="30s")
        await cluster.wait(15)
        assert list(cluster.phases().values()) == ["Running"]
        await cluster.wait(10)
        assert list(cluster.phases().values()) == ["Succeeded"]


async def test_a_value_that_is_not_accepted_is_named_in_an_event() -> None:
    async with running() as cluster:
        await cluster.create(pod("p", 1, annotations=sim(start_latency="soon")))
        await cluster.wait(1)
        assert cluster.phases() == {"p": "Running"}
        warnings = [e["message"] for e in cluster.all("events") if e["type"] == "Warning"]
        assert warnings == [
            (
                "annotation sim.reprieve.dev/start-latency: 'soon' is not a latency; accepted: a "
                "Go duration such as 90s or 5m, uniform(1s, 5s), exponential(2s)"
            )
        ]


async def test_a_pod_on_a_node_that_does_not_exist_is_left_alone() -> None:
    async with running() as cluster:
        await cluster.create(pod("p", 1, nodeName="nowhere"))
        await cluster.wait(10)
        assert cluster.phases() == {"p": "Pending"}


async def test_a_pod_that_does_not_fit_on_its_node_is_rejected() -> None:
    async with running([gpu_node("n", 8, allocatable={"cpu": "4", "pods": "4"})]) as cluster:
        await cluster.create(
            pod("first", 4, requests={"cpu": "3"}, nodeName="n"),
            pod("done", 4, nodeName="n", restartPolicy="Never", annotations=sim(run_time="1s")),
        )
        await cluster.wait(5)
        await cluster.create(
            pod("cpu", 1, requests={"cpu": "1500m"}, nodeName="n"),
            pod("gpu", 8, nodeName="n"),
            pod("fits", 4, requests={"cpu": "1"}, nodeName="n"),
            pod("elsewhere", 0, requests={"example.com/other": "3"}, nodeName="n"),
        )
        await cluster.wait(2)
        await cluster.create(pod("one", nodeName="n"), pod("more", nodeName="n"))
        await cluster.wait(2)
        found = {
            p["metadata"]["name"]: (s["phase"], s.get("reason", ""), s.get("message", ""))
            for p in cluster.all("pods")
            for s in [p["status"]]
        }
        short = "Pod was rejected: Node didn't have enough resource: "
        assert found == {
            "first": ("Running", "", ""),
            "done": ("Succeeded", "", ""),
            "cpu": (
                "Failed",
                "OutOfcpu",
                f"{short}cpu, requested: 1500, used: 3000, capacity: 4000",
            ),
            "gpu": (
                "Failed",
                "OutOfamd.com/gpu",
                f"{short}amd.com/gpu, requested: 8, used: 4, capacity: 8",
            ),
            "fits": ("Running", "", ""),
            "elsewhere": ("Running", "", ""),
            "one": ("Running", "", ""),
            "more": ("Failed", "OutOfpods", f"{short}pods, requested: 1, used: 4, capacity: 4"),
        }


async def test_pods_that_are_deleted_together_end_apart_in_that_order() -> None:
    ended: list[list[str]] = []
    names = ("second", "first", "third")
    async with running(times=KubeletTimes(apart=10 * SECOND)) as cluster:
        await cluster.create(*(pod(name, 1) for name in names))
        await cluster.wait(2)
        for name in ("first", "second", "third"):
            await cluster.delete("pods", name)
        for seconds in (2, 10, 10):
            await cluster.wait(seconds)
            ended.append(sorted(cluster.phases()))
    assert ended == [["second", "third"], ["third"], []]
