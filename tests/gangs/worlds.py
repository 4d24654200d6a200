"""Random clusters with a gang that needs room, as plain values and as the engine sees them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.profile import Policy, Profile
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.plan_faults import PlanFault
from reprieve.engine.scheduling.gangs.job import Job, JobPolicy, JobPreemption
from reprieve.engine.scheduling.gangs.job_preemption import preempt_for_job, respect_others
from tests.engine import builders
from tests.gangs.proofs import faults_of_job
from tests.oracle.gangs import DISABLED, JOB_KEY, PREEMPTIBLE, Node, Outcome, Pod, World

GPU = builders.GPU
_POLICY = Policy(profiles=(Profile(),))


def world(seed: int, *, nodes: int = 6, members: int = 4, mixed: bool = True) -> World:
    """A cluster that is nearly full; some pods are protected, some nodes belong to pools."""
    chance = random.Random(seed)
    machines = tuple(
        Node(
            f"n{number:02}",
            {
                "cpu": chance.choice((8, 16, 32)),
                "memory": chance.choice((32, 64)),
                "pods": chance.choice((5, 110)),
                GPU: chance.choice((0, 4, 8)),
            },
            chance.choice(("", "", "a", "b")),
        )
        for number in range(chance.randint(1, nodes))
    )
    pods: list[Pod] = []
    for node in machines:
        left = dict(node.offers)
        for _ in range(chance.randint(1, 6)):
            asks = {"cpu": chance.randint(1, 8), "memory": chance.randint(1, 16)}
            if left[GPU] and chance.random() < 0.5:
                asks[GPU] = chance.randint(1, 4)
            left["pods"] -= 1
            if left["pods"] < 0 or any(left[name] < amount for name, amount in asks.items()):
                break
            for name, amount in asks.items():
                left[name] -= amount
            labels = {}
            if chance.random() < 0.5:
                labels[JOB_KEY] = f"job-{chance.randrange(3)}"
            if chance.random() < 0.1:
                labels[PREEMPTIBLE] = chance.choice(("false", "False"))
            if chance.random() < 0.1:
                labels[DISABLED] = chance.choice(("true", "false"))
            priority = chance.choice((0, 10, 10, 100, 5000))
            pods.append(Pod(f"p{len(pods):02}", asks, priority, node.name, labels))
    if chance.random() < 0.3:
        kept = chance.choice(machines).name
        asks = {"cpu": chance.randint(1, 6)}
        priority = chance.choice((10, 1000, 5000))
        pods.append(Pod("kept", asks, priority, nominated=kept))
    asks = {"cpu": chance.randint(2, 12), "memory": chance.randint(2, 24)}
    if chance.random() < 0.3:
        asks[GPU] = chance.randint(1, 4)
    pool = chance.choice(("", "", "", "a"))
    gang = []
    for number in range(chance.randint(1, members)):
        own = asks if not mixed or chance.random() < 0.5 else {"cpu": chance.randint(1, 12)}
        gang.append(Pod(f"g{number}", own, 1000, pool=pool))
    return World(machines, tuple(pods), tuple(gang))


def snapshot_of(given: World) -> Snapshot:
    rows = [
        builders.node(
            node.name,
            cpu=node.offers["cpu"],
            memory=node.offers["memory"],
            gpus=node.offers.get(GPU, 0),
            pods=node.offers["pods"],
            labels={"pool": node.pool} if node.pool else {},
        )
        for node in given.nodes
    ]
    pods = [
        builders.pod(
            pod.name,
            cpu=pod.asks.get("cpu", 0),
            memory=pod.asks.get("memory", 0),
            gpus=pod.asks.get(GPU, 0),
            priority=pod.priority,
            node=pod.node,
            nominated=pod.nominated,
            labels=pod.labels,
            node_selector={"pool": pod.pool} if pod.pool else {},
        )
        for pod in (*given.pods, *given.members)
    ]
    return builders.snapshot_of(rows, pods)


def attempt(
    given: World,
    policy: JobPolicy,
    order: Sequence[int] | None = None,
    *,
    explain: bool = False,
    by: Policy = _POLICY,
) -> tuple[JobPreemption, Outcome]:
    """The engine's answer, which is proven; `order`: of the members as they are handed in."""
    found, outcome, faults = judged(given, policy, order, explain=explain, by=by)
    assert faults == ()
    return found, outcome


def judged(
    given: World,
    policy: JobPolicy,
    order: Sequence[int] | None = None,
    *,
    explain: bool = False,
    by: Policy = _POLICY,
) -> tuple[JobPreemption, Outcome, tuple[PlanFault, ...]]:
    """The engine's answer, and what the proof says of it."""
    snapshot = snapshot_of(given)
    simulation = Simulation(snapshot, by, by.profiles[0])
    members = [builders.pending_of(snapshot, pod.name) for pod in given.members]
    handed: list[Pending] = [members[i] for i in order] if order is not None else members
    job = Job("default/g", members[0], tuple(handed))
    respect_others(simulation, job)
    found = preempt_for_job(simulation, job, policy, explain=explain)
    faults = faults_of_job(snapshot, by, job, found, jobs=policy) if found.slots else ()
    names = {pending.row.uid: pending.row.name for pending in members}
    nodes = {names[uid]: node for uid, node in found.nominated}
    victims = frozenset(snapshot.pod_keys[slot].partition("/")[2] for slot in found.slots)
    return found, Outcome(nodes, victims), faults


def tight(seed: int) -> World:
    """At most 12 nodes; members of many sizes that nearly fill what victims leave."""
    chance = random.Random(seed)
    count = chance.randint(2, 12)
    machines, pods, gang = [], [], []
    for number in range(count):
        offers = {"cpu": chance.randint(8, 32), "memory": chance.randint(16, 64), "pods": 110}
        machines.append(Node(f"n{number:02}", offers))
        stays = {"cpu": chance.randint(1, 3), "memory": chance.randint(1, 4)}
        pods.append(Pod(f"stay{number}", stays, 5000, f"n{number:02}"))
        goes = {name: offers[name] - stays[name] for name in stays}
        pods.append(Pod(f"go{number}", goes, 10, f"n{number:02}"))
        left = dict(goes)
        for _ in range(chance.randint(1, 3)):
            asks = {name: chance.randint(1, max(1, room)) for name, room in left.items()}
            if chance.random() < 0.5:
                asks = dict(left)  # nothing is left over
            if min(asks.values()) < 1 or any(asks[name] > left[name] for name in asks):
                break
            left = {name: room - asks[name] for name, room in left.items()}
            gang.append(asks)
    chance.shuffle(gang)
    if chance.random() < 0.5:
        worse = dict(gang[0])
        worse["cpu"] += chance.randint(1, 2)
        gang[0] = worse
    members = tuple(Pod(f"g{i:02}", asks, 1000) for i, asks in enumerate(gang))
    # The trigger is the largest, which no node refuses for good where others fit.
    largest = max(members, key=lambda pod: (pod.asks["cpu"], pod.name))
    rest = [pod for pod in members if pod is not largest]
    return World(tuple(machines), tuple(pods), (largest, *rest))
