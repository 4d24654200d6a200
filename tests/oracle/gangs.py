"""Job preemption by brute force, over plain values; nothing here comes from the engine.

`placed_in_turn` is the reference with its defect mended: members in the order of their names, each
on the cheapest node that has room beside its siblings, a node that was refused once is not tried
again; then victims are put back one by one, the most important first. `faults` says what is wrong
with anybody's outcome. Source: specification of gang jobs, sections 7, 12.1 and 14.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

JOB_KEY = "scheduling.koordinator.sh/questioned-object-key"
PREEMPTIBLE = "quota.scheduling.koordinator.sh/preemptible"
DISABLED = "scheduling.koordinator.sh/disable-preemptible"

Amounts = Mapping[str, int]


@dataclass(frozen=True)
class Node:
    """`offers` names every resource, `pods` included."""

    name: str
    offers: Amounts
    pool: str = ""


@dataclass(frozen=True)
class Pod:
    """`node` empty: it waits. `pool`: the node's label that it requests."""

    name: str
    asks: Amounts
    priority: int = 0
    node: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    pool: str = ""
    nominated: str = ""


@dataclass(frozen=True)
class World:
    """A cluster, and the members of one gang; the first one is the trigger."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    members: tuple[Pod, ...]

    @property
    def trigger(self) -> Pod:
        return self.members[0]


@dataclass(frozen=True)
class Outcome:
    """`nodes` empty: nobody is placed."""

    nodes: Mapping[str, str]
    victims: frozenset[str]


def may_go(world: World, pod: Pod) -> bool:
    """Whether the pod may be a victim."""
    return (
        pod.priority < world.trigger.priority
        and pod.labels.get(PREEMPTIBLE) != "false"
        and pod.labels.get(DISABLED) != "true"
    )


def has_room(node: Node, pods: Iterable[Pod]) -> bool:
    """Whether the node offers all that these pods ask for."""
    held = list(pods)
    if len(held) > node.offers["pods"]:
        return False
    names = {name for pod in held for name in pod.asks}
    return all(
        sum(pod.asks.get(name, 0) for pod in held) <= node.offers.get(name, 0) for name in names
    )


def takes(node: Node, member: Pod, present: Iterable[Pod]) -> bool:
    """Whether the node takes the member beside these pods; only what it requests is looked at."""
    if member.pool and member.pool != node.pool:
        return False
    held = list(present)
    if len(held) + 1 > node.offers["pods"]:
        return False
    return all(
        sum(pod.asks.get(name, 0) for pod in held) + amount <= node.offers.get(name, 0)
        for name, amount in member.asks.items()
        if amount
    )


def helped(world: World, node: Node) -> bool:
    """Whether the node refuses the trigger for a reason that pods are to blame for."""
    trigger = world.trigger
    if trigger.pool and trigger.pool != node.pool:
        return False
    if any(amount > node.offers.get(name, 0) for name, amount in trigger.asks.items()):
        return False
    present, kept = _on(world.pods, node), _keeping(world, node, trigger)
    return not (takes(node, trigger, present) and takes(node, trigger, [*present, *kept]))


def _on(pods: Iterable[Pod], node: Node) -> list[Pod]:
    return [pod for pod in pods if pod.node == node.name]


def _keeping(world: World, node: Node, member: Pod) -> list[Pod]:
    """Pods of others that the node is kept for."""
    return [
        pod
        for pod in world.pods
        if not pod.node and pod.nominated == node.name and pod.priority >= member.priority
    ]


def costs(world: World, possible: Mapping[str, Sequence[Pod]]) -> dict[str, int]:
    """What each node costs; a job pays the rank of its most important possible victim."""
    ranks = sorted({pod.priority for pods in possible.values() for pod in pods})
    found = {}
    for name, pods in possible.items():
        jobs: dict[str, int] = {}
        for pod in pods:
            key = pod.labels.get(JOB_KEY, "")
            jobs[key] = max(jobs.get(key, 0), ranks.index(pod.priority))
        found[name] = sum(jobs.values())
    return found


def placed_in_turn(world: World) -> Outcome:
    """What the reference comes to with its copies of nodes kept."""
    nodes = [node for node in sorted(world.nodes, key=lambda n: n.name) if helped(world, node)]
    possible = {
        node.name: [pod for pod in _on(world.pods, node) if may_go(world, pod)] for node in nodes
    }
    possible = {name: pods for name, pods in possible.items() if pods}
    if not possible:
        return Outcome({}, frozenset())
    cost = costs(world, possible)
    gone = {pod.name for pods in possible.values() for pod in pods}
    left = [pod for pod in world.pods if pod.name not in gone]
    assigned: dict[str, list[Pod]] = {node.name: [] for node in nodes}
    feasible = nodes
    for member in sorted(world.members, key=lambda pod: pod.name):
        feasible = [
            node
            for node in feasible
            if takes(node, member, [*_on(left, node), *assigned[node.name]])
            and takes(
                node,
                member,
                [*_on(left, node), *assigned[node.name], *_keeping(world, node, member)],
            )
        ]
        if not feasible:
            return Outcome({}, frozenset())
        best = min(feasible, key=lambda node: (cost.get(node.name, 0), node.name))
        assigned[best.name].append(member)
    victims: set[str] = set()
    for node in nodes:
        members = assigned[node.name]
        if not members:
            continue
        held = _on(left, node)
        for pod in sorted(
            possible.get(node.name, ()),
            key=lambda p: (-p.priority, p.labels.get(JOB_KEY, ""), p.name),
        ):
            if _all_fit(world, node, [*held, pod], members):
                held.append(pod)
            else:
                victims.add(pod.name)
    placed = {pod.name: name for name, pods in assigned.items() for pod in pods}
    return Outcome(placed, frozenset(victims))


def _all_fit(world: World, node: Node, present: Sequence[Pod], members: Sequence[Pod]) -> bool:
    held = list(present)
    for member in members:
        kept = _keeping(world, node, member)
        if not takes(node, member, held) or not takes(node, member, [*held, *kept]):
            return False
        held.append(member)
    return True


def faults(world: World, outcome: Outcome) -> list[str]:
    """What is wrong with an outcome, in words."""
    pods = {pod.name: pod for pod in world.pods}
    if not outcome.nodes:
        return ["somebody is evicted for nothing"] if outcome.victims else []
    wrong = [f"{pod.name} has no node" for pod in world.members if pod.name not in outcome.nodes]
    wrong += [f"{name} may not go" for name in outcome.victims if not may_go(world, pods[name])]
    if wrong:
        return wrong
    if not _holds(world, outcome, outcome.victims):
        wrong.append("a node is overfilled")
    for name in sorted(outcome.victims):
        if _holds(world, outcome, outcome.victims - {name}):
            wrong.append(f"{name} could stay")
    return wrong


def least(world: World) -> tuple[int, int, int] | None:
    """The top priority, number and sum of priorities of the cheapest victims; None without any.

    All sets of victims are tried, few first, and all ways to place the members. Nobody at all: the
    lowest top priority.
    """
    candidates = [pod for pod in world.pods if pod.node and may_go(world, pod)]
    if _fits(world, world.pods):
        return -(2**63), 0, 0
    for top in sorted({pod.priority for pod in candidates}):
        below = [pod for pod in candidates if pod.priority <= top]
        gone = {pod.name for pod in below}
        if not _fits(world, [pod for pod in world.pods if pod.name not in gone]):
            continue
        for count in range(1, len(below) + 1):
            sums = [
                sum(pod.priority for pod in victims)
                for victims in combinations(below, count)
                if _fits(world, [pod for pod in world.pods if pod not in victims])
            ]
            if sums:
                return top, count, min(sums)
    return None


def _fits(world: World, left: Sequence[Pod], assigned: Mapping[str, str] | None = None) -> bool:
    """Whether all members find a node beside these pods."""
    taken = dict(assigned or {})
    if len(taken) == len(world.members):
        return True
    member = world.members[len(taken)]
    for node in world.nodes:
        here = [pod for pod in world.members if taken.get(pod.name) == node.name]
        if _all_fit(world, node, _on(left, node), [*here, member]) and _fits(
            world, left, {**taken, member.name: node.name}
        ):
            return True
    return False


def _holds(world: World, outcome: Outcome, victims: frozenset[str]) -> bool:
    left = [pod for pod in world.pods if pod.name not in victims]
    for node in world.nodes:
        members = [pod for pod in world.members if outcome.nodes[pod.name] == node.name]
        if not _all_fit(world, node, _on(left, node), sorted(members, key=lambda p: p.name)):
            return False
    return True
