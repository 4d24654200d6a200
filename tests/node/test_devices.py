"""GPUs that the kubelets allocate: when they are held, gone or unhealthy, nobody goes in vain.

Whom the operator evicted is counted from the API server's audit log.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.node.cluster import ABSENT, GPU, GPUS, Cluster
from tests.node.release import VALUES, Object, Release
from tests.node.unknown import unknown_pod
from tests.node.work import (
    ON_N1,
    ON_N2,
    evicted,
    evicting,
    explained,
    followed,
    gang,
    member,
    records,
    refused,
    running,
    sweep,
)

pytestmark = [pytest.mark.slow, pytest.mark.node]

NOTICE: Object = {"scheduling": {**VALUES["scheduling"], "notice": {"max": "5m"}}}
REFUSAL = "UnexpectedAdmissionError"


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Release:
    found = Release(cluster)
    found.helm("install", "--create-namespace", "--wait", "--timeout", "5m", **NOTICE)
    return found


@contextlib.contextmanager
def devices(cluster: Cluster, node: str, *words: str) -> Iterator[None]:
    """Have devices of a node unhealthy, or `ABSENT`, for so long."""
    cluster.set_devices(node, *words)
    try:
        yield
    finally:
        cluster.set_devices(node)
        cluster.until(f"{node} has its devices", lambda: cluster.allocatable(node) == GPUS)


def on(where: Object, work: list[Object], *, of: slice = slice(None)) -> list[Object]:
    """Bind work to a node by its labels."""
    for pod in work[of]:
        pod["spec"] |= where
    return work


def three_on_two_nodes(space: str) -> list[Object]:
    """Return work that leaves half of n1 free, by what the API server shows."""
    return on(ON_N1, on(ON_N2, sweep(space, 3, GPUS // 2)), of=slice(1))


def test_each_container_has_devices_of_its_own(cluster: Cluster, space: str) -> None:
    work = on(ON_N1, sweep(space, 2, GPUS // 2))
    for pod in work:
        del pod["spec"]["schedulerName"], pod["spec"]["priorityClassName"]
    cluster.apply(*work)
    given = [
        cluster.kubectl("exec", name, "-n", space, "--", "sh", "-c", "echo $DEVICES").strip()
        for name in followed(cluster, space, 2)
    ]
    assert sorted(",".join(given).split(",")) == [f"gpu{number}" for number in range(GPUS)]


@pytest.mark.usefixtures("classes", "release")
def test_while_a_kubelet_refuses_a_pod_of_a_gang_for_its_devices_nobody_else_is_evicted(
    cluster: Cluster, space: str
) -> None:
    group, *_ = gang(space, 2, GPUS // 2)
    with unknown_pod(cluster, "n1", {GPU: str(GPUS // 2)}):
        cluster.apply(*three_on_two_nodes(space))
        workers = followed(cluster, space, 3)
        cluster.apply(group, *(member(space, GPUS // 2, where) for where in (ON_N1, ON_N2)))
        cluster.until(
            "the kubelet refuses the pod, and the one in its place",
            lambda: len(refused(cluster, space, "train-n1", REFUSAL)) > 1,
        )
        (victim,) = evicting(cluster, space, 1)
    followed(cluster, space, 1, "job-name=train-n1")
    followed(cluster, space, 1, "job-name=train-n2")
    assert evicted(cluster, space) == [victim] and victim in ("sweep-1", "sweep-2")
    assert set(running(cluster, space, "app=sweep")) == workers.keys() - {victim}
    assert workers[victim].said() == ["works", "TERM", "saved"]


@pytest.mark.usefixtures("classes", "release")
def test_a_gang_without_its_refused_pod_is_explained_and_runs_when_the_pod_is_created_again(
    cluster: Cluster, space: str
) -> None:
    group, *pods = gang(space, 2, GPUS // 2)
    members = [*on(ON_N1, pods[:1]), *on(ON_N2, pods[1:])]
    with unknown_pod(cluster, "n1", {GPU: str(GPUS // 2)}):
        cluster.apply(*three_on_two_nodes(space))
        workers = followed(cluster, space, 3)
        cluster.apply(group, *members)

        def phases() -> list[str]:
            found = cluster.get("pods", "-n", space, "-l", "gang=train")["items"]
            return [each["status"].get("phase", "") for each in found]

        cluster.until("one is refused", lambda: phases() == ["Failed", "Running"])
        (victim,) = evicting(cluster, space, 1)
        stated = explained(cluster, space, "podgroup/train")
        assert "PodGroup" in stated and "1 pod on node n2; group train lacks 1 of its" in stated
        assert f"Pod train-0 failed on node n1: {REFUSAL}: " in stated
        step = f"kubectl -n {space} delete pod train-0"
        assert step in stated and step in explained(cluster, space, "pod/train-0")
        (condition,) = cluster.get("podgroup", "train", "-n", space)["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("PodGroupInitiallyScheduled", "True")
    cluster.kubectl(*step.split()[1:])
    cluster.apply(members[0])
    followed(cluster, space, 2, "gang=train")
    assert "lacks" not in explained(cluster, space, "podgroup/train")
    assert evicted(cluster, space) == [victim]
    assert set(running(cluster, space, "app=sweep")) == workers.keys() - {victim}


@pytest.mark.usefixtures("classes", "release")
def test_while_a_kubelet_that_was_restarted_has_no_devices_nobody_is_evicted(
    cluster: Cluster, space: str
) -> None:
    cluster.apply(*sweep(space, 4, GPUS // 2))
    workers = followed(cluster, space, 4)
    with devices(cluster, "n1", ABSENT):
        cluster.end_kubelet("n1")
        cluster.until("the node has no devices", lambda: cluster.allocatable("n1") == 0)
        cluster.apply(*on(ON_N1, gang(space, 1, GPUS // 2)[1:]), gang(space, 1, GPUS // 2)[0])

        def reason() -> str:
            pod = cluster.get("pod", "train-0", "-n", space)
            conditions = pod["status"].get("conditions") or ()
            return next((each.get("message", "") for each in conditions), "")

        cluster.until("the gang waits", lambda: f"Insufficient {GPU}" in reason())
        assert f"Insufficient {GPU}" in explained(cluster, space, "podgroup/train")
        assert evicted(cluster, space) == []
        assert len(running(cluster, space, "app=sweep")) == 4
    followed(cluster, space, 1, "gang=train")
    (victim,) = evicted(cluster, space)
    assert set(running(cluster, space, "app=sweep")) == workers.keys() - {victim}
    assert workers[victim].said() == ["works", "TERM", "saved"]


@pytest.mark.usefixtures("classes", "release")
def test_a_demand_whose_device_became_unhealthy_while_its_victim_saves_runs_elsewhere(
    cluster: Cluster, space: str
) -> None:
    cluster.apply(*sweep(space, 4, GPUS // 2, saves=25, grace=60))
    workers = followed(cluster, space, 4)
    cluster.apply(*gang(space, 1, GPUS // 2))
    (first,) = evicting(cluster, space, 1)
    node = cluster.get("pod", first, "-n", space)["spec"]["nodeName"]
    with devices(cluster, node, "gpu0"):
        followed(cluster, space, 1, "gang=train")
        found = evicted(cluster, space)
    assert len(found) == 2 and len({*found}) == 2 and found[0] == first
    for name in found:
        assert workers[name].said() == ["works", "TERM", "saved"]
    assert set(running(cluster, space, "app=sweep")) == workers.keys() - {*found}


@pytest.mark.usefixtures("classes", "release")
def test_a_demand_that_no_node_has_healthy_devices_for_evicts_nobody_whose_notice_runs(
    cluster: Cluster, space: str
) -> None:
    work = on(ON_N1, sweep(space, 2, GPUS // 2))
    for pod in work:
        pod["metadata"]["annotations"] = {"reprieve.dev/notice": "60s"}
    cluster.apply(*work)
    workers = followed(cluster, space, 2)
    group, *pods = gang(space, 1, GPUS)
    cluster.apply(group, *on(ON_N1, pods))

    def phases() -> list[str]:
        return [each.get("status", {}).get("phase", "") for each in records(cluster, space)]

    cluster.until("its victims have notice", lambda: phases() == ["Noticed"])
    with devices(cluster, "n1", "gpu0"):
        cluster.until("the plan is given up", lambda: phases() == ["Abandoned"])
        cluster.until(
            "the reason is stated",
            lambda: f"Insufficient {GPU}" in explained(cluster, space, "podgroup/train"),
        )
        assert evicted(cluster, space) == []
        assert set(running(cluster, space, "app=sweep")) == workers.keys()
    followed(cluster, space, 1, "gang=train")
    assert sorted(evicted(cluster, space)) == sorted(workers)
    for worker in workers.values():
        assert worker.said() == ["works", "TERM", "saved"]
