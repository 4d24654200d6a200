"""Why a workload can never have its quota: no flavor suits it, or it requests more than there is.

Source: specification of the quota plane, sections 3 and 5.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from reprieve.engine.diagnosis.causes import CAUSE, Cause
from reprieve.engine.diagnosis.quota_shortages import Asking, accepted_flavors, askings
from reprieve.engine.diagnosis.quota_trial import Trial
from reprieve.engine.diagnosis.quota_usage import ceiling_text
from reprieve.engine.quota.holdings.amounts import capacity_text, text
from reprieve.engine.quota.model import (
    ClusterQueue,
    Configuration,
    FlavorResource,
    PodSet,
    Workload,
)
from reprieve.units.counts import of_resource

__all__ = ["named_pod_sets", "no_flavor", "too_much"]


def no_flavor(trial: Trial, workload: Workload) -> dict[str, str]:
    """Return why no flavor suits it: a resource, a level, or what nodes its pods accept."""
    snapshot = trial.snapshot
    name = snapshot.tree.names[trial.queue]
    config = snapshot.configuration.cluster_queues[name]
    if not snapshot.settings.ignore_undeclared:
        for asking in askings(snapshot, workload, config):
            lacks = [each for each in asking.amounts if config.group_of(each) is None]
            if lacks:
                values = {"cluster_queue": name, "resources": ", ".join(lacks)}
                return {CAUSE: Cause.NOT_COVERED, **values}
    for pod_set in workload.pod_sets:
        found = _without_level(snapshot.configuration, config, pod_set)
        if found:
            return {**found, "cluster_queue": name}
    values = {"why": trial.assignment.message}
    differs = "; ".join(dict.fromkeys(_differences(trial, workload)))
    return values | ({"differs": differs} if differs else {})


def _without_level(
    configuration: Configuration, queue: ClusterQueue, pod_set: PodSet
) -> dict[str, str]:
    """Return the cause where no topology of the queue has a level that the pods request."""
    request = pod_set.topology
    if request is None or not request.explicit:
        return {}
    wanted = [request.required or request.preferred, *(each.level for each in request.layers)]
    named = dict.fromkeys(each.flavor for group in queue.groups for each in group.flavors)
    flavors = [configuration.flavors[name] for name in named if name in configuration.flavors]
    if not any(each.topology for each in flavors):
        level = next(filter(None, wanted), "one")
        return {CAUSE: Cause.NO_TOPOLOGY, "level": level}
    topologies = {
        each.topology: configuration.topologies[each.topology].levels
        for each in flavors
        if each.topology in configuration.topologies
    }
    missing = next(
        (level for level in wanted if level and not any(level in t for t in topologies.values())),
        "",
    )
    if not missing or not topologies:
        return {}
    texts = [f"{name} has {' and '.join(levels)}" for name, levels in topologies.items()]
    return {
        CAUSE: Cause.LEVEL_MISSING,
        "level": missing,
        "levels": ", ".join(dict.fromkeys(each for t in topologies.values() for each in t)),
        "topologies": "; ".join(texts),
    }


def _differences(trial: Trial, workload: Workload) -> Iterator[str]:
    """Yield in which labels flavors of the queue differ from what the pods' nodes are to have."""
    snapshot = trial.snapshot
    config = snapshot.configuration.cluster_queues[snapshot.tree.names[trial.queue]]
    flavors = dict.fromkeys(each.flavor for group in config.groups for each in group.flavors)
    for name in flavors:
        flavor = snapshot.configuration.flavors.get(name)
        if flavor is None:
            continue
        for pod_set in workload.pod_sets:
            for key, value in pod_set.node_selector.items():
                if flavor.labels.get(key, value) != value:
                    has = f"{key}={flavor.labels[key]}"
                    yield f"flavor {name} has {has}, its pods request {key}={value}"


def too_much(trial: Trial, workload: Workload) -> dict[str, str]:
    """Return what it needs and what the queue can have, of the resources that exceed that."""
    snapshot = trial.snapshot
    config = snapshot.configuration.cluster_queues[snapshot.tree.names[trial.queue]]
    asked = askings(snapshot, workload, config)
    alone = [each for each in asked if _excess(trial, each)]
    if not alone:
        # Each of its pod sets fits by itself.
        pod_sets = tuple(pod_set for each in asked for pod_set in each.pod_sets)
        amounts: Counter[str] = Counter()
        for each in asked:
            amounts.update(each.amounts)
        alone = [Asking(pod_sets, dict(sorted(amounts.items())))]
    excess = _excess(trial, alone[0])
    needs = [of_resource(text(name, alone[0].amounts[name]), name) for name in excess]
    ceilings = [of_resource(capacity_text(name, most), name) for name, most in excess.items()]
    ceiling = f"{', '.join(ceilings)} at most"
    if len(excess) == 1:
        pair = _widest(trial, alone[0], next(iter(excess)))
        ceiling += "" if pair is None else f": {ceiling_text(snapshot, trial.queue, pair)}"
    values = {"needs": ", ".join(needs), "ceiling": ceiling}
    return values | named_pod_sets(workload, (each.name for each in alone[0].pod_sets))


def named_pod_sets(workload: Workload, names: Iterable[str]) -> dict[str, str]:
    """Return the value that names pod sets, nothing where there is one only."""
    if len(workload.pod_sets) < 2:
        return {}
    known = [*dict.fromkeys(names)]
    said = " and ".join(filter(None, (", ".join(known[:-1]), *known[-1:])))
    return {"pod_sets": f"{'pod set' if len(known) == 1 else 'pod sets'} {said}"} if known else {}


def _widest(trial: Trial, asking: Asking, resource: str) -> FlavorResource | None:
    """Return of which flavor the queue can have most of a resource."""
    snapshot, tree = trial.snapshot, trial.snapshot.tree
    config = snapshot.configuration.cluster_queues[tree.names[trial.queue]]
    group = config.group_of(resource)
    flavors = () if group is None else accepted_flavors(snapshot, asking, group)
    pairs = [FlavorResource(each, resource) for each in flavors]
    return max(pairs, key=lambda each: tree.potential[tree.column(each)][trial.queue], default=None)


def _excess(trial: Trial, asking: Asking) -> dict[str, int]:
    """Return what the queue can have at most of each resource of which more is requested."""
    snapshot, tree = trial.snapshot, trial.snapshot.tree
    config = snapshot.configuration.cluster_queues[tree.names[trial.queue]]
    found = {}
    for group in config.groups:
        for resource in sorted(asking.amounts.keys() & set(group.covered)):
            most = max(
                (
                    tree.potential[tree.column(FlavorResource(each, resource))][trial.queue]
                    for each in accepted_flavors(snapshot, asking, group)
                ),
                default=0,
            )
            if asking.amounts[resource] > most:
                found[resource] = most
    return found
