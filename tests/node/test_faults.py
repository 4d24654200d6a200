"""Machines, kubelets and containers that fail while Reprieve evicts: one after the other.

Whom the operator evicted is counted from the API server's audit log.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from tests.node.cluster import GPU, GPUS, Cluster
from tests.node.release import NAMESPACE, Object, Release
from tests.node.unknown import unknown_pod
from tests.node.work import (
    ON_N1,
    ON_N2,
    evicted,
    evicting,
    followed,
    gang,
    member,
    records,
    refused,
    running,
    sweep,
)

pytestmark = [pytest.mark.slow, pytest.mark.node]

# Together they need more than the container may have, and each less than the operator has.
FILL_MEMORY = """
import os, time
for _ in range(12):
    if os.fork() == 0:
        held = b"x" * (40 << 20)
        time.sleep(60)
        os._exit(0)
time.sleep(60)
"""
# Read by any Python that starts in the container: on a signal it works without end.
HOOK = """
import signal
def spin(*_):
    while True:
        pass
signal.signal(signal.SIGWINCH, spin)
"""
WRITE_HOOK = f"""
import pathlib
folder = pathlib.Path("/tmp/hook")
folder.mkdir()
(folder / "sitecustomize.py").write_text({HOOK!r})
"""
SEND = (
    "import os, signal; children = open('/proc/1/task/1/children').read().split(); "
    "os.kill(int(children[0]), signal.{})"
)


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Release:
    """The release, on the node that does not fail."""
    found = Release(cluster)
    hook: Object = {"extraEnv": [{"name": "PYTHONPATH", "value": "/tmp/hook"}]}
    found.helm("install", "--create-namespace", "--wait", "--timeout", "5m", **ON_N1, **hook)
    return found


def ended(release: Release) -> Any:
    """Return how the operator's container ended last, once it is ready again."""
    (status,) = release.pod()["status"]["containerStatuses"]
    return status["ready"] and status["lastState"].get("terminated")


@pytest.mark.usefixtures("classes", "release")
def test_for_a_pod_of_a_gang_that_its_kubelet_refuses_nobody_else_is_evicted(
    cluster: Cluster, space: str
) -> None:
    group, *_ = gang(space, 2, GPUS // 2)
    members = []
    for where in (ON_N1, ON_N2):
        made = member(space, GPUS // 2, where)
        (container,) = made["spec"]["template"]["spec"]["containers"]
        container["resources"] = {"limits": {GPU: GPUS // 2}, "requests": {"cpu": "400m"}}
        members.append(made)
    with unknown_pod(cluster, "n1", {"cpu": "1700m"}):
        cluster.apply(*sweep(space, 4, GPUS // 2))
        workers = followed(cluster, space, 4)
        cluster.apply(group, *members)

        cluster.until(
            "the kubelet refuses the pod, and the one in its place",
            lambda: len(refused(cluster, space, "train-n1", "OutOfcpu")) > 1,
        )
        victims = evicting(cluster, space, 2)
    followed(cluster, space, 1, "job-name=train-n1")
    followed(cluster, space, 1, "job-name=train-n2")
    assert len(victims) == 2 and sorted(evicted(cluster, space)) == victims
    assert set(running(cluster, space, "app=sweep")) == workers.keys() - {*victims}
    for name in victims:
        assert workers[name].said() == ["works", "TERM", "saved"]


@pytest.mark.usefixtures("classes", "release")
def test_a_victim_that_is_killed_for_its_memory_while_it_saves_holds_nobody_up(
    cluster: Cluster, space: str
) -> None:
    pods = sweep(space, 2, GPUS)
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        command, flag, program = container["command"]
        container["command"] = [command, flag, program.replace("sleep 3", "busybox tail /dev/zero")]
        container["resources"]["limits"]["memory"] = "64Mi"
    cluster.apply(*pods)
    workers = followed(cluster, space, 2)
    cluster.apply(*gang(space, 2, GPUS))
    followed(cluster, space, 2, "gang=train")
    assert sorted(evicted(cluster, space)) == sorted(workers)
    # The program that saves is killed, and the shell above it goes on.
    assert [each.said()[:2] for each in workers.values()] == [["works", "TERM"]] * 2


@pytest.mark.usefixtures("classes")
def test_an_operator_that_is_killed_for_its_memory_finishes_its_plan(
    release: Release, space: str
) -> None:
    cluster = release.cluster
    cluster.apply(*sweep(space, 4, GPUS // 2, saves=30, grace=90))
    workers = followed(cluster, space, 4)
    cluster.apply(*gang(space, 2, GPUS // 2))
    victims = evicting(cluster, space, 2)
    with contextlib.suppress(RuntimeError):  # it ends with the container
        cluster.kubectl(
            *("exec", "deploy/reprieve", "-n", NAMESPACE, "--", "python", "-c", FILL_MEMORY)
        )
    end = cluster.until("the container is started again", lambda: ended(release))
    assert (end["exitCode"], end["reason"]) == (137, "OOMKilled")
    followed(cluster, space, 2, "gang=train")
    assert sorted(evicted(cluster, space)) == victims
    assert set(running(cluster, space, "app=sweep")) == workers.keys() - {*victims}
    assert len(records(cluster, space)) == 1


def test_an_operator_that_hangs_is_ended_and_leads_again(release: Release) -> None:
    command = ("exec", "deploy/reprieve", "-n", NAMESPACE, "--", "python", "-c")
    release.cluster.kubectl(*command, WRITE_HOOK)
    before = ended(release)
    with contextlib.suppress(RuntimeError):  # what kills it may end with the container, too
        release.cluster.kubectl(*command, SEND.format("SIGKILL"))
    release.cluster.until("it has the hook", lambda: ended(release) not in (False, None, before))
    holder = release.cluster.until("it leads", release.holder)
    release.cluster.kubectl(*command, SEND.format("SIGWINCH"))

    def hung() -> Any:
        end = ended(release)
        return end and end["exitCode"] == 12

    release.cluster.until("it is ended and started again", hung)
    release.cluster.until("it leads again", lambda: release.holder() not in ("", holder))
    assert "stands by" not in release.log()
    said = release.log("--previous")
    assert "the event loop has not answered for" in said and " in spin" in said


@pytest.mark.usefixtures("classes")
def test_when_a_node_stops_with_a_plan_open_its_demand_runs_on_another(
    release: Release, space: str
) -> None:
    cluster = release.cluster
    middle = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 200}
    cluster.apply({**middle, "metadata": {"name": "middle"}})
    work = sweep(space, 4, GPUS // 2, saves=100, grace=150)
    for pod, where in zip(work, (ON_N1, ON_N1, ON_N2, ON_N2), strict=True):
        pod["spec"] |= where
    for pod in work[:2]:
        pod["spec"] |= {"priorityClassName": "middle"}
        (container,) = pod["spec"]["containers"]
        container["command"][-1] = container["command"][-1].replace("sleep 100", "sleep 3")
    cluster.apply(*work)
    workers = followed(cluster, space, 4)
    cluster.apply(*gang(space, 1, GPUS // 2))
    (first,) = evicting(cluster, space, 1)
    assert first in ("sweep-2", "sweep-3")
    cluster.end_node("n2")
    try:
        followed(cluster, space, 1, "gang=train")
    finally:
        cluster.start_node("n2")
    first_again, second = evicting(cluster, space, 2)
    assert {first_again, second} - {first} < {"sweep-0", "sweep-1"}
    (bystander,) = {"sweep-0", "sweep-1"} - {first_again, second}
    assert bystander in running(cluster, space) and len(workers) == 4
