"""The faults, each a function that does its harm while work comes and goes, and then returns.

What a fault needs of the cluster beside itself stands in its row of `FAULTS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

from reprieve.kube.errors import ApiError
from reprieve.kube.resource import EVENTS, LEASES, NAMESPACES, NODES, PODS, Resource
from tests.reliability import etcd
from tests.reliability.churn import gang_of, pod
from tests.reliability.job_churn import JobChurn
from tests.reliability.moments import ANSWERED, RECEIVED, follow, until_moment
from tests.reliability.operators import Operators, Usage
from tests.reliability.plans import (
    plan_api_server_away,
    plan_api_server_killed,
    plan_operator_killed,
)
from tests.reliability.proxy import Proxy
from tests.reliability.stand import NAMESPACE, OPERATOR_NAMESPACE, Stand, tried

__all__ = ["FAULTS", "LIBFAKETIME", "Fault", "Load", "Run"]

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
#: Debian's package libfaketime; the offset of the wall clock alone is read from a file.
LIBFAKETIME: Final = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")


class Load(Protocol):
    """Work that comes and goes. `served`: how much of `made` came to run that has to."""

    made: int
    served: int
    slowest_s: float

    @property
    def controllers(self) -> str:
        """What the operator runs."""
        ...

    @property
    def environment(self) -> dict[str, str]:
        """What the operator knows."""
        ...

    def ready(self) -> AbstractAsyncContextManager[None]:
        """Prepare the cluster for it."""
        ...

    async def run(self) -> None:
        """Come and go until cancelled."""
        ...

    async def until_served(self, patience_s: float) -> bool:
        """Return whether all that has to run has come to."""
        ...


@dataclass
class Run:
    """What a fault acts upon. `times`: how often, where that can be chosen; `said`: its figures."""

    stand: Stand
    operators: Operators
    load: Load
    proxy: Proxy
    times: int
    seconds: float
    said: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fault:
    """One row: what is done, and on what cluster. `flags`: of control plane programs.

    `own`: it is about pods and nodes, so that only the scheduling plane has it. `alone`: no work
    but the fault's own comes. `clock`: the operator's wall clock can be set. `module`: what is run.
    `leases_first`: with the chart's FlowSchema.
    """

    what: str
    do: Callable[[Run], Awaitable[None]]
    times: int = 1
    seconds: float = 60.0
    replicas: int = 1
    lease: str = "15s"
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    churn: Mapping[str, Any] = field(default_factory=dict)
    nodes: int = 16
    cpus: int = 8
    own: bool = False
    alone: bool = False
    clock: bool = False
    leases_first: bool = False
    module: str = "reprieve"


async def calm(run: Run) -> None:
    await asyncio.sleep(run.seconds)


async def kills(run: Run) -> None:
    """SIGKILL at moments that have nothing to do with what the operator is at, once it works."""
    random = Random(2)
    for number in range(run.times):
        await run.operators.until_line("scheduling pods of", number + 1)
        await asyncio.sleep(random.uniform(0.0, 8.0))
        run.operators.signal(0, signal.SIGKILL)


async def leader_stopped(run: Run) -> None:
    """Whoever of two replicas holds the lease stands still for 40 s and goes on."""
    for turn in range(run.times):
        await run.operators.until_line("leading, epoch", turn + 1)
        await asyncio.sleep(20)
        lease: dict[str, Any] = await run.stand.client.get(
            LEASES, OPERATOR_NAMESPACE, "reprieve", dict
        )
        holder = lease["spec"]["holderIdentity"]
        # The process id is the second part; each replica is a group of processes.
        group = int(holder.split("_")[1])
        os.killpg(group, signal.SIGSTOP)
        await asyncio.sleep(40)
        os.killpg(group, signal.SIGCONT)
        run.said.setdefault("stopped", []).append(holder)
    await asyncio.sleep(20)


async def _at_moments(run: Run, harm: Callable[[], Awaitable[None]]) -> None:
    """Do harm at moments of plans: the record received, answered, its first victim told to go."""
    for turn in range(run.times):
        await asyncio.sleep(10)
        entries = follow(run.stand.folder / "audit.log")
        await anext(entries)
        await until_moment(entries, (RECEIVED, ANSWERED, 1)[turn % 3])
        await harm()
        run.said["in_a_plan"] = turn + 1
    await asyncio.sleep(15)


async def operator_killed(run: Run) -> None:
    async def kill() -> None:
        run.operators.signal(0, signal.SIGKILL)

    await _at_moments(run, kill)


async def api_server_killed(run: Run) -> None:
    async def kill() -> None:
        await asyncio.to_thread(run.stand.plane.kill_api_server)
        await asyncio.sleep(1)
        await asyncio.to_thread(run.stand.plane.start_api_server)

    await _at_moments(run, kill)


async def etcd_stopped(run: Run) -> None:
    async def stop() -> None:
        pid = run.stand.plane.pid("etcd")
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(20)
        os.kill(pid, signal.SIGCONT)

    await _at_moments(run, stop)


async def watches_cut(run: Run) -> None:
    """All of the operator's connections end every second, with whatever is asked on them."""
    end = time.monotonic() + run.seconds
    while time.monotonic() < end:
        await asyncio.sleep(1)
        run.proxy.cut()
    run.said["connections_cut"] = run.proxy.cuts


async def compaction(run: Run) -> None:
    """The operator hears nothing while versions are forgotten and the API server is replaced."""
    refused: list[int] = []
    for _ in range(run.times):
        await asyncio.sleep(10)
        before = await _expired(run)
        run.proxy.refusing = True
        run.proxy.cut()
        await asyncio.sleep(5)
        await asyncio.to_thread(etcd.compact, run.stand.plane)
        await asyncio.to_thread(run.stand.plane.restart_api_server)
        run.proxy.refusing = False
        await asyncio.sleep(15)
        refused.append(await _expired(run) - before)
    run.said["watches_refused_with_410"] = refused


async def _expired(run: Run) -> int:
    return int(await run.operators.metric("reprieve_watch_restarts_total", reason="expired"))


async def namespace_deleted(run: Run) -> None:
    """Victims' namespace, and then a preemptor's, goes as soon as a plan for them is recorded."""
    if isinstance(run.load, JobChurn):
        await _namespace_of_jobs_deleted(run, run.load)
        return
    stand = run.stand
    hit = 0
    for turn in range(run.times):
        name = f"doomed-{turn}"
        await stand.create(NAMESPACES, {"metadata": {"name": name}})
        place = NAMESPACE if turn % 2 else name
        victims = name if turn % 2 else NAMESPACE
        if victims == name:
            await stand.create(
                PODS, *(pod(f"{name}-{i}", 2, "low", namespace=name) for i in range(32))
            )
            await asyncio.sleep(5)
        before = len(await stand.records())
        await gang_of(stand, f"deleted-{turn}", 4, 8, "high", namespace=place)
        for _ in range(200):
            if len(await stand.records()) > before:
                hit += 1
                break
            await asyncio.sleep(0.05)
        await tried(stand.client.delete(NAMESPACES, "", name))
        await asyncio.sleep(8)
        await stand.delete(PODS, [f"deleted-{turn}-{i}" for i in range(4)], place)
    run.said["deleted_in_a_plan"] = hit


async def _namespace_of_jobs_deleted(run: Run, load: JobChurn) -> None:
    stand, hit = run.stand, Counter[str]()
    for turn in range(run.times):
        name, role = f"doomed-{turn}", "victims" if turn % 2 else "preemptor"
        await stand.create(NAMESPACES, {"metadata": {"name": name}})
        await asyncio.sleep(15)  # those that are preempted hold everything first
        await load.settle(name)
        for _ in range(400):
            if any(_is_of(record, name, role) for record in await stand.records()):
                hit[role] += 1
                break
            await asyncio.sleep(0.1)
        await tried(stand.client.delete(NAMESPACES, "", name))
        await asyncio.sleep(8)
    run.said["deleted_in_a_plan"] = dict(hit)


def _is_of(record: Mapping[str, Any], namespace: str, role: str) -> bool:
    """Tell whether the record's preemptor, or one of its victims, is in the namespace."""
    return f'"{namespace}"' in json.dumps(record["spec"].get(role))


async def node_deleted(run: Run) -> None:
    """A node goes as soon as a plan is recorded that has chosen it, and comes back later."""
    stand, hit = run.stand, 0
    for turn in range(run.times):
        before = {record["metadata"]["name"] for record in await stand.records()}
        node = ""
        for _ in range(600):
            for record in await stand.records():
                if record["metadata"]["name"] not in before and record["spec"].get("placement"):
                    node = record["spec"]["placement"][turn % 2]["node"]
            if node:
                break
            await asyncio.sleep(0.05)
        if not node:
            continue
        hit += 1
        await tried(stand.client.delete(NODES, "", node))
        await asyncio.sleep(6)
        await stand.add_nodes([node])
    run.said["deleted_in_a_plan"] = hit


async def clock_set(run: Run) -> None:
    """The operator's wall clock goes back and forth, up to half an hour and a day."""
    offsets = ("+1800s", "-1800s", "+86400s", "-600s", "+0s", "-1800s", "+5s", "-5s")
    file = run.stand.folder / "clock"
    for turn in range(run.times):
        file.write_text(offsets[turn % len(offsets)] + "\n", encoding="utf-8")
        await asyncio.sleep(10)
    file.write_text("+0s\n", encoding="utf-8")


async def disk_full(run: Run) -> None:
    """etcd refuses all writes by its quota for 20 s, until room is made."""
    stand = run.stand
    for turn in range(run.times):
        await asyncio.sleep(15)
        made: list[str] = []
        text = "x" * 900_000
        while len(made) < 500:
            name = f"filler-{turn}-{len(made)}"
            body = {"metadata": {"name": name, "namespace": NAMESPACE}, "data": {"text": text}}
            if not await tried(stand.client.create(CONFIG_MAPS, body, dict)):
                break
            made.append(name)
        await asyncio.sleep(20)
        # Deletions are taken with the alarm on.
        await stand.delete(CONFIG_MAPS, made)
        await asyncio.to_thread(etcd.compact, stand.plane)
        await asyncio.to_thread(etcd.lift_alarms, stand.plane)
        run.said["fillers"] = len(made)
    await asyncio.sleep(20)


async def events(run: Run) -> None:
    """50,000 events of other people are written, as fast as the API server takes them."""
    number, count = iter(range(run.times)), 0

    async def write() -> None:
        nonlocal count
        for i in number:
            event = {
                "metadata": {"name": f"noise-{i}", "namespace": NAMESPACE},
                "involvedObject": {"kind": "Pod", "namespace": NAMESPACE, "name": f"low-{i % 50}"},
                "source": {"component": "noise"},
                "reason": "Noise",
                "type": "Normal",
                "message": "what others have to say",
            }
            # In two steps: others count while this one waits.
            written = await tried(run.stand.client.create(EVENTS, event, dict))
            count += written

    await asyncio.gather(*(write() for _ in range(20)))
    run.said["events"] = count


async def soak(run: Run) -> None:
    """Look at the operator every ten seconds; say what it held after ten minutes and at the end.

    `mib_by_tenth`: means; `remembered`: rows of the tables that grow until a bound, as the tenth
    minute came and at the end.
    """
    samples: list[tuple[float, Usage]] = []
    records: list[int] = []
    remembered: list[tuple[float, dict[str, int]]] = []
    start = time.monotonic()
    while (at := time.monotonic() - start) < run.seconds:
        usage = run.operators.usage()
        if usage is not None:
            samples.append((at, usage))
        if len(samples) % 3 == 1:
            with contextlib.suppress(ApiError, OSError):
                records.append(len(await run.stand.records()))
            rows = await run.operators.by_label("reprieve_remembered_rows", "table")
            remembered += [(at, rows)] if rows else []
        said = [round(at), usage and asdict(usage), records[-1:], remembered[-1:]]
        with (run.stand.folder / "samples.jsonl").open("a", encoding="utf-8") as file:
            print(json.dumps(said), file=file)
        await asyncio.sleep(10)
    warm = min(600.0, run.seconds / 6)
    after = [usage for at, usage in samples if at >= warm]
    fifth = max(1, len(after) // 5)

    def mean(of: Sequence[Usage], word: str) -> float:
        values: list[float] = [getattr(each, word) for each in of]
        return round(sum(values) / len(of), 1)

    bounds = [len(samples) * tenth // 10 for tenth in range(11)]
    tenths = [[usage for _, usage in samples[a:b]] for a, b in pairwise(bounds) if a < b]
    run.said |= {
        "gangs_made": run.load.made,
        **{
            f"{word}_{name}_fifth": mean(of, word)
            for word in ("mib", "keeper_mib", "descriptors")
            for name, of in (("first", after[:fifth]), ("last", after[-fifth:]))
        },
        "mib_most": max(usage.mib for _, usage in samples),
        "cpu_s": samples[-1][1].cpu_s,
        "mib_by_tenth": [mean(tenth, "mib") for tenth in tenths],
        "descriptors_by_tenth": [mean(tenth, "descriptors") for tenth in tenths],
        "remembered": [rows for at, rows in remembered if at >= warm][:1]
        + [rows for _, rows in remembered[-1:]],
        "records_by_five_minutes": records[::10],
    }


_FEW: Final = ("--max-requests-inflight=5", "--max-mutating-requests-inflight=5")
_MORE_CONTROLLERS: Final = "--controllers=namespace-controller,pod-garbage-collector-controller"
_PLANS: Final[Mapping[str, Any]] = {"nodes": 50, "cpus": 8, "alone": True}

FAULTS: Final[Mapping[str, Fault]] = {
    "calm": Fault("nothing", calm, seconds=120.0),
    "kills": Fault("SIGKILL within 8 s after it has begun to work", kills, times=100, lease="5s"),
    "leader-stopped": Fault(
        "SIGSTOP for 40 s of the leader of two replicas", leader_stopped, times=4, replicas=2
    ),
    "operator-killed": Fault("SIGKILL at moments of plans", operator_killed, times=12),
    "api-server-killed": Fault(
        "kube-apiserver killed and started at moments of plans", api_server_killed, times=6
    ),
    "plan-api-server-away": Fault(
        "kube-apiserver away for 30 s from moments of a plan of 200 victims on",
        plan_api_server_away,
        times=4,
        **_PLANS,
    ),
    "plan-api-server-killed": Fault(
        "kube-apiserver killed at moments of a plan of 200 victims",
        plan_api_server_killed,
        times=6,
        **_PLANS,
    ),
    "plan-operator-killed": Fault(
        "SIGKILL at moments of a plan of 200 victims", plan_operator_killed, times=6, **_PLANS
    ),
    "etcd-stopped": Fault("SIGSTOP of etcd for 20 s at moments of plans", etcd_stopped, times=3),
    "few-requests": Fault(
        "5 reading and 5 writing requests at a time, by Priority and Fairness",
        calm,
        seconds=120.0,
        flags={"kube-apiserver": _FEW},
        churn={"every_s": 2.0},
    ),
    "few-requests-leases-first": Fault(
        "the same with the chart's FlowSchema for leases",
        calm,
        seconds=120.0,
        flags={"kube-apiserver": _FEW},
        churn={"every_s": 2.0},
        leases_first=True,
    ),
    "watches-cut": Fault("all connections cut every second", watches_cut, seconds=120.0),
    # A lease that outlives the change of API servers: a process that begins anew resumes nothing.
    "compaction": Fault("410 for whoever resumes a watch", compaction, times=3, lease="120s"),
    "namespace-deleted": Fault(
        "the victims' or the preemptor's namespace deleted in a plan",
        namespace_deleted,
        times=8,
        flags={"kube-controller-manager": (_MORE_CONTROLLERS,)},
        churn={"every_s": 6.0},
    ),
    "node-deleted": Fault(
        "a node deleted in a plan",
        node_deleted,
        times=8,
        flags={"kube-controller-manager": (_MORE_CONTROLLERS,)},
        own=True,
    ),
    "clock-set": Fault("the wall clock set back and forth", clock_set, times=12, clock=True),
    "disk-full": Fault(
        "etcd's quota used up for 20 s",
        disk_full,
        times=2,
        flags={"etcd": (f"--quota-backend-bytes={192 * 2**20}",)},
    ),
    "events": Fault("50,000 events", events, times=50_000),
    "soak": Fault(
        "an hour of gangs",
        soak,
        seconds=3600.0,
        nodes=40,
        churn={"every_s": 0.7, "life_s": 4.0, "sizes": (2,), "gang_cpus": 2, "low_cpus": 2},
        module="tests.reliability.few_records",
    ),
}
