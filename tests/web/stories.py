"""Records as the planes write them, and a mirror that holds them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant, parse_instant
from reprieve.api.disruption import Disruption, DisruptionSpec
from reprieve.api.reprieve import (
    IntentPhase,
    Metadata,
    ObjectRef,
    Preemption,
    PreemptionStatus,
    VictimState,
    VictimStatus,
)
from reprieve.engine.idle.model import Policy as IdlePolicy
from reprieve.engine.placement.profile import Policy as SchedulingPolicy
from reprieve.engine.plan import Plan
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    Admission,
    AdmittedPodSet,
    ClusterQueue,
    Configuration,
    FlavorQuotas,
    LocalQueue,
    PodSet,
    Policy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Settings,
    Strategy,
    Workload,
)
from reprieve.engine.quota.model import Preemption as Rules
from reprieve.engine.quota.plans import plan_of
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.session import Session
from reprieve.planes.quota.deciding.cycles import recorded_cycles
from reprieve.records.idle.record import encode
from reprieve.records.idle.replay import decide_again
from reprieve.records.plans.at_stake import AtStake, Stake, with_stakes
from reprieve.records.plans.intent_specs import intent_spec
from reprieve.records.quota.record import policy_text
from reprieve.records.scheduling.record import encode_scheduling
from reprieve.units.ids import Uid
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.records.judged import Judgement, Whole
from reprieve.web.records.judgement import judgement_of
from reprieve.web.tables import Page
from tests.engine.builders import gang, node, pod, snapshot_of
from tests.engine.rows import ago, demand, snapshot, workload

NOW = parse_instant("2026-03-04T10:15:00Z")
GPU = "nvidia.com/gpu"


@dataclass
class OpenedAtOnce:
    """Records that are there as soon as they are asked for, decided again in this process."""

    records: dict[str, Preemption] = field(default_factory=dict)
    known: dict[str, Judgement] = field(default_factory=dict)

    def whole(self, namespace: str, name: str, uid: str) -> Whole | None:
        record = self.records.get(name)
        if record is None:
            return None
        if name not in self.known:
            read = msgspec.json.decode(msgspec.json.encode(record), type=Preemption)
            self.known[name] = judgement_of(read)
        spec = msgspec.structs.replace(record.spec, input=None)
        return Whole(spec, self.known[name])


def mirror_of(
    records: Iterable[Preemption] = (),
    disruptions: Iterable[Disruption] = (),
    *,
    opened: bool = True,
    key: bytes = b"",
) -> Mirror:
    """A mirror with these objects, as they are decoded."""
    mirror = Mirror("kind-a")
    known = OpenedAtOnce()
    for each in records:
        mirror.preemptions.applied(msgspec.json.decode(msgspec.json.encode(each), type=Preemption))
        known.records[each.metadata.name] = each
    for told in disruptions:
        mirror.disruptions.applied(told)
    if opened:
        mirror.opened = known
    mirror.key = key
    return mirror


def written(
    plan: Plan,
    recorded: dict[str, Any],
    stakes: Iterable[tuple[str, int]],
    name: str,
    *,
    took: int = 252,
    states: Iterable[VictimState] = (),
    preemptor_lineage: str = "owner/preemptor-job",
) -> Preemption:
    """A completed record.

    `stakes`: lineage and lost device-seconds of each victim; `took`: seconds.
    """
    spec = intent_spec(plan, 1, NOW, decision_input=recorded)
    at_stake = AtStake(preemptor_lineage, [Stake(*each) for each in stakes])
    spec = msgspec.structs.replace(
        spec,
        victims=with_stakes(spec.victims, at_stake.victims),
        preemptor_lineage=at_stake.preemptor,
    )
    told = list(states) or [VictimState.EVICTED] * len(spec.victims)
    finished = format_instant(Nanos(NOW + took * SECOND))
    status = PreemptionStatus(
        IntentPhase.COMPLETED,
        owner="reprieve-7f4d",
        epoch=3,
        reason="all victims are gone",
        victim_count=len(spec.victims),
        victims=[
            VictimStatus(victim.root.uid, state, format_instant(Nanos(NOW + MINUTE)))
            for victim, state in zip(spec.victims, told, strict=True)
        ],
        started_at=format_instant(Nanos(NOW + SECOND)),
        finished_at=finished,
    )
    metadata = Metadata(name, "reprieve-system", uid=f"{name}-uid", resource_version="7")
    return Preemption(metadata, spec, status)


def quota_record(
    name: str = "quota-train-1",
    fair: tuple[Strategy, ...] | None = None,
    *,
    harm_order: bool = False,
) -> Preemption:
    """Queue b takes back what a and c have borrowed: of four, two are evicted, one reprieved."""
    configuration = Configuration(
        {
            "a": _queue("a", 8),
            "b": _queue("b", 8),
            "c": _queue("c", 8),
        },
        {},
        {"gpus": ResourceFlavor("gpus")},
        {f"team-{each}/{each}": LocalQueue(f"team-{each}/{each}", each) for each in "abc"},
        {f"team-{each}": {} for each in "abc"},
        Settings(fair_sharing=fair, harm_order=harm_order),
    )
    holdings, queues = Holdings(configuration), Queues(configuration)
    for each in (
        _holding("a", "sweep", 8, minutes=30),
        _holding("a", "eval", 2, minutes=10),
        _holding("a", "probe", 4, minutes=5),
        _holding("c", "llm", 8, minutes=120),
    ):
        holdings.hold(each)
    queues.push(_waiting("b", "train", 8, 10))
    for result, inputs in recorded_cycles(holdings, queues, NOW, 1, 100):
        (entry,) = [each for each in result.entries if each.issued]
        plan = plan_of(entry, holdings.tree, 7, policy_text(configuration, "b"))
        assert plan is not None
        stakes = [
            (f"owner/{v.subject.name}-job", 600 * sum(v.amounts.values())) for v in plan.victims
        ]
        return written(plan, inputs[entry.workload.key], stakes, name)
    raise AssertionError("nobody preempted")


def _queue(name: str, nominal: int) -> ClusterQueue:
    quotas = FlavorQuotas("gpus", {GPU: Quota(nominal)})
    return ClusterQueue(
        name,
        "all",
        (ResourceGroup((GPU,), (quotas,)),),
        preemption=Rules(Policy.LOWER_PRIORITY, Policy.ANY),
    )


def _waiting(queue: str, name: str, gpus: int, priority: int = 0, **given: Any) -> Workload:
    return Workload(
        f"team-{queue}",
        name,
        f"{name}-uid",
        f"team-{queue}/{queue}",
        priority,
        created=Nanos(NOW - HOUR),
        pod_sets=(PodSet("main", 1, {GPU: gpus}),),
        **given,
    )


def _holding(queue: str, name: str, gpus: int, minutes: int) -> Workload:
    admitted = AdmittedPodSet("main", 1, {GPU: "gpus"}, {GPU: gpus})
    return _waiting(
        queue,
        name,
        gpus,
        admission=Admission(queue, (admitted,)),
        reserved_at=Nanos(NOW - minutes * MINUTE),
    )


def idle_record(name: str = "idle-needy-1") -> Preemption:
    """The oldest idle is put back by the trimming option, the second is preempted."""
    rows = snapshot(
        demand("needy", 8, created=ago(500), namespace="needers"),
        workload("oldest", gpus=2, idle_since=ago(4000)),
        workload("second", gpus=8, idle_since=ago(3000)),
        workload("third", gpus=2, idle_since=ago(2000)),
    )
    recorded = encode(rows, IdlePolicy(irreducible=True), NOW)
    replay = decide_again(recorded)
    plan = replay.plan(replay.evaluation.plans[0].id)
    assert plan is not None
    return written(plan, recorded, [("owner/second-uid", 24_000)], name)


def scheduling_record(name: str = "scheduling-g-1") -> Preemption:
    """A gang of two takes two nodes from a gang that goes as a whole; a pod beside it stays."""
    rows = snapshot_of(
        *(node(f"n{k}", gpus=8, labels={"karpenter.sh/nodepool": "h100"}) for k in range(3)),
        *gang(
            2,
            "low",
            namespace="team-b",
            all_or_nothing=True,
            nodes=["n0", "n1"],
            gpus=8,
            start=NOW // SECOND - 960,
        ),
        pod("lone", namespace="team-c", node="n2", gpus=2, start=NOW // SECOND - 60),
        *gang(2, "train", namespace="team-a", priority=10, gpus=8),
    )
    policy = SchedulingPolicy()
    unit = Unit((Uid("pod-team-a-train-0"), Uid("pod-team-a-train-1")), "team-a/train")
    attempt = Session(rows, policy).attempt(unit)
    assert attempt is not None and attempt.plan is not None
    recorded = encode_scheduling(rows, policy, unit)
    stakes = [("owner/low-job", 7_680)] * len(attempt.plan.victims)
    return written(attempt.plan, recorded, stakes, name)


def disruption(
    namespace: str, name: str, plan: str, lineage: str, *, preemptor: str = "", **given: Any
) -> Disruption:
    """What a tenant is told of one displaced unit."""
    spec: dict[str, Any] = {
        "subject": ObjectRef("batch/v1", "Job", name, f"{name}-uid", namespace),
        "lineage": lineage,
        "plan_id": plan,
        "plane": "quota",
        "rule": "it used quota that another queue has lent and reclaims",
        "preemptor": preemptor or "another tenant's work #a3f1",
        "noticed_at": format_instant(NOW),
        "evicting_at": format_instant(Nanos(NOW + SECOND)),
        "ended_at": format_instant(Nanos(NOW + MINUTE)),
        "objects": 1,
        "lost_device_seconds": 4_800,
        "times": 1,
        "window": "1h0m0s",
        "spared_by": "staying within the nominal quota of its own ClusterQueue",
        **given,
    }
    metadata = Metadata(f"{name}-{plan}", namespace, uid=f"{name}-{plan}", resource_version="3")
    return Disruption(metadata, DisruptionSpec(**spec))


def rows_of(page: Page, table: str) -> list[dict[str, Any]]:
    """The rows of a table as people read them: cells by the names of their columns."""
    found = page.tables[table]
    names = [column.name for column in found.columns]
    return [dict(zip(names, row, strict=True)) for row in found.rows.values()]


__all__ = [
    "GPU",
    "NOW",
    "disruption",
    "idle_record",
    "mirror_of",
    "quota_record",
    "rows_of",
    "scheduling_record",
    "written",
]
