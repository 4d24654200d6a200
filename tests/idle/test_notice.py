"""Idle work that requests notice: told over HTTP, kept, pardoned, evicted.

The whole operator runs with the idle plane alone; time is virtual. `victim` holds all GPUs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kubelocal.cluster import Stage, Write
from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant, parse_instant
from reprieve.engine.harm_budgets.sums import Amount
from reprieve.records.harm_sums import HARM_LABEL, part_rows
from reprieve.scenarios.embedded import OPERATOR_USER
from reprieve.scenarios.model import NodeSpec
from tests.idle.queues import bound, limited
from tests.idle.site import NAMESPACE, Object, Operator, Site, container, job, open_site
from tests.virtual_time import LoopClock

CONFIG = "gpuPreemption: {notice: {max: 10m, keep: 5m}}\n"
FLAGS = ("--notice-port", "0", "--controllers", "idle")
NOTICES = "preemptionnotices.reprieve.dev"
VICTIM, DEMAND = "Job/victim", "Job/demand"


class Users:
    """Who sits before the victim, as far as they speak HTTP."""

    def __init__(self, site: Site, operator: Operator, session: aiohttp.ClientSession) -> None:
        self.site = site
        self.clock = LoopClock()
        self._operator = operator
        self._session = session

    async def restarted(self) -> None:
        """Another process takes over."""
        await self._operator.stop()
        self._operator = await self.site.run(None, *FLAGS, config=CONFIG)

    async def asked(self) -> tuple[int, Any]:
        """Return status and notice of a poll of the victim's pod."""
        return await self._sent("GET", "?wait=0")

    async def said(self, id: str, state: str) -> tuple[int, Any]:
        """Return status and answer to a word about a notice."""
        return await self._sent("POST", f"/{id}", {"state": state, "message": "by hand"})

    async def _sent(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        (pod,) = await self.pods("victim")
        account, uid = f"system:serviceaccount:{NAMESPACE}:default", pod["metadata"]["uid"]
        token = self.site.cluster.token(account, ("reprieve.dev",), pod_uid=uid)
        lines = self._operator.said("notice server listens on port")
        port = re.search(r"on port (\d+)", lines[-1])
        assert port is not None
        url, headers = f"http://127.0.0.1:{port[1]}/v1/notice", {"Authorization": f"Bearer {token}"}
        async with self._session.request(method, url + path, headers=headers, json=body) as answer:
            return answer.status, await answer.json() if answer.status == 200 else ""

    async def pods(self, job: str) -> list[Object]:
        found = await self.site.all("pods", NAMESPACE)
        label = "batch.kubernetes.io/job-name"
        return [each for each in found if (each["metadata"].get("labels") or {}).get(label) == job]

    async def told(self) -> Object:
        """Return the record once the victim is told."""

        async def noticed() -> Object | None:
            found = await self.site.records()
            last = found[-1] if found else {"status": {}}
            return last if last["status"].get("phase") == "Noticed" else None

        found = await self.site.until(noticed)
        assert found is not None
        return found

    async def ledger(self) -> list[Amount]:
        """Return the rows of the stored ledger of harm."""
        found = await self.site.all("configmaps")
        parts = [each for each in found if HARM_LABEL in each["metadata"].get("labels", {})]
        return [row for part in parts for row in part_rows(part)[0].values()]

    async def until_ended(self, phase: str) -> None:
        async def ended() -> bool:
            return all(each["status"]["phase"] == phase for each in await self.site.records())

        await self.site.until(ended)

    async def until_shown(self, state: str) -> Object:
        """Return the PreemptionNotice once it says so."""

        async def shown() -> Object | None:
            found = await self.site.all(NOTICES, NAMESPACE)
            return found[-1] if found and found[-1]["status"]["state"] == state else None

        found = await self.site.until(shown)
        assert found is not None
        return found

    async def pass_time(self, nanoseconds: int) -> None:
        await self.clock.sleep(nanoseconds)


@asynccontextmanager
async def idle(
    folder: Path, notice: str = "1m", config: str = CONFIG, ran: int = 0
) -> AsyncIterator[Users]:
    """The victim is idle, and the demand waits for its GPUs, `ran` after it began."""
    nodes = [NodeSpec("gpu-0", {"amd.com/gpu": "4"})]
    async with open_site(folder, nodes) as site, aiohttp.ClientSession() as session:
        asks = {"enabled": "true", "reprieve.dev/notice": notice}
        await site.create(job("victim", container(gpu=4), **asks))
        site.busy(DEMAND, 90)
        operator = await site.run(None, *FLAGS, config=config)
        await site.until_phase(VICTIM, "Idle")
        if ran:
            began = {"startTime": format_instant(Nanos(LoopClock().wall() - ran))}
            (pod,) = await site.all("pods", NAMESPACE)
            name = pod["metadata"]["name"]
            await site.patch("pods", name, {"status": began}, subresource="status")
        await site.create(job("demand", container(gpu=4), enabled="true"))
        yield Users(site, operator, session)


def deadline_of(record: Object) -> Nanos:
    (deadline,) = {victim["notice"]["deadline"] for victim in record["spec"]["victims"]}
    return parse_instant(deadline)


@pytest.mark.thorough
async def test_idle_work_that_stays_silent_goes_at_its_deadline(tmp_path: Path) -> None:
    async with idle(tmp_path) as users:
        start = users.clock.wall()
        deadline = deadline_of(await users.told())
        assert MINUTE <= deadline - start <= MINUTE + 5 * SECOND

        notice = await users.until_shown("Noticed")
        assert notice["spec"]["subject"]["name"] == "victim"
        assert notice["spec"]["preemptor"].startswith("Job/demand")
        assert parse_instant(notice["spec"]["deadline"]) == deadline
        assert (notice["status"]["speakers"], notice["status"].get("answered", 0)) == (1, 0)
        await users.pass_time(deadline - users.clock.wall() - 1)
        assert await users.site.phase(VICTIM) == "Idle"
        assert not users.site.evictions()
        await users.site.until_phase(VICTIM, "Preempted")

        assert users.clock.wall() <= deadline + 10 * SECOND
        await users.site.until_phase(DEMAND, "Active")
        await users.until_ended("Completed")
        await users.until_shown("Released")
        (told,) = await users.site.events(VICTIM, "NoticeUnheard")
        assert "did not answer until the deadline" in told
        (became,) = await users.site.all("disruptions.reprieve.dev", NAMESPACE)
        assert became["metadata"]["name"] == notice["metadata"]["name"]
        await users.pass_time(12 * MINUTE)
        assert await users.site.all(NOTICES, NAMESPACE) == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("of_class", "of_queue", "seconds"),
    [("20s", None, 20), ("40s", "30s", 30), (None, "0s", 0)],
    ids=["class", "least of both", "none"],
)
async def test_the_class_and_the_queue_of_idle_work_bound_its_notice(
    tmp_path: Path, of_class: str | None, of_queue: str | None, seconds: int
) -> None:
    nodes = [NodeSpec("gpu-0", {"amd.com/gpu": "4"})]
    asks = {"enabled": "true", "reprieve.dev/notice": "10m"}
    async with open_site(tmp_path, nodes) as site:
        await limited(site, "reprieve.dev/notice-max", of_class=of_class, of_queue=of_queue)
        await site.create(bound(job("victim", container(gpu=4), **asks)))
        site.busy(DEMAND, 90)
        await site.run(None, *FLAGS, config=CONFIG)
        await site.until_phase(VICTIM, "Idle")
        await site.create(job("demand", container(gpu=4), enabled="true"))
        await site.until_phase(VICTIM, "Preempted")

        (record,) = await site.records()
        (victim,) = record["spec"]["victims"]
        if not seconds:
            assert "notice" not in victim
            return
        given = parse_instant(victim["notice"]["deadline"]) - parse_instant(
            record["spec"]["decidedAt"]
        )
        assert seconds * SECOND <= given <= (seconds + 5) * SECOND


async def test_idle_work_that_has_saved_goes_at_once(tmp_path: Path) -> None:
    async with idle(tmp_path, "10m", ran=HOUR) as users:
        deadline = deadline_of(await users.told())
        status, notice = await users.asked()
        assert (status, parse_instant(notice["deadline"])) == (200, deadline)

        saved = users.clock.wall()
        assert (await users.said(notice["id"], "saved"))[1]["state"] == "Saved"
        await users.site.until_phase(VICTIM, "Preempted")
        gone = users.clock.wall()
        assert gone < deadline
        shown = await users.until_shown("Released")
        assert (shown["status"]["answered"], shown["status"]["message"]) == (1, "by hand")
        assert parse_instant(shown["status"]["savedAt"]) < deadline
        assert not await users.site.events(VICTIM, "NoticeUnheard")

        (row,) = await users.site.until(users.ledger)
        # What it computed between its save and its eviction is lost.
        # Its start is a whole second, which may be the next one.
        assert row.saved_device_seconds + row.lost_device_seconds >= 4 * 3_599
        assert row.lost_device_seconds <= 4 * ((gone - saved) // SECOND + 1)


@pytest.mark.thorough
async def test_work_that_its_user_keeps_is_spared_once(tmp_path: Path) -> None:
    async with idle(tmp_path) as users:
        await users.told()
        _, notice = await users.asked()
        kept = users.clock.wall()

        assert (await users.said(notice["id"], "keep"))[0] == 200
        await users.until_ended("Abandoned")
        assert await users.asked() == (204, "")
        (record,) = await users.site.records()
        assert record["status"]["reason"] == "the users of Job/victim keep it"
        await users.until_shown("Pardoned")
        await users.pass_time(5 * MINUTE - 2 * SECOND - (users.clock.wall() - kept))
        assert len(await users.site.records()) == 1

        again = deadline_of(await users.told())
        assert again - kept >= 6 * MINUTE
        _, notice = await users.asked()
        assert (await users.said(notice["id"], "keep"))[0] == 200
        await users.site.until_phase(VICTIM, "Preempted")
        assert users.clock.wall() >= again


async def test_nobody_keeps_what_may_not_be_kept(tmp_path: Path) -> None:
    async with idle(tmp_path, config="gpuPreemption: {notice: {max: 10m}}\n") as users:
        await users.told()
        _, notice = await users.asked()

        assert await users.said(notice["id"], "keep") == (400, "")
        assert (await users.asked())[1]["state"] == "Noticed"


async def test_work_that_begins_again_is_pardoned(tmp_path: Path) -> None:
    async with idle(tmp_path, "2m") as users:
        await users.told()

        users.site.busy(VICTIM, 90)
        await users.site.until_phase(VICTIM, "Active")
        await users.until_ended("Abandoned")

        await users.pass_time(3 * MINUTE)
        assert not users.site.evictions()


async def test_idle_work_is_pardoned_when_the_demand_goes_away(tmp_path: Path) -> None:
    async with idle(tmp_path, "2m") as users:
        await users.told()

        await users.site.delete("jobs.batch", "demand")
        await users.until_ended("Abandoned")

        await users.pass_time(3 * MINUTE)
        assert not [each for each in users.site.evictions() if "victim" in each]


@pytest.mark.thorough
@pytest.mark.parametrize("silent", [True, False])
async def test_wherever_a_process_dies_idle_work_goes_once_saved_or_at_its_deadline(
    tmp_path: Path, silent: bool
) -> None:
    number, died = 0, True
    while died:
        number += 1
        died = await _dies_at(tmp_path / str(number), number, silent=silent)
    assert number > 6


async def _dies_at(folder: Path, number: int, *, silent: bool) -> bool:
    """Play one that stays silent or saves after 30 s, with a death after a write."""
    await asyncio.to_thread(folder.mkdir)
    async with idle(folder) as users:
        left, dead = number, asyncio.Event()
        counted = ("/preemptions", "/gpuworkloads/job-victim", "/jobs/victim")

        async def killed(write: Write, stage: Stage) -> None:
            nonlocal left
            assert seen is not None
            await seen(write, stage)
            ours = write.user == OPERATOR_USER and any(part in write.path for part in counted)
            if stage is Stage.STORED and ours and not dead.is_set():
                left -= 1
                if not left:
                    dead.set()

        seen = users.site.cluster.on_write
        users.site.cluster.on_write = killed
        told, restarted, saved = set[str](), False, False
        said, start = users.clock.wall(), users.clock.wall()
        while not [each for each in users.site.evictions() if "victim" in each]:
            if dead.is_set() and not restarted:
                restarted = True
                await users.restarted()
            for record in await users.site.records():
                told |= {victim["notice"]["deadline"] for victim in record["spec"]["victims"]}
            assert len(told) <= 1, f"write {number}: told anew"
            if not silent and not saved and users.clock.wall() - start >= 30 * SECOND:
                status, notice = await users.asked()
                if status == 200:
                    await users.said(notice["id"], "saved")
                    said, saved = users.clock.wall(), True
            await users.pass_time(SECOND // 4)
            assert users.clock.wall() - start < 3 * MINUTE, f"write {number}: it never goes"
        now, deadline = users.clock.wall(), parse_instant(told.pop())
        assert now >= (deadline - SECOND if silent else min(said, deadline)), f"write {number}"
        assert now <= deadline + 10 * SECOND, f"write {number}: too late"
        return dead.is_set()


async def test_a_wish_that_cannot_be_read_is_told_when_its_work_is_evicted(tmp_path: Path) -> None:
    async with idle(tmp_path, "soon") as users:
        await users.site.until_phase(VICTIM, "Preempted")
        (said,) = await users.site.events(VICTIM, "NoticeIgnored")
        assert "accepted: durations from 10s to 1h" in said
