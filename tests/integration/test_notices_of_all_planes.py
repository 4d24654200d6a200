"""Notices of all three planes on a real API server, to pods that lie, judged by its audit log.

In each plane several plans are open at a time, each for a preemptor and a victim with a node of
their own. The victim's pods speak over HTTP with tokens that the API server made: they stay silent,
save, save twice, answer for others, request more time, or are deleted, at random times. A victim is
evicted, by the log, no earlier than

    min(when the last of its pods began to report its save or was deleted, its recorded deadline)

where the deadline is the extended one if the record has such, and no later than some seconds after
it. REPRIEVE_NOTICE_SEED plays another story.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant, parse_instant
from reprieve.kube.client import Client
from reprieve.kube.errors import Call, NotFound
from reprieve.kube.resource import PODS, PREEMPTIONS
from reprieve.kube.transport import Request
from reprieve.scenarios.stage import Stage
from reprieve_notice.http import Away, HttpSource
from tests.integration.audited_planes import (
    create,
    decided,
    evictions,
    idle_for,
    runs,
    until,
    use,
)
from tests.integration.control_plane import ControlPlane
from tests.integration.test_notice import ACCOUNTS
from tests.ports import free_port
from tests.together.site import UNIT, deployment, job, node

pytestmark = pytest.mark.usefixtures("with_pod_groups")

_EACH: Final = 3  # plans of each plane
_TIME_S: Final = 20
_EXTENSION_S: Final = 15
_LONGEST_S: Final = 90
_LATE_S: Final = 15  # on a machine with other work
_NOTICE: Final = {"reprieve.dev/notice": f"{_TIME_S}s"}
_PLANES: Final = ("scheduling", "quota", "idle")

Object = dict[str, Any]


@dataclass
class Victim:
    """A victim, what its pods will do, and when each of them had saved or was deleted."""

    plane: str
    name: str
    manners: list[str]
    saved: list[int | None] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    @property
    def all_saved(self) -> int | None:
        times = [each for each in self.saved if each is not None]
        return max(times) if len(times) == len(self.manners) else None


@pytest.mark.slow
async def test_no_victim_of_any_plane_is_evicted_before_it_saved_or_its_deadline(
    audited: ControlPlane, tmp_path: Path
) -> None:
    # Each poll keeps a thread.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(64))
    seed = os.environ.get("REPRIEVE_NOTICE_SEED", "0")
    random, port, config = Random(seed), free_port(), tmp_path / "config.yaml"
    notice = f"{{max: {_TIME_S}s, extension: {_EXTENSION_S}s}}"
    sections = (f"{each}: {{notice: {notice}}}" for each in ("scheduling", "quota"))
    config.write_text("\n".join((*sections, f"gpuPreemption: {{notice: {notice}}}\n")))
    places = [f"{each}-{number}" for each in _PLANES for number in range(_EACH)]
    nodes = [node(place, 4, {"place": place}) for place in places]
    arguments = ("--config", str(config), "--notice-port", str(port))
    quotas = {"a": 4 * _EACH, "b": 0, "c": 0}
    async with decided(audited, tmp_path, nodes, quotas, arguments=arguments) as (stage, client, _):
        victims = [
            Victim(each, f"{each}-{number}", _manners(random, number))
            for each in _PLANES
            for number in range(_EACH)
        ]
        account = {"metadata": {"name": "default", "namespace": "b"}}
        await client.create(ACCOUNTS, account, dict)
        await _run_victims(client, stage, victims)
        url = f"http://127.0.0.1:{port}"
        ids: list[str] = []
        async with asyncio.TaskGroup() as speaking:
            for victim in victims:
                for number in range(len(victim.manners)):
                    victim.saved.append(None)
                    file = tmp_path / f"{victim.name}-{number}"
                    random_ = Random(f"{seed}/{file.name}")
                    pod, token = await _token(client, victim, number)
                    await asyncio.to_thread(file.write_text, token)
                    source = HttpSource(url, file)
                    speaking.create_task(_speak(client, source, victim, number, pod, ids, random_))
            for victim in victims:
                await create(client, stage, _preemptor(victim))
        names = [f"for-{each.name}" for each in victims]
        await until("all preemptors run", lambda: runs(client, *names))
        records = (await client.list(PREEMPTIONS, dict)).items
    _judge(victims, records, tmp_path)


def _manners(random: Random, number: int) -> list[str]:
    """Return what both pods of a victim do; the first of each plane saves, the second does not."""
    if number == 0:
        return [random.choice(("saves", "saves twice", "extends and saves")), "saves"]
    if number == 1:
        return [random.choice(("silent", "answers for others", "extends")), "saves"]
    words = ("silent", "saves", "saves twice", "answers for others", "extends", "extends and saves")
    return [random.choice(words), random.choice(words)]


def _victim(victim: Victim) -> list[Object]:
    spec: Object = {"nodeSelector": {"place": victim.name}, "serviceAccountName": "default"}
    if victim.plane == "idle":
        (made,) = deployment(victim.name, "b", pods=2, gpus=2, priority="high")
        made["spec"]["template"]["spec"] |= spec
        made["metadata"]["annotations"] |= _NOTICE
        return [made]
    queued = victim.plane == "quota"
    (made,) = job(
        victim.name, "b", pods=2, gpus=2, priority="low", opted=False, queued=queued, **spec
    )
    made["spec"]["template"]["metadata"]["annotations"] = dict(_NOTICE)
    return [made]


def _preemptor(victim: Victim) -> list[Object]:
    queued, idle = victim.plane == "quota", victim.plane == "idle"
    # Which of several borrowers is evicted is decided by quota, and with it the node.
    spec: Object = {} if queued else {"nodeSelector": {"place": victim.name}}
    team, name = "a" if queued else "c", f"for-{victim.name}"
    return job(name, team, priority="high", opted=idle, queued=queued, **spec)


async def _run_victims(client: Client, stage: Stage, victims: list[Victim]) -> None:
    idle = 0
    for victim in victims:
        made = _victim(victim)
        await create(client, stage, made)
        await until(f"{victim.name} runs", partial(_two_run, client, victim))
        if victim.plane == "idle":
            idle += 1
            use(stage, made, 0.0)
    await until("it is idle", lambda: idle_for(client, 6, idle))


async def _pods(client: Client, victim: Victim) -> list[Object]:
    found = (await client.list(PODS, dict, namespace="b")).items
    mine = [each for each in found if (each["metadata"]["labels"] or {}).get(UNIT) == victim.name]
    return sorted(mine, key=lambda each: str(each["metadata"]["name"]))


async def _two_run(client: Client, victim: Victim) -> bool:
    pods = await _pods(client, victim)
    return [(each.get("status") or {}).get("phase") for each in pods] == ["Running"] * 2


async def _token(client: Client, victim: Victim, number: int) -> tuple[str, str]:
    """Return the name of a pod, and a token of it."""
    pod = (await _pods(client, victim))[number]["metadata"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": ["reprieve.dev"],
            "expirationSeconds": 3600,
            "boundObjectRef": bound,
        },
    }
    path = "/api/v1/namespaces/b/serviceaccounts/default/token"
    body = json.dumps(request).encode()
    said = await client.transport.request(
        Request("POST", path, {}, body, "application/json"), Call("create", path)
    )
    return str(pod["name"]), str(json.loads(said)["status"]["token"])


async def _speak(
    client: Client,
    source: HttpSource,
    victim: Victim,
    number: int,
    pod: str,
    ids: list[str],
    random: Random,
) -> None:
    """Wait until a pod is notified, and have it do what it does."""
    told = None
    end = asyncio.get_running_loop().time() + _LONGEST_S
    while told is None:
        if asyncio.get_running_loop().time() > end:
            return  # it is judged by the record
        try:
            told = await asyncio.to_thread(source.ask, 20)
        except Away:
            await asyncio.sleep(1)
    ids.append(told.id)
    manner = victim.manners[number]
    victim.seen[manner] += 1
    await asyncio.sleep(random.uniform(0.5, 8))
    if manner == "answers for others":
        for other in [each for each in ids if each != told.id]:
            assert await asyncio.to_thread(source.report, other, "saved") is None, "404"
    if manner.startswith("extends"):
        wish = format_instant(Nanos(SystemClock().wall() + 60 * SECOND))
        await asyncio.to_thread(source.report, told.id, "saving", expected=wish)
        await asyncio.sleep(random.uniform(0, 10))
    for _ in range(2 if manner == "saves twice" else "saves" in manner):
        if victim.saved[number] is None:
            victim.saved[number] = SystemClock().wall()
        try:
            await asyncio.to_thread(source.report, told.id, "saved")
        except Away:
            continue
    if manner == "silent" and random.random() < 0.3 and victim.plane == "scheduling":
        victim.seen["dies"] += 1
        victim.saved[number] = SystemClock().wall()
        try:
            await client.delete(PODS, "b", pod)
        except NotFound:
            return


def _judge(victims: list[Victim], records: list[Object], folder: Path) -> None:
    gone = evictions(folder)
    seen: Counter[str] = Counter()
    lines = []
    for victim in victims:
        told = [
            (each, record)
            for record in records
            for each in record["spec"]["victims"]
            if each.get("notice")
            and each["root"]["name"].removeprefix("job-").startswith(victim.name)
        ]
        mine = [each for each in gone if each.name.startswith(victim.name)]
        assert told, f"{victim.name} was not notified"
        assert mine, f"{victim.name} was not evicted"
        at = min(each.at for each in mine)
        deadline = min(_deadline(each, record) for each, record in told)
        due = deadline if victim.all_saved is None else min(deadline, victim.all_saved)
        early = at < deadline
        seen[f"{victim.plane} {'early' if early else 'at its deadline'}"] += 1
        lines.append(f"{victim.name}: {victim.manners}, {(at - due) / SECOND:.2f} s after")
        assert at >= due, (victim, lines[-1])
        assert at <= due + _LATE_S * SECOND, (victim, lines[-1])
    print("\n" + "\n".join(lines))
    assert all(seen[f"{each} {how}"] for each in _PLANES for how in ("early", "at its deadline"))


def _deadline(victim: Object, record: Object) -> Nanos:
    extended = (record["status"].get("extended") or {}).get(victim["root"]["uid"])
    return parse_instant(extended or victim["notice"]["deadline"])
