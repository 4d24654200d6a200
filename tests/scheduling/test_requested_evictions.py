"""Evictions that others request through the Eviction API: the pod is told, saves, and then goes.

One node holds two pods that name our responder; a controller of the embedded cluster plays the
API's own. The deadline that an Eviction says is the one that the pod is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kubelocal.cluster import Stage, Write
from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import parse_instant
from reprieve.kube.errors import NotFound
from reprieve.kube.resource import EVICTIONS, PODS, PREEMPTION_NOTICES, Resource
from tests.operator_in_process import OperatorInProcess
from tests.scheduling.site import NAMESPACE, Object, Site, node, pod, site
from tests.virtual_time import LoopClock

_REQUESTS = Resource("lifecycle.k8s.io", "v1alpha1", "evictionrequests", "EvictionRequest")
_RESPONDER = "reprieve.dev/notice"
_SERVED = {"EvictionRequestAPI": True}


def asking(name: str, notice: str = "2m", cpu: int = 2, **annotations: str) -> Object:
    """Return a pod that names our responder, and requests notice where `notice` says so."""
    each = pod(
        name,
        cpu,
        priority="low",
        evictionResponders=[{"name": _RESPONDER, "priority": 20_000}],
        terminationGracePeriodSeconds=1,
    )
    asked = {"reprieve.dev/notice": notice} if notice else {}
    each["metadata"]["annotations"] = asked | annotations
    return each


class Drain:
    """Who requests evictions, and the pods, as far as they speak HTTP."""

    def __init__(self, cluster: Site, session: aiohttp.ClientSession) -> None:
        self.cluster, self._session = cluster, session
        self._tokens: dict[str, str] = {}

    async def request(self, name: str, intent: str = "Eviction", requester: str = "a") -> None:
        metadata = {"name": f"{requester}-{name}", "namespace": NAMESPACE}
        found = (await self.cluster.pods())[name]["metadata"]
        spec = {
            "target": {"pod": {"name": name, "uid": found["uid"]}},
            "requester": f"acme.io/{requester}",
            "intent": intent,
        }
        await self.cluster.client.create(_REQUESTS, {"metadata": metadata, "spec": spec}, dict)

    async def withdraw(self, name: str, requester: str = "a") -> None:
        patch = {"spec": {"intent": "Withdrawn"}}
        names = NAMESPACE, f"{requester}-{name}"
        await self.cluster.client.patch(_REQUESTS, *names, patch, dict)

    async def eviction(self, name: str) -> Object | None:
        page = await self.cluster.client.list(EVICTIONS, dict, namespace=NAMESPACE)
        found = [each for each in page.items if each["spec"]["target"]["pod"]["name"] == name]
        return found[0] if found else None

    async def said(self, name: str, word: str) -> str:
        """Return what our responder says of an eviction."""
        eviction = await self.eviction(name) or {}
        reports = (eviction.get("status") or {}).get("responders") or ()
        return next((each.get(word) or "" for each in reports if each["name"] == _RESPONDER), "")

    async def state(self, name: str) -> str:
        eviction = await self.eviction(name) or {}
        turns = (eviction.get("status") or {}).get("targetResponders") or ()
        return next((each["state"] for each in turns if each["name"] == _RESPONDER), "")

    async def until_promised(self, name: str) -> int:
        """Return the deadline that an Eviction says, as soon as it does."""
        await self.cluster.until(
            "it is promised", lambda: self.said(name, "expectedCompletionTime")
        )
        return parse_instant(await self.said(name, "expectedCompletionTime"))

    async def until_gone(self, *names: str) -> None:
        async def gone() -> bool:
            return not set(names) & set(await self.cluster.pods())

        await self.cluster.until(f"{names} are gone", gone)

    async def stays_until(self, instant: int, name: str) -> None:
        """Fail when the pod was deleted, or is being deleted, at any second before that instant."""
        for _ in range((instant - self.now()) // SECOND):
            metadata = (await self.cluster.pods())[name]["metadata"]
            assert "deletionTimestamp" not in metadata
            await asyncio.sleep(1)

    async def asked(self, uid: str) -> tuple[int, Any]:
        """Return status and notice of a poll of the pod with this uid."""
        return await self._sent("GET", "?wait=0", uid, None)

    async def saved(self, uid: str, id: str) -> int:
        return (await self._sent("POST", f"/{id}", uid, {"state": "saved"}))[0]

    async def uid(self, name: str) -> str:
        return str((await self.cluster.pods())[name]["metadata"]["uid"])

    async def _sent(self, method: str, path: str, uid: str, body: Any) -> tuple[int, Any]:
        account = f"system:serviceaccount:{NAMESPACE}:default"
        if uid not in self._tokens:
            made = self.cluster.embedded.cluster.token(account, ("reprieve.dev",), pod_uid=uid)
            self._tokens[uid] = made
        token = self._tokens[uid]
        lines = [each for each in self.cluster.lines if "notice server listens on port" in each]
        url = f"http://127.0.0.1:{lines[-1].rpartition(' ')[2]}/v1/notice{path}"
        headers = {"Authorization": f"Bearer {token}"}
        async with self._session.request(method, url, headers=headers, json=body) as answer:
            return answer.status, await answer.json() if answer.status == 200 else ""

    async def notice(self, name: str) -> Any:
        """Return the notice that a pod is told, None where it is told none."""
        status, found = await self.asked(await self.uid(name))
        assert status in (200, 204)
        return found if status == 200 else None

    async def until_pardoned(self, name: str) -> None:
        """Wait until the PreemptionNotice says so, and the pod is told nothing any more."""

        async def pardoned() -> bool:
            page = await self.cluster.client.list(PREEMPTION_NOTICES, dict, namespace=NAMESPACE)
            return any(
                each["spec"]["subject"]["name"] == name and each["status"]["state"] == "Pardoned"
                for each in page.items
            )

        await self.cluster.until(f"{name} is pardoned", pardoned)
        assert await self.notice(name) is None

    def step(self, nanoseconds: int) -> None:
        """Set the wall clock of the operator alone."""
        (operator,) = self.cluster.operators
        assert isinstance(operator, OperatorInProcess)
        clock = operator.clock
        assert isinstance(clock, LoopClock)
        clock.step(nanoseconds)

    def now(self) -> int:
        return self.cluster.embedded.cluster.api.clock.wall()


@asynccontextmanager
async def draining(
    folder: Path, *pods: Object, most: str = "10m", served: bool = True, config: str = ""
) -> AsyncIterator[Drain]:
    """The pods run, and an operator answers evictions that are requested."""
    (folder / "config.yaml").write_text(config or "scheduling: {}\n")
    gates = _SERVED if served else {}
    async with (
        site([node("node-0")], folder / "cluster", kubelet=True, feature_gates=gates) as cluster,
        aiohttp.ClientSession() as session,
    ):
        await cluster.classes()
        await cluster.create(*pods)
        await started(cluster, folder, most)
        await cluster.until_placed({each["metadata"]["name"] for each in pods})
        yield Drain(cluster, session)


async def started(cluster: Site, folder: Path, most: str = "10m") -> None:
    flags = ("--config", str(folder / "config.yaml"), "--notice-port", "0")
    cluster.lines.clear()
    await cluster.operator(*flags, "--eviction-notice", most)

    async def listens() -> bool:
        return any("notice server listens on port" in each for each in cluster.lines)

    await cluster.until("the operator answers pods", listens)


async def test_a_drained_pod_is_told_the_deadline_that_the_eviction_says(tmp_path: Path) -> None:
    async with draining(tmp_path, asking("a")) as drain:
        begun = drain.now()
        await drain.request("a")
        deadline = await drain.until_promised("a")
        assert 2 * MINUTE <= deadline - begun <= 2 * MINUTE + 5 * SECOND

        notice = await drain.notice("a")
        assert parse_instant(notice["deadline"]) == deadline
        assert notice["reason"] == "its eviction was requested"
        await drain.stays_until(deadline, "a")
        await drain.until_gone("a")
        assert await drain.said("a", "message") == "the deadline of the pod has passed"


async def test_a_drained_pod_that_has_saved_goes_at_once(tmp_path: Path) -> None:
    async with draining(tmp_path, asking("a"), asking("b")) as drain:
        await drain.request("a")
        deadline = await drain.until_promised("a")
        (told,) = (await drain.cluster.client.list(PREEMPTION_NOTICES, dict)).items
        assert told["spec"]["rule"] == "its eviction was requested by acme.io/a"
        assert told["spec"]["plane"] == "eviction"

        uid = await drain.uid("a")
        assert await drain.saved(uid, (await drain.notice("a"))["id"]) == 200
        await drain.until_gone("a")

        assert drain.now() < deadline - MINUTE
        assert await drain.said("a", "message") == "the pod has saved or ended"
        assert await drain.state("a") == "Completed"
        assert "b" in await drain.cluster.pods()


async def test_a_drained_pod_that_ends_by_itself_completes_the_eviction(tmp_path: Path) -> None:
    async with draining(tmp_path, asking("a", notice="5m")) as drain:
        await drain.request("a")
        deadline = await drain.until_promised("a")
        await drain.cluster.client.delete(PODS, NAMESPACE, "a", grace_seconds=0)

        async def evicted() -> bool:
            status = (await drain.eviction("a") or {}).get("status") or {}
            found = {each["type"]: each["status"] for each in status["conditions"]}
            return bool(found["TargetEvicted"] == "True")

        await drain.cluster.until("the target is evicted", evicted)
        assert drain.now() < deadline - MINUTE


async def test_an_eviction_that_is_withdrawn_pardons_its_pod(tmp_path: Path) -> None:
    async with draining(tmp_path, asking("a")) as drain:
        await drain.request("a")
        await drain.request("a", requester="b")
        deadline = await drain.until_promised("a")
        await drain.withdraw("a")
        await asyncio.sleep(10)
        assert await drain.notice("a") is not None, "the other one still wants it"
        await drain.withdraw("a", requester="b")
        await drain.until_pardoned("a")
        assert await drain.state("a") == "Canceled"
        await drain.stays_until(deadline + MINUTE, "a")


async def test_an_eviction_whose_requests_are_deleted_pardons_its_pod(tmp_path: Path) -> None:
    async with draining(tmp_path, asking("a")) as drain:
        await drain.request("a")
        await drain.until_promised("a")
        await drain.cluster.client.delete(_REQUESTS, NAMESPACE, "a-a")
        await drain.until_pardoned("a")
        assert await drain.eviction("a") is None
        await drain.request("a")
        again = await drain.until_promised("a")
        assert parse_instant((await drain.notice("a"))["deadline"]) == again


async def test_a_pod_without_notice_is_answered_for_at_once(tmp_path: Path) -> None:
    pods = [asking("a", notice="", cpu=1), asking("b", notice="5s", cpu=1)]
    async with draining(tmp_path, *pods) as drain:
        for name in ("a", "b"):
            await drain.request(name)
        await drain.until_gone("a", "b")
        for name in ("a", "b"):
            assert await drain.said(name, "message") == "the pod is given no notice"
            assert await drain.said(name, "expectedCompletionTime") == ""


async def test_no_drained_pod_is_told_longer_than_option_and_class_allow(tmp_path: Path) -> None:
    async with draining(tmp_path, asking("a", "1h"), asking("b", "1h"), most="5m") as drain:
        begun = drain.now()
        await drain.request("a")
        assert 5 * MINUTE <= await drain.until_promised("a") - begun <= 5 * MINUTE + 5 * SECOND

        kind = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False)
        limit = {"metadata": {"annotations": {"reprieve.dev/notice-max": "30s"}}}
        await drain.cluster.client.patch(kind, "", "low", limit, dict)
        begun = drain.now()
        await drain.request("b")
        assert 30 * SECOND <= await drain.until_promised("b") - begun <= 35 * SECOND


@pytest.mark.parametrize("step", [0, 24 * HOUR, -HOUR])
async def test_heartbeats_come_each_minute_while_a_pod_saves_whatever_the_clock_is_set_to(
    step: int, tmp_path: Path
) -> None:
    async with draining(tmp_path, asking("a", "5m30s")) as drain:
        beats = list[str]()

        async def count(write: Write, stage: Stage) -> None:
            if stage is Stage.STORED and "/evictions/" in write.path:
                beats.append(write.body.decode())

        drain.cluster.hook = count
        await drain.request("a")
        deadline = await drain.until_promised("a")
        await asyncio.sleep(70)
        drain.step(step)
        await drain.stays_until(deadline, "a")
        await drain.until_gone("a")
        assert drain.now() < deadline + 5 * SECOND
        assert len(beats) == 7, "the deadline, five heartbeats and the completion"
        promised = [each for each in beats if '"expectedCompletionTime":' in each]
        assert promised == beats[:1], "the deadline never changes"


async def test_a_new_leader_takes_the_deadline_over_and_grants_none_anew(tmp_path: Path) -> None:
    async with draining(tmp_path, asking("a")) as drain:
        await drain.request("a")
        deadline = await drain.until_promised("a")
        uid, id = await drain.uid("a"), (await drain.notice("a"))["id"]
        await drain.cluster.stop()
        await drain.cluster.free_leases()
        await asyncio.sleep(30)
        await started(drain.cluster, tmp_path)

        async def told() -> bool:
            return any("is notified of its" in each for each in drain.cluster.lines)

        await drain.cluster.until("the pod is told again", told)
        notice = await drain.notice("a")
        assert (notice["id"], parse_instant(notice["deadline"])) == (id, deadline)
        assert parse_instant(await drain.said("a", "expectedCompletionTime")) == deadline
        assert await drain.saved(uid, id) == 200
        await drain.until_gone("a")
        assert drain.now() < deadline


async def test_a_deadline_that_passed_without_an_operator_is_completed_late(tmp_path: Path) -> None:
    async with draining(tmp_path, asking("a", "1m")) as drain:
        await drain.request("a")
        deadline = await drain.until_promised("a")
        await drain.cluster.stop()
        await drain.cluster.free_leases()
        await asyncio.sleep(120)
        assert "a" in await drain.cluster.pods()
        assert drain.now() > deadline
        await started(drain.cluster, tmp_path)
        await drain.until_gone("a")


async def test_a_pod_whose_eviction_was_completed_is_not_pardoned_by_the_next_leader(
    tmp_path: Path,
) -> None:
    """It saved and stops computing; until the next responder evicts it nothing else is true."""
    slow = asking("a")
    slow["spec"]["terminationGracePeriodSeconds"] = 600
    slow["metadata"]["finalizers"] = ["example.com/stays"]
    async with draining(tmp_path, slow) as drain:
        await drain.request("a")
        await drain.until_promised("a")
        uid, id = await drain.uid("a"), (await drain.notice("a"))["id"]
        assert await drain.saved(uid, id) == 200
        await drain.cluster.until("it is completed", lambda: drain.said("a", "completionTime"))
        await drain.cluster.stop()
        await drain.cluster.free_leases()
        await started(drain.cluster, tmp_path)
        await asyncio.sleep(30)
        status, notice = await drain.asked(uid)
        assert (status, notice["state"], notice["id"]) == (200, "Released", id)
        free: Object = {"metadata": {"finalizers": None}}
        await drain.cluster.client.patch(PODS, NAMESPACE, "a", free, dict)


async def test_a_pod_that_a_plan_has_told_keeps_that_deadline_when_it_is_drained(
    tmp_path: Path,
) -> None:
    """A preemptor's plan told it 8 minutes; the drain may grant one, and does not come before."""
    config = "scheduling: {notice: {max: 10m}}\n"
    pods = [asking("a", "8m", cpu=4)]
    async with draining(tmp_path, *pods, most="1m", config=config) as drain:
        await drain.cluster.create(pod("high", 4, priority="high"))
        await drain.cluster.until("the plan is recorded", drain.cluster.intents)
        (intent,) = await drain.cluster.intents()
        told = parse_instant(intent["spec"]["victims"][0]["notice"]["deadline"])
        await drain.request("a")
        promised = await drain.until_promised("a")
        assert told <= promised <= told + 2 * SECOND
        assert parse_instant((await drain.notice("a"))["deadline"]) == told
        await drain.stays_until(told, "a")
        await drain.cluster.until_placed({"high"})


async def test_a_plan_does_not_evict_a_pod_before_the_deadline_of_its_drain(tmp_path: Path) -> None:
    config = "scheduling: {notice: {max: 1m}}\n"
    async with draining(tmp_path, asking("a", "5m", cpu=4), config=config) as drain:
        await drain.request("a")
        deadline = await drain.until_promised("a")
        await drain.cluster.create(pod("high", 4, priority="high"))
        await drain.cluster.until("the plan is recorded", drain.cluster.intents)
        await drain.stays_until(deadline - SECOND, "a")
        await drain.cluster.until_placed({"high"})


async def test_where_the_api_is_not_served_that_is_logged_once_and_pods_are_answered(
    tmp_path: Path,
) -> None:
    async with draining(tmp_path, asking("a"), served=False) as drain:
        await asyncio.sleep(60)
        lines = [each for each in drain.cluster.lines if "Eviction API is not served" in each]
        assert len(lines) == 1
        assert (await drain.asked(await drain.uid("a")))[0] == 204
        try:
            await drain.cluster.client.list(EVICTIONS, dict)
        except NotFound:
            return
        raise AssertionError("the API is served")


async def test_without_the_option_nothing_is_answered(tmp_path: Path) -> None:
    async with draining(tmp_path, asking("a")) as drain:
        await drain.cluster.stop()
        await drain.cluster.free_leases()
        await drain.cluster.operator("--config", str(tmp_path / "config.yaml"))
        await drain.request("a")
        await asyncio.sleep(120)
        assert await drain.state("a") == "Active"
        assert await drain.said("a", "heartbeatTime") == ""
