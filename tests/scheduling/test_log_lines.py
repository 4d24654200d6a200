"""Log lines of the plane name objects as people do: by namespace and name, never by a uid alone."""

from __future__ import annotations

import logging
import re

import pytest

from reprieve.telemetry.log import DETAIL
from tests.kube.fakes import FakeAnswer, refusal
from tests.scheduling.memory import Memory, Target, memory
from tests.scheduling.site import group, pod
from tests.scheduling.test_just_started import SECTION, saying

PLANE = "reprieve.scheduling"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name.startswith(PLANE)]


def hold(cluster: Memory, caplog: pytest.LogCaptureFixture) -> None:
    """No line has a pod's uid, which is more than its name here."""
    uids = {found["metadata"]["uid"] for found in cluster.pods.values()}
    found = [line for line in lines(caplog) if uids & {*re.findall(r"[\w-]+", line)}]
    assert not found, found


async def test_a_plan_is_logged_with_its_victims_and_for_whom(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger=PLANE):
        async with memory() as cluster:
            cluster.nodes([4])
            for name in ("low-0", "low-1"):
                cluster.running(pod(name, 2, priority="low"), "node-0")
            cluster.create(pod("high", 4, priority="high"))
            cluster.start()
            await cluster.until(lambda: len(cluster.victims()) == 2)
            await cluster.until(lambda: any("proof" in line for line in lines(caplog)))
            hold(cluster, caplog)
    (said,) = [line for line in lines(caplog) if "proof" in line]
    assert re.fullmatch(
        r"plan \w+ evicts Pod team/low-[01] \(lower priority\), "
        r"Pod team/low-[01] \(lower priority\) for Pod team/high, proof Placement",
        said,
    ), said


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (("delete", "pods"), "preemption for team/high"),
        (("post", "preemptions"), "the plan for team/high cannot be recorded"),
    ],
)
async def test_what_is_refused_is_logged_for_a_pod_by_its_name(
    refused: tuple[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(verb: str, where: Target) -> FakeAnswer | None:
        if (verb, where.kind.partition(".")[0]) == refused:
            return refusal(403, "Forbidden", "a policy forbids it")
        return None

    with caplog.at_level(logging.INFO, logger=PLANE):
        async with memory() as cluster:
            cluster.nodes([4])
            cluster.running(pod("low", 4, priority="low"), "node-0")
            cluster.api.before = answer
            cluster.create(pod("high", 4, priority="high"))
            cluster.start()
            await cluster.until(lambda: any(said in line for line in lines(caplog)))
            hold(cluster, caplog)


@pytest.mark.parametrize("grouped", [False, True], ids=["pod", "group"])
async def test_who_waits_for_protected_work_is_logged_by_its_name(
    grouped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(DETAIL, logger=PLANE):
        async with memory() as cluster:
            cluster.nodes([4])
            cluster.running(saying(pod("low", 4, priority="low"), "10m"), "node-0")
            if grouped:
                cluster.create(group("high", min_count=1, priority="high"))
            cluster.create(pod("high-0", 4, group="high" if grouped else "", priority="high"))
            cluster.start(section=SECTION)
            await cluster.until(lambda: any("minimum runtime" in line for line in lines(caplog)))
            hold(cluster, caplog)
    whom = "team/high" if grouped else "team/high-0"
    (line, *_) = [line for line in lines(caplog) if "minimum runtime" in line]
    assert line.startswith(f"{whom}: 1 pod of lower priority within the minimum runtime"), line


async def test_a_dry_run_logs_the_same_plan(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger=PLANE):
        async with memory() as cluster:
            cluster.nodes([4])
            cluster.running(pod("low", 4, priority="low"), "node-0")
            cluster.create(pod("high", 4, priority="high"))
            cluster.start(dry_run=True)
            await cluster.until(lambda: any("proof" in line for line in lines(caplog)))
            hold(cluster, caplog)
    (said,) = [line for line in lines(caplog) if "proof" in line]
    assert said.startswith("dry run: plan ")
    assert said.endswith(" evicts Pod team/low (lower priority) for Pod team/high, proof Placement")


async def test_kinds_that_the_server_does_not_have_are_named_once_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger=PLANE):
        async with memory() as cluster:
            cluster.api.absent = frozenset(
                f"{plural}.resource.k8s.io" for plural in ("resourceclaims", "resourceslices")
            )
            cluster.nodes([4])
            cluster.start()
            await cluster.until(lambda: any("does not serve" in line for line in lines(caplog)))
            cluster.create(pod("one", 1, priority="low"))
            await cluster.until(lambda: cluster.pods["one"]["spec"].get("nodeName") is not None)
    assert [line for line in lines(caplog) if "serve" in line] == [
        (
            "the API server does not serve ResourceClaim (resource.k8s.io/v1), "
            "ResourceSlice (resource.k8s.io/v1): none is counted until it does"
        )
    ]
