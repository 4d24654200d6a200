"""Who is preempted, by brute force: group preemptors (section 7) and plain pods (section 8).

Every reprieve runs all filters of all placed members anew on the whole cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tests.oracle.scheduling import filters, harm, objects, placement, placements, reach, units
from tests.oracle.scheduling.filters import Refusal
from tests.oracle.scheduling.objects import Cluster, Object, key_of, name_of
from tests.oracle.scheduling.units import Unit

NEVER = "not eligible due to preemptionPolicy=Never."
NO_VICTIMS_GROUP = "No preemption victims found for incoming preemptor"
NO_VICTIMS_POD = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"


class Choice(NamedTuple):
    """What preemption came to. `nominated` of None: leave nominations as they are.

    `units`: the victims by unit. `settled`: the rules leave no other choice; otherwise whoever
    decides may have searched for a better one.
    """

    code: str
    message: str
    victims: tuple[str, ...] = ()
    nominated: dict[str, str] | None = None
    violations: int = 0
    disruptions: int = 0
    scheduling: placement.Attempt | None = None
    candidates: tuple[Candidate, ...] = ()
    refused_nodes: Mapping[str, tuple[str, str]] = {}
    winners: tuple[str, ...] = ()
    units: tuple[tuple[str, ...], ...] = ()
    settled: bool = True


class Candidate(NamedTuple):
    node: str
    victims: tuple[Object, ...]
    violations: int
    disruptions: int


def reprieved(
    potential: list[Unit],
    emptied: Cluster,
    fits: Callable[[Cluster], bool],
) -> tuple[list[Unit], int]:
    """Section 7.7: the units that stay victims in order of importance, and their violations."""
    ordered = sorted(potential, key=units.importance)
    violating, others = units.split_by_budget(ordered, emptied.every("pdbs"))
    cluster, victims = emptied, []
    for index in [*violating, *others]:
        back = cluster.adding(ordered[index].pods)
        if fits(back):
            cluster = back
        else:
            victims.append(index)
    violations = sum(violating.get(i, 0) for i in victims)
    return [ordered[i] for i in sorted(victims)], violations


def group_policy(group: Object, members: list[Object], cluster: Cluster) -> str:
    if cluster.gate("PodGroupPreemptionPolicy"):
        return str(group["spec"].get("preemptionPolicy") or "PreemptLowerPriority")
    never = any(p["spec"].get("preemptionPolicy") == "Never" for p in members)
    return "Never" if never else "PreemptLowerPriority"


def preempt_for_group(
    group: Object,
    members: list[Object],
    cluster: Cluster,
    imposed: Mapping[str, str] | None = None,
) -> Choice:
    """Section 7 over the whole cluster; messages without prefix."""
    early = without_simulation(group, members, cluster)
    return early or select_in_cluster(group, members, cluster, imposed)


def preempting_priority(group: Object, members: list[Object], cluster: Cluster) -> int:
    """The group's priority; of a tree the lowest one that counts for a waiting pod of it."""
    if not units.composite(group, cluster):
        return objects.own_priority(group)
    return min(units.named_priority(member, cluster) for member in members)


def without_simulation(group: Object, members: list[Object], cluster: Cluster) -> Choice | None:
    """Section 7.1: what is decided before any simulation."""
    if group_policy(group, members, cluster) == "Never":
        return Choice("Unschedulable", NEVER)
    priority = preempting_priority(group, members, cluster)
    present = {key_of(p): objects.nominated_node(p) for p in members}
    if any(_blocks(p, set(present.values()), priority, cluster) for p in cluster.live):
        return Choice("Success", "ongoing preemption on nominated nodes", nominated=present)
    return None


def select_in_cluster(
    group: Object,
    members: list[Object],
    cluster: Cluster,
    imposed: Mapping[str, str] | None = None,
) -> Choice:
    """Sections 7.3 to 7.8, for each of the placements that are examined."""
    priority = preempting_priority(group, members, cluster)
    if not any(u.priority < priority for u in units.cluster_units(cluster)):
        return Choice("UnschedulableAndUnresolvable", NO_VICTIMS_GROUP)
    search = placements.examined(group, members, cluster, priority, imposed)
    first = search.attempts[0]
    if first.code != "Success":
        return Choice(first.code, first.text, scheduling=first, settled=search.settled)
    found = [around(attempt, cluster, search.below) for attempt in search.attempts]
    best = placements.least_harmful(found, cluster)._replace(settled=search.settled)
    if cluster.objects.get("harmOrder"):
        without = select_in_cluster(group, members, by_the_kep(cluster), imposed)
        return best if goes_no_further(best, without, cluster) else without
    return best


def by_the_kep(cluster: Cluster) -> Cluster:
    """The same cluster in which nobody asks what is lost."""
    return Cluster({**cluster.objects, "harmOrder": False}, cluster.pods)


def goes_no_further(one: Choice, other: Choice, cluster: Cluster) -> bool:
    """Whether one choice breaks no more budgets, and takes nobody of a higher priority."""
    return reach.within(reach_of(one, cluster), reach_of(other, cluster))


def reach_of(choice: Choice, cluster: Cluster) -> reach.Reach:
    by_key = {key_of(p): p for p in cluster.pods}
    pods = [by_key[key] for key in choice.victims]
    # Whoever has chosen may name the pods of a unit in another order.
    first = [by_key[key] for key in choice.units[0]] if choice.units else pods[:1]
    ordered = [*sorted(first, key=units.importance_of_pod), *(p for p in pods if p not in first)]
    return reach.of_victims(ordered, choice.violations, cluster)


def around(attempt: placement.Attempt, cluster: Cluster, below: int) -> Choice:
    """The victims of lower priority than this that a placement asks for (7.5 to 7.7).

    Groups that would be torn are tried again as one unit each.
    """

    def fits(state: Cluster) -> bool:
        for member, node_name in attempt.placed:
            node = state.one("nodes", node_name)
            assert node is not None
            skipped = attempt.skipped[key_of(member)]
            if filters.refusal_with_nominated(member, node, state, skipped):
                return False
            state = state.adding([objects.assumed(member, node_name)])
        return True

    potential = [u for u in units.cluster_units(cluster) if u.priority < below]
    emptied = cluster.removing(p for u in potential for p in u.pods)
    victims, violations = reprieved(potential, emptied, fits)
    pods = [p for u in victims for p in u.pods]
    if torn := units.torn(map(key_of, pods), cluster):
        return around(attempt, cluster.together(torn), below)
    return Choice(
        "Success",
        f"found a placement for podgroup, preempting {len(pods)} victims",
        tuple(key_of(p) for p in pods),
        {key_of(member): node for member, node in attempt.placed},
        violations,
        sum(u.type != "pod" for u in victims),
        attempt,
        units=tuple(tuple(key_of(p) for p in u.pods) for u in victims),
    )


def _blocks(pod: Object, nodes: set[str], priority: int, cluster: Cluster) -> bool:
    return (
        pod["spec"]["nodeName"] in nodes
        and units.priority_as_victim(pod, cluster) < priority
        and units.terminating_by_preemption(pod)
    )


def may_preempt(pod: Object, cluster: Cluster, nominated_refusal: str | None) -> str | None:
    """Section 8.2: why the pod may not preempt, or None. The refusal is "U", "X" or None."""
    if pod["spec"].get("preemptionPolicy") == "Never":
        return NEVER
    nominated = objects.nominated_node(pod)
    if not nominated or nominated_refusal == "X":
        return None
    priority = units.effective_priority(pod, cluster)
    if any(_blocks(p, {nominated}, priority, cluster) for p in cluster.live):
        return "not eligible due to a terminating pod on the nominated node."
    return None


def victims_on_node(pod: Object, node: Object, cluster: Cluster) -> Candidate | tuple[str, str]:
    """Section 8.4: the candidate, which may be without victims, or the code and text of failure."""
    priority = units.effective_priority(pod, cluster)
    potential = [u for u in units.node_units(node, cluster) if u.priority < priority]
    if not potential:
        return "UnschedulableAndUnresolvable", NO_VICTIMS_POD
    emptied = cluster.removing(p for u in potential for p in u.pods)
    found = filters.refusal_with_nominated(pod, node, emptied)
    if found:
        return _code(found), ", ".join(found.texts)

    def fits(state: Cluster) -> bool:
        return not filters.refusal_with_nominated(pod, node, state)

    victims, violations = reprieved(potential, emptied, fits)
    pods = tuple(p for u in victims for p in u.pods)
    return Candidate(name_of(node), pods, violations, sum(u.type != "pod" for u in victims))


def untorn(pod: Object, candidate: Candidate, cluster: Cluster) -> Candidate | None:
    """The candidate once groups that it would tear go as a whole; None where none is left."""
    torn = units.torn(map(key_of, candidate.victims), cluster)
    if not torn:
        return candidate
    node = cluster.one("nodes", candidate.node)
    assert node is not None
    cluster = cluster.together(torn)
    found = victims_on_node(pod, node, cluster)
    return untorn(pod, found, cluster) if isinstance(found, Candidate) and found.victims else None


def _code(found: Refusal) -> str:
    return "Unschedulable" if found.code == "U" else "UnschedulableAndUnresolvable"


def dry_run(
    pod: Object, nodes: list[Object], cluster: Cluster
) -> tuple[list[Candidate], dict[str, tuple[str, str]]]:
    """All candidates among these nodes, those without violations first, and the failures."""
    candidates, failures = [], {}
    for node in nodes:
        found = victims_on_node(pod, node, cluster)
        if isinstance(found, Candidate) and not found.victims:
            text = f'expected at least one victim pod on node "{name_of(node)}"'
            failures[name_of(node)] = ("Error", text)
        elif isinstance(found, Candidate):
            candidates.append(found)
        else:
            failures[name_of(node)] = found
    return sorted(candidates, key=lambda c: c.violations > 0), failures


def wanted_candidates(nodes: int, percentage: int = 10, absolute: int = 100) -> int:
    return min(nodes, max(nodes * percentage // 100, absolute))


def best_candidates(candidates: list[Candidate], cluster: Cluster) -> list[Candidate]:
    """Section 8.6: all candidates that stay after rule 5."""
    harms = [harm.of_victims(c.victims, c.violations, cluster) for c in candidates]
    return [c for c, each in zip(candidates, harms, strict=True) if each == min(harms)]


def preempt_for_pod(pod: Object, cluster: Cluster, refusals: Mapping[str, str]) -> Choice:
    """Sections 8.1 to 8.6; with `harmOrder` as without it where the victims would go further."""
    found = on_best_node(pod, cluster, refusals)
    if not cluster.objects.get("harmOrder") or found.code != "Success":
        return found
    without = on_best_node(pod, by_the_kep(cluster), refusals)
    if goes_no_further(found, without, cluster):
        return found
    return without._replace(candidates=found.candidates, refused_nodes=found.refused_nodes)


def on_best_node(pod: Object, cluster: Cluster, refusals: Mapping[str, str]) -> Choice:
    """What the candidates come to; `refusals` is U or X per node of the failed Filter phase.

    The message comes without prefix; among equally good nodes the first name is taken.
    """
    ineligible = may_preempt(pod, cluster, refusals.get(objects.nominated_node(pod)))
    if ineligible:
        return Choice("Unschedulable", ineligible)
    # A placed pod that waits for its resize is not to be counted twice.
    cluster = cluster.removing([pod])
    helpful = [n for n in cluster.nodes if refusals.get(name_of(n)) == "U"]
    candidates, failures = dry_run(pod, helpful, cluster)
    if not candidates:
        cleared = {key_of(pod): ""}
        shown = {
            name_of(n): Refusal("", "X", (NOT_HELPFUL,))
            if name_of(n) not in failures
            else Refusal("", "X", tuple(failures[name_of(n)][1].split(", ")))
            for n in cluster.nodes
        }
        text = filters.fit_text(shown, len(cluster.nodes))
        return Choice("Unschedulable", text, nominated=cleared, refused_nodes=failures)
    whole = [found for c in candidates if (found := untorn(pod, c, cluster))]
    winners = best_candidates(whole, cluster)
    winner = min(winners, key=lambda c: c.node)
    return Choice(
        "Success",
        f"found a potential placement for pod on node {winner.node}, "
        f"preempting {len(winner.victims)} victims",
        tuple(key_of(p) for p in winner.victims),
        {key_of(pod): winner.node},
        winner.violations,
        winner.disruptions,
        candidates=tuple(candidates),
        refused_nodes=failures,
        winners=tuple(sorted(c.node for c in winners)),
    )


def refused_with(choice: Choice, cluster: Cluster, pending: list[Object]) -> list[str]:
    """Members that do not pass their filters, in order, once the victims are gone: must be none."""
    by_key = {key_of(p): p for p in pending}
    state = cluster.removing([p for p in cluster.pods if key_of(p) in choice.victims])
    refused = []
    for key, node_name in (choice.nominated or {}).items():
        node = state.one("nodes", node_name)
        if node is None or filters.refusal_with_nominated(by_key[key], node, state):
            refused.append(key)
        state = state.adding([objects.assumed(by_key[key], node_name)])
    return refused


def returnable(choice: Choice, cluster: Cluster, pending: list[Object]) -> list[list[str]]:
    """Victim units that could each be put back alone and leave every placed member its node.

    None after the passes of section 7.7 as long as all constraints are monotone, and none at all
    after a second pass that tries single units to a fixpoint.
    """
    victims = [
        u for u in units.cluster_units(cluster) if any(key_of(p) in choice.victims for p in u.pods)
    ]
    found = []
    for unit in victims:
        keys = [key_of(p) for p in unit.pods]
        fewer = choice._replace(victims=tuple(v for v in choice.victims if v not in keys))
        if not refused_with(fewer, cluster, pending):
            found.append(keys)
    return found
