"""Records of the three planes as kubectl prints them, each with a choice of whom to take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kubeworld.units.durations import HOUR, SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.reprieve import Metadata, Preemption
from reprieve.engine.idle.model import Policy as IdlePolicy
from reprieve.engine.placement.profile import Policy as SchedulingPolicy
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    ClusterQueue,
    Configuration,
    FlavorQuotas,
    LocalQueue,
    PodSet,
    Policy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Workload,
)
from reprieve.engine.quota.model import Preemption as Rules
from reprieve.engine.quota.plans import plan_of
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS, Session
from reprieve.engine.topology.model import HOSTNAME
from reprieve.planes.quota.deciding.cycles import recorded_cycles
from reprieve.records.idle.record import encode
from reprieve.records.idle.replay import decide_again
from reprieve.records.plans.intent_specs import intent_spec
from reprieve.records.quota.record import policy_text
from reprieve.records.scheduling.record import encode_scheduling
from tests.engine.builders import gang, node, pod, pod_class, snapshot_of
from tests.engine.rows import NOW, ago, demand, snapshot, workload
from tests.engine.rows import pod as idle_pod
from tests.engine.topology.build import RACK
from tests.quota.cases import holding
from tests.quota.test_topologies import NOW as FIRST
from tests.quota.test_topologies import World

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
AT = NOW // SECOND


def own_plugins(policy: SchedulingPolicy) -> Any:
    """The plugins of Reprieve itself."""
    return GROUP_POST_FILTERS, {}


def idle_record(name: str = "idle-1") -> Object:
    """Needs 4: `small` (2 GPUs) has been idle for longest, `large` (4) would do alone."""
    rows = [
        workload("small", gpus=2, idle_since=ago(3600), pods=[_worked("small", 2, 4)]),
        workload("large", gpus=4, idle_since=ago(1800), pods=[_worked("large", 4, 1)]),
    ]
    recorded = encode(snapshot(*rows, demand("needy", gpus=4)), IdlePolicy(), NOW)
    replay = decide_again(recorded)
    plan = replay.plan(replay.evaluation.plans[0].id)
    assert plan is not None
    return written(name, intent_spec(plan, 1, NOW, decision_input=recorded))


def _worked(name: str, gpus: int, hours: int) -> Any:
    started = Nanos(NOW - hours * HOUR)
    return idle_pod(f"{name}-0", gpus={"amd.com/gpu": gpus}, node="n", started=started)


def scheduling_record(name: str = "scheduling-1") -> Object:
    """A gang of one needs one of two places: `old` has just been saved, `young` is young."""
    shared = pod_class(cpu=1000, gpus=1)
    old = pod(
        "old", pod_class=shared, node="n", start=AT - 7200, checkpoint=AT - 600, labels={"a": "b"}
    )
    young = pod("young", pod_class=shared, node="n", start=AT - 3600)
    waiting = gang(1, "high", priority=10, cpu=1000, gpus=1)
    then = snapshot_of(node("n", cpu=2000, gpus=2), old, young, *waiting)
    unit = Unit((waiting[1].uid,), "default/high")
    attempt = Session(then, SchedulingPolicy()).attempt(unit)
    assert attempt is not None and attempt.plan is not None
    recorded = encode_scheduling(then, SchedulingPolicy(), unit)
    return written(name, intent_spec(attempt.plan, 1, NOW, decision_input=recorded))


def refused_input() -> Object:
    """The sampled input of `urgent`, for whom nobody may be preempted."""
    holdings, queues = _full(Rules())
    cycles = recorded_cycles(holdings, queues, NOW, 30, 1_000, sampled=lambda: True)
    (found,) = [inputs["ns/urgent"] for _, inputs in cycles if inputs]
    return dict(found)


def quota_record(name: str = "quota-1") -> Object:
    """One queue of 2 GPUs: `veteran` has held one for 4 hours, `recent` for one."""
    holdings, queues = _full(Rules(Policy.LOWER_PRIORITY))
    ((result, inputs),) = [
        each for each in recorded_cycles(holdings, queues, NOW, 30, 1_000) if each[1]
    ]
    (entry,) = [each for each in result.entries if each.issued]
    plan = plan_of(entry, holdings.tree, 7, policy_text(holdings.configuration, "q"))
    assert plan is not None
    given = inputs["ns/urgent"]
    return written(name, intent_spec(plan, 1, NOW, decision_input=given))


def place_record(name: str = "quota-places") -> Object:
    """Hosts of 4 GPUs in two racks: `small` has 3 of one, `large` both of the other rack."""
    world = World({"b/r1/a": 4, "b/r2/c": 4, "b/r2/d": 4})
    for holder, pods, level in (("small", 3, HOSTNAME), ("large", 8, RACK)):
        world.submit(holder, pods, 1, required=level)
        world.decide()
    world.submit("urgent", 4, 1, 5, required=HOSTNAME)
    later = Nanos(FIRST + HOUR)
    ((result, inputs),) = [
        each for each in recorded_cycles(world.holdings, world.queues, later, 30, 1_000) if each[1]
    ]
    (entry,) = [each for each in result.entries if each.issued]
    policy = policy_text(world.holdings.configuration, "team")
    plan = plan_of(entry, world.holdings.tree, 7, policy)
    assert plan is not None
    return written(name, intent_spec(plan, 1, later, decision_input=inputs["ns/urgent"]))


def _full(rules: Rules) -> tuple[Holdings, Queues]:
    quotas = ResourceGroup((GPU,), (FlavorQuotas("gpus", {GPU: Quota(2)}),))
    queue = ClusterQueue("q", "", (quotas,), rules)
    configuration = Configuration(
        {"q": queue},
        {},
        {"gpus": ResourceFlavor("gpus")},
        {"ns/q": LocalQueue("ns/q", "q")},
        {"ns": {}},
    )
    holdings, queues = Holdings(configuration), Queues(configuration)
    for holder, hours in (("veteran", 4), ("recent", 1)):
        holdings.hold(holding(_asks(holder, 0), "q", "gpus", Nanos(NOW - hours * HOUR)))
    queues.push(_asks("urgent", 5))
    return holdings, queues


def _asks(name: str, priority: int) -> Workload:
    return Workload(
        "ns",
        name,
        uid=f"uid-{name}",
        queue="ns/q",
        priority=priority,
        created=NOW,
        pod_sets=(PodSet("main", 1, {GPU: 1}),),
    )


def written(name: str, spec: Any) -> Object:
    """A record as the API server has it."""
    built: Object = msgspec.to_builtins(Preemption(Metadata(name, "reprieve"), spec))
    return built


def listed(*records: Mapping[str, Any]) -> Object:
    """What kubectl prints of several."""
    return {"apiVersion": "v1", "kind": "List", "items": list(records)}
