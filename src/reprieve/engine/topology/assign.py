"""Which domains the pod sets of a workload get on one flavor, one after the other.

Each result is in use for the next pod set; the first that gets none ends it. Two pod sets of one
group are placed together: the one with fewer pods is the leader and counts as one pod.

Source: specification of topology-aware scheduling, sections 3, 4 and 6.7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from reprieve.engine.quota.assigning.constraints import Toleration
from reprieve.engine.topology.balanced import balance
from reprieve.engine.topology.counts import Counts, roll_up
from reprieve.engine.topology.descent import Share, descend, divide
from reprieve.engine.topology.leaves import Leaves, Pods, look_at
from reprieve.engine.topology.model import (
    DEFAULT_GATES,
    Domain,
    Layer,
    Outcome,
    PodsWanted,
    TopologyAssignment,
    TopologyGates,
    TopologyRequest,
)
from reprieve.engine.topology.orders import Rules
from reprieve.engine.topology.requests import Meant, TopologyRequestError, meaning
from reprieve.engine.topology.search import NoRoom, find
from reprieve.engine.topology.tree import Marks, Tree, Usage

__all__ = [
    "Placing",
    "assign",
    "counted",
    "groups_of",
    "led",
    "merged",
    "place",
    "without",
]


@dataclass(frozen=True, slots=True)
class Placing:
    """What assignments are made on: the tree, what is in use, the flavor's tolerations, gates.

    `usage` is empty where all usage of topologies is to be ignored.
    """

    tree: Tree
    usage: tuple[Usage, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    gates: TopologyGates = DEFAULT_GATES


def assign(on: Placing, wanted: Sequence[PodsWanted]) -> dict[str, Outcome]:
    """Return what each pod set gets, up to the first that gets nothing."""
    assumed = Usage(on.tree)
    found: dict[str, Outcome] = {}
    groups = groups_of(wanted)
    for position, group in enumerate(groups):
        outcomes = _of_group(on, group, assumed)
        found.update(outcomes)
        if any(each.assignment is None for each in outcomes.values()):
            break
        if position == len(groups) - 1:
            break
        for each in group:
            placed = outcomes[each.name].assignment
            if placed is not None:
                assumed.add(placed, each.requests)
    return found


def groups_of(wanted: Sequence[PodsWanted]) -> list[list[PodsWanted]]:
    """Return the pod sets that are placed together, in their order."""
    together: dict[str, list[PodsWanted]] = {}
    for position, each in enumerate(wanted):
        if each.count > 0:
            key = f"group/{each.group}" if each.group else f"single/{position}"
            together.setdefault(key, []).append(each)
    return [*together.values()]


def led(group: Sequence[PodsWanted]) -> tuple[PodsWanted, PodsWanted | None]:
    """Return the workers of a group, and their leader where it has one."""
    if len(group) == 1:
        return group[0], None
    leader, workers = group[0], group[1]
    return (leader, workers) if workers.count <= leader.count else (workers, leader)


def _of_group(on: Placing, group: Sequence[PodsWanted], assumed: Usage) -> dict[str, Outcome]:
    workers, leader = led(group)
    if on.gates.elastic and workers.previous is not None:
        return _resized(on, workers, leader, assumed)
    return place(on, workers, leader, assumed)


def place(
    on: Placing,
    workers: PodsWanted,
    leader: PodsWanted | None,
    assumed: Usage,
    inside: Marks | None = None,
    meant: Meant | None = None,
) -> dict[str, Outcome]:
    """Return what one pod set, or workers and their leader, get.

    Args:
        on: what it is placed on.
        workers: the pod set; its constraints are those of its leader, too.
        leader: the smaller pod set of the group.
        assumed: what pod sets before it use.
        inside: the leaves that a replacement may not leave; None is all.
        meant: what the request means where that is known already.
    """
    names = [workers.name] if leader is None else [workers.name, leader.name]
    try:
        meant = meant or meaning(workers, on.tree.levels)
    except TopologyRequestError as fault:
        return {name: Outcome(None, str(fault)) for name in names}
    leaves, counts = counted(on, workers, leader, assumed, meant, inside)
    leaders = 0 if leader is None else 1
    shares = _shares(on, counts, leaves, workers, leaders, meant, _rules(on, meant))
    if isinstance(shares, NoRoom):
        reason = _reason(on.tree, counts, leaves, workers, meant, shares)
        return {name: Outcome(None, reason) for name in names}
    found = {workers.name: Outcome(_written(on.tree, [(e.domain, e.pods) for e in shares]))}
    if leader is not None:
        led = _written(on.tree, [(e.domain, e.leaders) for e in shares])
        found[leader.name] = Outcome(led)
    return found


def _rules(on: Placing, meant: Meant) -> Rules:
    mixed = meant.anywhere and on.gates.profile_mixed
    return Rules(mixed, on.gates.respect_preferred_affinity)


def counted(
    on: Placing,
    workers: PodsWanted,
    leader: PodsWanted | None,
    assumed: Usage,
    meant: Meant,
    inside: Marks | None = None,
) -> tuple[Leaves, list[Counts]]:
    """Return what the leaves, and the domains by level from the widest, fit."""
    leaves = look_at(
        on.tree,
        Pods(workers, _with_itself(workers), None if leader is None else _with_itself(leader)),
        (*on.usage, assumed),
        on.tolerations,
        inside,
        _rules(on, meant).affinity,
    )
    return leaves, roll_up(on.tree, leaves, meant.slicing, 0 if leader is None else 1)


def _shares(
    on: Placing,
    counts: Sequence[Counts],
    leaves: Leaves,
    workers: PodsWanted,
    leaders: int,
    meant: Meant,
    rules: Rules,
) -> list[Share] | NoRoom:
    slicing = meant.slicing
    need = workers.count // slicing.size
    if on.gates.balanced_placement and need and meant.climbs and not rules.least_free:
        balanced = balance(on.tree, counts, meant.level, need, leaders, slicing)
        if balanced is not None:
            shares = divide(
                on.tree, balanced.counts, balanced.level, list(balanced.shares), slicing, rules
            )
            if sum(each.pods for each in shares) == need * slicing.size:
                return shares
    found = find(counts, meant.level, need, leaders, rules, meant.required, meant.climbs)
    if isinstance(found, NoRoom):
        return found
    return descend(
        on.tree, counts, found.level, found.domains, workers.count, leaders, slicing, rules
    )


def _with_itself(wanted: PodsWanted) -> Mapping[str, int]:
    return {**wanted.requests, "pods": wanted.requests.get("pods", 0) + 1}


def _written(tree: Tree, shares: Sequence[tuple[int, int]]) -> TopologyAssignment:
    """Return an assignment of (leaf, pods); leaves are numbered in the order of their values."""
    pods: dict[int, int] = {}
    for leaf, count in shares:
        if count > 0:
            pods[leaf] = pods.get(leaf, 0) + count
    written = tree.written
    domains = tuple([Domain(written[leaf], pods[leaf]) for leaf in sorted(pods)])
    return TopologyAssignment(tree.written_levels(), domains)


def merged(tree: Tree, left: TopologyAssignment, right: TopologyAssignment) -> TopologyAssignment:
    """Return both together; domains that the tree has not are left out."""
    return _written(
        tree,
        [
            (tree.index[each.values], each.count)
            for each in (*left.domains, *right.domains)
            if each.values in tree.index
        ],
    )


def without(assignment: TopologyAssignment, values: tuple[str, ...]) -> TopologyAssignment:
    """Return it without one domain."""
    kept = tuple(each for each in assignment.domains if each.values != values)
    return TopologyAssignment(assignment.levels, kept)


def _resized(
    on: Placing, workers: PodsWanted, leader: PodsWanted | None, assumed: Usage
) -> dict[str, Outcome]:
    """Return what the larger or smaller slice of an elastic job gets: its old places first."""
    previous = workers.previous
    assert previous is not None
    request = workers.request or TopologyRequest()
    word = "required" if request.required else "preferred" if request.preferred else ""
    names = [workers.name] if leader is None else [workers.name, leader.name]
    if word:
        fault = f"{word} topology is not supported with ElasticJobsViaWorkloadSlices"
        return {name: Outcome(None, fault) for name in names}
    led = leader.previous if leader is not None else None
    held = [each for each in (previous, led) if each is not None]
    if any(domain.values not in on.tree.index for each in held for domain in each.domains):
        return place(on, workers, leader, assumed)
    if leader is not None and led is None:
        return place(on, workers, leader, assumed)
    found = {} if leader is None else {leader.name: Outcome(led)}
    more = workers.count - previous.pods
    if more == 0:
        return {workers.name: Outcome(previous), **found}
    if more < 0:
        return {workers.name: Outcome(_cut(previous, workers.count)), **found}
    theirs = assumed.copy()
    theirs.add(previous, workers.requests)
    if leader is not None and led is not None:
        theirs.add(led, leader.requests)
    added = place(on, replace(workers, count=more, previous=None), None, theirs)[workers.name]
    if added.assignment is None:
        return dict.fromkeys(names, added)
    return {workers.name: Outcome(merged(on.tree, previous, added.assignment)), **found}


def _cut(assignment: TopologyAssignment, count: int) -> TopologyAssignment:
    kept, left = [], count
    for each in assignment.domains:
        if left <= 0:
            break
        kept.append(Domain(each.values, min(left, each.count)))
        left -= each.count
    return TopologyAssignment(assignment.levels, tuple(kept))


def _reason(
    tree: Tree,
    counts: Sequence[Counts],
    leaves: Leaves,
    workers: PodsWanted,
    meant: Meant,
    end: NoRoom,
) -> str:
    if end.empty:
        return f"no topology domains at level: {tree.levels[end.level]}"
    slicing = meant.slicing
    need = workers.count // slicing.size
    if len(meant.layers) > 1:
        fits = _by_layers(tree, counts, meant.layers, workers.count, end.level)
        text = f'topology "{tree.name}" doesn\'t allow to fit' + fits
    else:
        unit = "pod(s)" if slicing.size == 1 else "slice(s)"
        text = f'topology "{tree.name}" '
        if end.fits:
            text += f"allows to fit only {end.fits} out of {need} {unit}"
        else:
            text += f"doesn't allow to fit any of {need} {unit}"
    excluded = leaves.excluded
    if not excluded:
        return text
    why = ", ".join(sorted(f"{word}: {times}" for word, times in excluded.items()))
    return f"{text}. Total nodes: {len(tree.paths)}; excluded: {why}"


def _by_layers(
    tree: Tree, counts: Sequence[Counts], layers: Sequence[Layer], wanted: int, level: int
) -> str:
    """Return how many slices of each layer fit the domain of `level` that has most of them."""
    slices = counts[level].slices
    best = int(slices.argmax())
    text = ""
    for each in layers:
        at = tree.levels.index(each.level)
        begin, end = best, best + 1
        for step in range(level, at):
            begin, end = int(tree.starts[step][begin]), int(tree.starts[step][end])
        fit = int((counts[at].pods[begin:end] // each.size).sum())
        needed = wanted // each.size
        text += f"; {fit}/{needed} slice(s) fit on level {each.level}"
    return text
