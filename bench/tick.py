"""One polling interval of the idle plane: fetch, parse, aggregate, decide.

Every node has an exporter of its own behind one Service. 10,000 GPUs are held by pods of four, two
and one GPU, in workloads of one to eight pods; a third of the pods is idle, another third at each
tick, and five demands wait. Checked after each run: every sample against what the exporter meant
to say, every phase and every victim against a plain accumulation; and once per bench all bodies of
a tick against prometheus_client's own parser.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from bench.exporters import FAMILY, GPUS_PER_NODE, node_address, pod_of, use_of
from bench.measuring import Stopwatch, best_of, other_process, peak_mib, print_line
from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.lifecycle import step
from reprieve.engine.idle.lifecycle_facts import Facts, Present
from reprieve.engine.idle.model import (
    Aggregation,
    IdleSnapshot,
    Phase,
    PodRow,
    Policy,
    PreemptionPolicy,
    Settings,
    Status,
    TrackedPod,
    Workload,
)
from reprieve.engine.idle.outcome import Evaluation
from reprieve.engine.idle.samples import merge
from reprieve.engine.idle.vendors import AMD
from reprieve.intake.readings import readings_by_namespace
from reprieve.planes.idle.measures.metric_sources import (
    MetricReader,
    ReadyAddress,
    metric_source,
    open_session,
)
from reprieve.planes.idle.measures.scraper import Poll, Scraper
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

__all__ = ["run_tick"]

GPU = "amd.com/gpu"
THRESHOLD = 5.0
GRACE = 600 * SECOND
POLICY = Policy()
SETTINGS = Settings(
    THRESHOLD, GRACE, PreemptionPolicy.ON_PRESSURE, Aggregation.MAX, 86_400 * SECOND
)
DEMANDS = (64, 128, 8, 100_000, 31)


class Exporters:
    """The Service whose ready addresses are the nodes' exporters."""

    def __init__(self, nodes: int, port: int) -> None:
        self._ready = [ReadyAddress(node_address(n), {"metrics": port}) for n in range(nodes)]

    def addresses(self, namespace: str, name: str) -> Sequence[ReadyAddress]:
        return self._ready


@dataclass
class Tick:
    """What one measured run gives."""

    poll: Poll
    workloads: tuple[Workload, ...]
    evaluation: Evaluation


async def run_tick(nodes: int, families: int, runs: int) -> None:
    """Measure and print one line.

    Raises:
        AssertionError: a result is wrong.
    """
    clock = VirtualClock()
    with other_process("bench.exporters", str(nodes), str(families)) as port:
        async with open_session() as session, aiohttp.ClientSession() as control:
            source = metric_source("service://gpu-operator/exporter:metrics/metrics")
            reader = MetricReader(session, (AMD,), clock)
            scraper = Scraper(
                [source], Exporters(nodes, port), reader, clock, 15 * SECOND, lambda _: None
            )
            first = f"http://{node_address(0)}:{port}"
            state = {"tick": 0, "bytes": 0}
            workloads = idle_workloads(nodes, clock.wall())

            async def prepare(run: int) -> None:
                nonlocal workloads
                state["tick"] = run + 1
                async with control.get(f"{first}/tick/{run + 1}") as answer:
                    state["bytes"] = int(await answer.text())
                await clock.advance(15 * SECOND)
                workloads = idle_workloads(nodes, clock.wall())

            async def measured(stopwatch: Stopwatch) -> Tick:
                with stopwatch.part("fetch_and_parse"):
                    poll = await scraper.poll()
                with stopwatch.part("aggregate"):
                    stepped = _aggregated(workloads, poll)
                with stopwatch.part("decide"):
                    evaluation = evaluate(IdleSnapshot(1, stepped), POLICY, poll.at)
                return Tick(poll, stepped, evaluation)

            def check(tick: Tick) -> None:
                _check_samples(tick.poll, state["tick"], nodes)
                _check_decision(tick, state["tick"], nodes)

            # Connections are opened by a first poll, as they are in the operator.
            await scraper.poll()
            best = await best_of(runs, prepare, measured, check)
            peak = peak_mib()
            await _check_with_full_parser(control, nodes, port, state["tick"])
    print_line(
        "idle",
        f"tick-{nodes * GPUS_PER_NODE}-gpus",
        cpu_ms=best.cpu_ms,
        wall_ms=best.wall_ms,
        peak_mib=peak,
        parts_ms=best.parts_ms,
        runs=best.runs,
        endpoints=nodes,
        families=families,
        body_mib=round(state["bytes"] / (1 << 20), 1),
        workloads=len(workloads),
    )


def _aggregated(workloads: Sequence[Workload], poll: Poll) -> tuple[Workload, ...]:
    """Take the poll in and let every workload step, as the plane's controller does."""
    readings = readings_by_namespace(
        sample for samples in poll.samples.values() for sample in samples
    )
    stepped = []
    for workload in workloads:
        found = readings.get(workload.ref.namespace, {})
        merged = merge(workload.status, found, poll.at, POLICY)
        facts = Facts(Present(workload.root.uid))
        outcome = step(replace(workload, status=merged.status), facts, POLICY, poll.at)
        stepped.append(replace(workload, status=outcome.status, gpus=outcome.gpus))
    return tuple(stepped)


def _members(nodes: int) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Return (namespace, workload) -> its pods as (node, first GPU)."""
    members: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for node in range(nodes):
        for gpu in (0, 4, 6, 7):
            namespace, _ = pod_of(node, gpu)
            # Eight pods of a namespace in a row make one workload, or two, four, eight workloads.
            size = (1, 2, 4, 8)[node // 400 % 4]
            members.setdefault((namespace, gpu * 100_000 + node // 50 // size), []).append(
                (node, gpu)
            )
    return members


def idle_workloads(nodes: int, now: Nanos) -> tuple[Workload, ...]:
    """Return all workloads before a tick: idle since an hour or more, as far as the past goes."""
    workloads = []
    for index, ((namespace, number), pods) in enumerate(sorted(_members(nodes).items())):
        rows = []
        for node, gpu in pods:
            _, name = pod_of(node, gpu)
            count = {0: 4, 4: 2, 6: 1, 7: 1}[gpu]
            rows.append(PodRow(Uid(f"{name}-uid"), name, "Running", {GPU: count}, f"node-{node}"))
        status = Status(
            phase=Phase.IDLE,
            tracked_pods=tuple(TrackedPod(row.name) for row in sorted(rows, key=lambda r: r.name)),
            idle_since=Nanos(now - 3600 * SECOND - index % 997 * SECOND),
        )
        workloads.append(
            _workload(namespace, f"training-{number}", status, rows, now, sum(_counts(rows)))
        )
    for index, need in enumerate(DEMANDS):
        pod = PodRow(
            Uid(f"demand-{index}-pod"), f"demand-{index}", "Pending", {GPU: need}, demand=True
        )
        status = Status(phase=Phase.PENDING_GPU, tracked_pods=(TrackedPod(pod.name),))
        created = Nanos(now - (10 - index) * SECOND)
        workloads.append(_workload("waiting", f"demand-{index}", status, [pod], created, need))
    return tuple(workloads)


def _workload(
    namespace: str, name: str, status: Status, pods: list[PodRow], created: Nanos, gpus: int
) -> Workload:
    uid = f"{namespace}-{name}"
    return Workload(
        ref=Reference(
            "kaiwo.silogen.ai/v1alpha1", "GpuWorkload", namespace, name, Uid(f"{uid}-gw")
        ),
        root=Reference("batch/v1", "Job", namespace, name, Uid(uid)),
        created=created,
        gpus={GPU: gpus},
        settings=SETTINGS,
        status=status,
        pods=tuple(pods),
    )


def _counts(rows: Sequence[PodRow]) -> list[int]:
    return [row.gpus[GPU] for row in rows]


def _check_samples(poll: Poll, tick: int, nodes: int) -> None:
    assert not poll.failing, [h.failures[:1] for h in poll.sources]
    seen = {
        (sample.namespace, sample.pod, sample.gpu_id): sample.utilization
        for samples in poll.samples.values()
        for sample in samples
    }
    meant = {
        (*pod_of(node, gpu), str(gpu)): use_of(tick, node, gpu)
        for node in range(nodes)
        for gpu in range(GPUS_PER_NODE)
    }
    assert seen == meant, "the samples are not what the exporters said"


def _check_decision(tick: Tick, number: int, nodes: int) -> None:
    """Compare phases and victims with a plain accumulation over what the exporters meant."""
    gpus_of = {0: range(4), 4: range(4, 6), 6: range(6, 7), 7: range(7, 8)}
    idle = {}
    for (namespace, name), pods in _members(nodes).items():
        means = [
            sum(use_of(number, node, g) for g in gpus_of[gpu]) / len(gpus_of[gpu])
            for node, gpu in pods
        ]
        idle[(namespace, f"training-{name}")] = max(means) < THRESHOLD
    by_name = {(w.ref.namespace, w.ref.name): w for w in tick.workloads}
    for key, is_idle in idle.items():
        assert by_name[key].status.phase is (Phase.IDLE if is_idle else Phase.ACTIVE), key
    order = sorted(
        (w for key, w in by_name.items() if idle.get(key)),
        key=lambda w: (w.status.idle_since, w.ref.namespace, w.ref.name),
    )
    expected, chosen = [], 0
    for need in DEMANDS:
        victims, total = [], 0
        for workload in order[chosen:]:
            if total >= need:
                break
            victims.append(workload.ref)
            total += workload.gpus[GPU]
        if total >= need:
            chosen += len(victims)
            expected.append((need, victims))
    plans = [(p.proof.need[GPU], [v.subject for v in p.victims]) for p in tick.evaluation.plans]
    assert plans == expected, "the victims are not the oldest idle ones"
    assert expected, "nothing was decided"


async def _check_with_full_parser(
    control: aiohttp.ClientSession, nodes: int, port: int, tick: int
) -> None:
    """Read every body of the last tick with prometheus_client and compare its gauge."""
    for node in range(nodes):
        async with control.get(f"http://{node_address(node)}:{port}/metrics") as answer:
            text = await answer.text()
        found = {
            (s.labels["namespace"], s.labels["pod"], s.labels["gpu_id"]): s.value
            for family in text_string_to_metric_families(text)
            if family.name == FAMILY
            for s in family.samples
        }
        meant = {
            (*pod_of(node, gpu), str(gpu)): use_of(tick, node, gpu) for gpu in range(GPUS_PER_NODE)
        }
        assert found == meant, f"node {node}: the full parser reads something else"
