"""Jobs: pods, counts and the end."""

from __future__ import annotations

import re
from typing import Any

from kubelocal.machines.objects import Change, Object
from kubelocal.tests.machines.cluster import job, running, sim
from kubeworld.controllers.job_indexes import INDEX, free_indexes


async def test_a_job_makes_a_pod_that_runs_on_a_node_with_room() -> None:
    async with running() as cluster:
        await cluster.create(job("train", 4))
        await cluster.wait(1)
        [pod] = cluster.all("pods")
        assert re.fullmatch(r"train-[bcdfghjklmnpqrstvwxz2456789]{5}", pod["metadata"]["name"])
        assert (
            pod["metadata"]["ownerReferences"][0]["uid"]
            == cluster.one("jobs.batch", "train")["metadata"]["uid"]
        )
        assert pod["spec"]["nodeName"] == "gpu-0"
        assert pod["status"]["phase"] == "Running"
        status = cluster.one("jobs.batch", "train")["status"]
        assert (status["active"], status["ready"], status["terminating"]) == (1, 1, 0)


async def test_a_job_of_many_pods_leaves_other_jobs_their_turn() -> None:
    async with running() as cluster:
        made: list[str] = []

        def watch(change: Change, before: Object | None) -> None:
            if change.resource == "pods" and before is None:
                made.append(change.object["metadata"]["labels"]["job-name"])

        cluster.machines.informer.listeners.append(watch)
        await cluster.create(job("large", parallelism=1_200), job("small"))
        await cluster.wait(60)
        assert made.index("small") == 500
        assert (made.count("large"), made.count("small")) == (1_200, 1)


def test_the_first_free_indexes_of_the_largest_job_are_found_without_all_others() -> None:
    spec = {"completions": 2**31 - 1}
    assert free_indexes(spec, {"completedIndexes": "0-2,4"}, [], 3) == [3, 5, 6]


async def test_the_same_seed_gives_the_same_names() -> None:
    seen = []
    for seed in (1, 1, 2):
        async with running(seed=seed) as cluster:
            await cluster.create(job("train", 1, parallelism=3, completions=3))
            await cluster.wait(1)
            seen.append(cluster.names("pods"))
    assert seen[0] == seen[1] != seen[2]


async def test_a_job_completes_when_enough_pods_have_succeeded() -> None:
    async with running() as cluster:
        times = {"annotations": sim(run_time="10s")}
        await cluster.create(job("train", 1, parallelism=2, completions=3, pod_spec=times))
        await cluster.wait(5)
        assert cluster.one("jobs.batch", "train")["status"]["active"] == 2
        await cluster.wait(30)
        status = cluster.one("jobs.batch", "train")["status"]
        assert status["succeeded"] == 3
        assert "active" not in status
        assert cluster.conditions("jobs.batch", "train")["Complete"][:2] == (
            "True",
            "CompletionsReached",
        )
        assert list(cluster.phases().values()) == ["Succeeded"] * 3


async def test_a_job_fails_beyond_its_backoff_limit() -> None:
    async with running() as cluster:
        fails = {"annotations": sim(run_time="1s", exit_code="3")}
        await cluster.create(job("train", 1, backoffLimit=2, pod_spec=fails))
        await cluster.wait(300)
        assert cluster.conditions("jobs.batch", "train")["Failed"] == (
            "True",
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        )
        assert list(cluster.phases().values()) == ["Failed"] * 3


async def test_a_failed_pod_is_replaced_after_growing_delays() -> None:
    async with running() as cluster:
        fails = {"annotations": sim(run_time="1s", exit_code="3", start_latency="0s")}
        await cluster.create(job("train", 1, pod_spec=fails))
        counts = []
        for _ in range(4):
            await cluster.wait(10)
            counts.append(len(cluster.all("pods")))
        assert counts == [1, 2, 2, 3]


async def test_a_suspended_job_has_no_pods_and_gets_them_when_resumed() -> None:
    async with running() as cluster:
        await cluster.create(job("train", 1, suspend=True))
        await cluster.wait(1)
        assert cluster.names("pods") == []
        assert cluster.conditions("jobs.batch", "train")["Suspended"][0] == "True"
        await cluster.change("jobs.batch", "train", suspend=False)
        await cluster.wait(1)
        assert list(cluster.phases().values()) == ["Running"]
        assert cluster.conditions("jobs.batch", "train")["Suspended"][:2] == ("False", "JobResumed")
        await cluster.change("jobs.batch", "train", suspend=True)
        await cluster.wait(5)
        assert cluster.names("pods") == []
        assert "failed" not in cluster.one("jobs.batch", "train")["status"]


async def test_a_deleted_job_takes_its_pods_with_it() -> None:
    async with running() as cluster:
        await cluster.create(job("train", 1, parallelism=2, completions=2))
        await cluster.wait(1)
        await cluster.delete("jobs.batch", "train")
        await cluster.wait(5)
        assert cluster.names("pods") == []


async def test_an_evicted_pod_is_replaced() -> None:
    async with running() as cluster:
        await cluster.create(job("train", 1))
        await cluster.wait(1)
        [first] = cluster.names("pods")
        await cluster.delete("pods", first)
        await cluster.wait(30)
        [second] = cluster.names("pods")
        assert second != first
        assert cluster.phases()[second] == "Running"


async def test_an_indexed_job_names_each_index_once() -> None:
    async with running() as cluster:
        times = {"annotations": sim(run_time="10s")}
        await cluster.create(
            job("train", 1, parallelism=2, completions=3, completionMode="Indexed", pod_spec=times)
        )
        await cluster.wait(5)
        assert [name[:8] for name in cluster.names("pods")] == ["train-0-", "train-1-"]
        await cluster.wait(30)
        assert [name[:8] for name in cluster.names("pods")] == ["train-0-", "train-1-", "train-2-"]
        assert cluster.one("jobs.batch", "train")["status"]["completedIndexes"] == "0-2"


async def test_a_job_with_only_parallelism_is_a_work_queue() -> None:
    async with running() as cluster:
        times = {"annotations": sim(run_time="10s")}
        await cluster.create(job("train", 1, parallelism=2, pod_spec=times))
        await cluster.wait(30)
        assert list(cluster.phases().values()) == ["Succeeded"] * 2
        assert cluster.conditions("jobs.batch", "train")["Complete"][0] == "True"


async def test_a_job_ends_at_its_deadline() -> None:
    async with running() as cluster:
        await cluster.create(job("train", 1, activeDeadlineSeconds=60))
        await cluster.wait(59)
        assert list(cluster.phases().values()) == ["Running"]
        await cluster.wait(10)
        assert cluster.names("pods") == []
        assert cluster.conditions("jobs.batch", "train")["Failed"][1] == "DeadlineExceeded"


async def test_a_finished_job_goes_after_its_time_to_live() -> None:
    async with running() as cluster:
        times = {"annotations": sim(run_time="1s")}
        await cluster.create(job("train", 1, ttlSecondsAfterFinished=100, pod_spec=times))
        await cluster.wait(100)
        assert cluster.names("jobs.batch") == ["train"]
        await cluster.wait(10)
        assert cluster.names("jobs.batch") == []
        assert cluster.names("pods") == []


async def test_an_index_that_has_failed_too_often_fails_the_job_when_the_others_are_done() -> None:
    async with running() as cluster:
        indexed: dict[str, Any] = {"completionMode": "Indexed", "parallelism": 3, "completions": 3}
        await cluster.create(job("train", 1, backoffLimitPerIndex=1, **indexed))
        await cluster.wait(1)
        for _ in range(2):
            (bad,) = (
                pod
                for pod in cluster.all("pods")
                if pod["metadata"]["labels"][INDEX] == "1" and pod["status"]["phase"] == "Running"
            )
            await cluster.annotate("pods", bad["metadata"]["name"], fail="7")
            await cluster.wait(60)
        assert cluster.one("jobs.batch", "train")["status"]["active"] == 2
        for pod in cluster.all("pods"):
            if pod["status"]["phase"] == "Running":
                await cluster.annotate("pods", pod["metadata"]["name"], run_time="1s")
        await cluster.wait(10)
        status = cluster.one("jobs.batch", "train")["status"]
        assert (status["completedIndexes"], status["failedIndexes"]) == ("0,2", "1")
        assert cluster.conditions("jobs.batch", "train")["Failed"] == (
            "True",
            "FailedIndexes",
            "Job has failed indexes",
        )
        counts = sorted(
            pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"]
            for pod in cluster.all("pods")
            if pod["metadata"]["labels"][INDEX] == "1"
        )
        assert counts == ["0", "1"]


async def test_the_policy_may_fail_an_index_at_once_and_too_many_end_the_job() -> None:
    async with running() as cluster:
        rule = {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [7]}}
        fails = {"annotations": sim(run_time="1s", exit_code="7")}
        indexed = {"completionMode": "Indexed", "parallelism": 1, "completions": 4}
        await cluster.create(
            job(
                "train",
                1,
                **indexed,
                backoffLimitPerIndex=5,
                maxFailedIndexes=1,
                podFailurePolicy={"rules": [rule]},
                pod_spec=fails,
            )
        )
        await cluster.wait(120)
        status = cluster.one("jobs.batch", "train")["status"]
        assert (status["failedIndexes"], status["failed"]) == ("0-1", 2)
        assert cluster.conditions("jobs.batch", "train")["Failed"] == (
            "True",
            "MaxFailedIndexesExceeded",
            "Job has exceeded the specified maximal number of failed indexes",
        )


async def test_a_success_policy_ends_the_job_with_its_leaders() -> None:
    async with running() as cluster:
        policy = {
            "rules": [{"succeededIndexes": "2-3"}, {"succeededIndexes": "0", "succeededCount": 1}]
        }
        indexed: dict[str, Any] = {"completionMode": "Indexed", "parallelism": 3, "completions": 3}
        await cluster.create(job("train", 1, successPolicy=policy, **indexed))
        await cluster.wait(5)
        (leader,) = (pod for pod in cluster.all("pods") if pod["metadata"]["labels"][INDEX] == "0")
        await cluster.annotate("pods", leader["metadata"]["name"], run_time="5s")
        await cluster.wait(60)
        assert cluster.conditions("jobs.batch", "train")["Complete"] == (
            "True",
            "SuccessPolicy",
            "Matched rules at index 1",
        )
        status = cluster.one("jobs.batch", "train")["status"]
        assert (status["completedIndexes"], status["succeeded"]) == ("0", 1)
        assert list(cluster.phases().values()) == ["Succeeded"]


async def test_a_job_of_another_controller_is_left_to_it() -> None:
    async with running() as cluster:
        await cluster.create(job("far", 1, managedBy="kueue.x-k8s.io/multikueue"))
        await cluster.create(job("near", 1, managedBy="kubernetes.io/job-controller"))
        await cluster.wait(5)
        owners = [pod["metadata"]["ownerReferences"][0]["name"] for pod in cluster.all("pods")]
        assert owners == ["near"]
        assert "status" not in cluster.one("jobs.batch", "far")


async def test_a_job_of_another_controller_goes_when_its_time_to_live_is_over() -> None:
    async with running() as cluster:
        far = job("far", 1, managedBy="kueue.x-k8s.io/multikueue", ttlSecondsAfterFinished=10)
        made = await cluster.create(far)
        ended = {
            "type": "Complete",
            "status": "True",
            "lastTransitionTime": made["metadata"]["creationTimestamp"],
        }
        status = {"status": {"conditions": [ended]}}
        await cluster.store.update("jobs.batch", {**made, **status}, subresource="status")
        await cluster.wait(5)
        before = cluster.names("jobs.batch")
        await cluster.wait(10)
        assert (before, cluster.names("jobs.batch")) == (["far"], [])
