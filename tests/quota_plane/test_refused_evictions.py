"""Whose eviction is refused keeps nobody waiting: it is passed by, and reported.

A webhook of somebody else refuses the mark in the status of one Workload, or whatever would stop
its job. Its owner patches it all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reprieve.kube.errors import ApiError
from reprieve.planes.quota.context import QuotaOptions
from reprieve.planes.quota.webhooks.reviews import Asked, Hook, Verdict
from reprieve.scenarios.embedded import OPERATOR_USER
from tests.kube.failing_writes import POLICY, WEBHOOK, FailingWrites
from tests.kueue.webhooks import webhooks
from tests.quota_plane.site import JOBS, NAMESPACE, WORKLOADS, Site, job, site
from tests.quota_plane.test_jobs import LOWER, base

_OPTIONS = QuotaOptions(loop_limit=3)


class Refuses:
    """Refuses what the operator writes to evict the first job that it is asked about."""

    def __init__(
        self, resource: str, group: str, version: str, evicts: Callable[[Any], bool]
    ) -> None:
        self.name, self.tries, self.open = "", 0, False
        self._evicts = evicts
        self.hook = Hook(
            "refuses.example.com",
            "/refuses",
            group,
            version,
            (resource,),
            self._judge,
            operations=("UPDATE",),
        )

    def _judge(self, asked: Asked) -> Verdict:
        name = asked.obj["metadata"]["name"].removeprefix("job-").partition("-")[0]
        if self.open or asked.user != OPERATOR_USER or not self._evicts(asked.obj):
            return Verdict()
        self.name = self.name or name
        if name != self.name:
            return Verdict()
        self.tries += 1
        return Verdict(errors=("the webhook says no",))


def _marks(workload: Any) -> bool:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Evicted", "True") for each in conditions)


def _mark() -> Refuses:
    return Refuses("workloads/status", "kueue.x-k8s.io", "v1beta2", _marks)


def _stop() -> Refuses:
    return Refuses("jobs", "batch", "v1", lambda obj: bool(obj["spec"].get("suspend")))


async def _two_victims(cluster: Site) -> None:
    for name in ("one", "two"):
        await cluster.create(job(name, priority="low", pods=2))
    await cluster.until_admitted("one", "two")


@pytest.mark.parametrize("refuses", [_mark, _stop])
async def test_whose_eviction_is_refused_is_passed_by_and_an_equal_one_goes(
    tmp_path: Path, refuses: Callable[[], Refuses]
) -> None:
    webhook = refuses()
    async with site(tmp_path, *base(4, preemption=LOWER), options=_OPTIONS) as cluster:
        await _two_victims(cluster)
        async with webhooks(cluster.client, hooks=(webhook.hook,)):
            await cluster.create(job("high", priority="high", pods=2))
            (kept,) = await _high_runs(cluster, "one", "two")
            assert kept == webhook.name
            told = {name for _, name, _, reason, _ in await cluster.events() if reason == REFUSED}
            assert {name.split("-")[1] for name in told} == {kept, "high"}


_MARK, _STOP = r"/workloads/job-(one|two)-\w+/status$", r"/jobs/(one|two)$"


def _is_evicting(method: str, body: Any) -> bool:
    return _marks(body) or bool((body.get("spec") or {}).get("suspend"))


@pytest.mark.parametrize(
    ("code", "before", "path"),
    [
        (429, WEBHOOK, _MARK),
        (503, "", _STOP),
        (401, POLICY, _MARK),
        (413, POLICY, _STOP),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (503, WEBHOOK, _MARK),
                (404, WEBHOOK, _MARK),
                (429, WEBHOOK, _STOP),
                (404, WEBHOOK, _STOP),
                (429, "", _MARK),
                (503, "", _MARK),
                (0, "", _MARK),
                (429, "", _STOP),
                (0, "", _STOP),
                (403, POLICY, _MARK),
                (413, POLICY, _MARK),
                (422, POLICY, _MARK),
                (401, POLICY, _STOP),
                (403, POLICY, _STOP),
                (422, POLICY, _STOP),
            )
        ),
    ],
)
async def test_whose_eviction_fails_in_whatever_way_is_passed_by_and_an_equal_one_goes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, before: str, path: str
) -> None:
    async with site(tmp_path, *base(4, preemption=LOWER), options=_OPTIONS) as cluster:
        await _two_victims(cluster)
        failing = FailingWrites(monkeypatch, path, _is_evicting, code, before)
        await cluster.create(job("high", priority="high", pods=2))
        await cluster.until("it runs", lambda: _runs(cluster, "high"), 200.0)
        assert {"one", "two"} & await cluster.running() == {failing.name}


async def test_a_server_that_answers_so_to_everybody_makes_no_workload_immune(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with site(tmp_path, *base(4, preemption=LOWER), options=_OPTIONS) as cluster:
        await _two_victims(cluster)
        failing = FailingWrites(monkeypatch, _MARK, _is_evicting, 429)
        await cluster.create(job("high", priority="high", pods=2))

        async def begun() -> bool:
            return failing.tries > 0

        await cluster.until("an eviction was tried", begun)
        failing.everybody = True
        await asyncio.sleep(180)
        failing.end()
        await cluster.until("it runs", lambda: _runs(cluster, "high"))
        assert REFUSED not in {reason for _, _, _, reason, _ in await cluster.events()}


@pytest.mark.thorough
@pytest.mark.parametrize("refuses", [_mark, _stop])
async def test_where_nobody_else_is_the_refused_one_is_tried_again_ever_more_seldom(
    tmp_path: Path, refuses: Callable[[], Refuses]
) -> None:
    webhook = refuses()
    async with site(tmp_path, *base(2, preemption=LOWER), options=_OPTIONS) as cluster:
        await cluster.create(job("one", priority="low", pods=2))
        await cluster.until_admitted("one")
        async with webhooks(cluster.client, hooks=(webhook.hook,)):
            await cluster.create(job("high", priority="high", pods=2))

            async def said() -> bool:
                message = (await cluster.conditions("high")).get("QuotaReserved", ("", "", ""))[2]
                return "whose eviction was refused" in message

            await cluster.until("it is told", said)
            records = len(await cluster.intents())
            await asyncio.sleep(180)
            assert len(await cluster.intents()) - records <= 1
            assert webhook.tries >= 4
            webhook.open = True
            await asyncio.sleep(240)
            await cluster.until_admitted("high")


@pytest.mark.thorough
async def test_a_tenant_who_patches_job_and_workload_makes_way_all_the_same(tmp_path: Path) -> None:
    async with site(tmp_path, *base(2, preemption=LOWER), options=_OPTIONS) as cluster:
        await cluster.create(job("one", priority="low", pods=2))
        await cluster.until_admitted("one")
        (workload,) = (await cluster.workloads()).values()
        adversary = asyncio.create_task(_patch(cluster, workload["metadata"]["name"]))
        await cluster.create(job("high", priority="high", pods=2))
        await cluster.until("it has been preempted", lambda: _runs(cluster, "high"), 60.0)
        adversary.cancel()


REFUSED = "EvictionRefused"


async def _runs(cluster: Site, name: str) -> bool:
    return name in await cluster.running()


async def _high_runs(cluster: Site, *others: str) -> set[str]:
    """Wait until the preemptor runs, and return who of the others still does."""
    await cluster.until("it runs", lambda: _runs(cluster, "high"))
    return set(others) & await cluster.running()


async def _patch(cluster: Site, workload: str) -> None:
    """Patch a job and its Workload 50 times a second."""
    turn = 0
    while True:
        turn += 1
        change = {"metadata": {"annotations": {"turn": str(turn)}}}
        for resource, name in ((JOBS, "one"), (WORKLOADS, workload)):
            try:
                await cluster.client.patch(resource, NAMESPACE, name, change, dict)
            except ApiError:
                continue
        await asyncio.sleep(0.02)
