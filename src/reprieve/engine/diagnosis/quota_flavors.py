"""Other flavors for a workload than its queue chooses: by selectors of its pods, or by the queue.

A queue gives flavors to one pod set after the other, each the first that does, so that an earlier
pod set may have what only the last could have used. Source: specification of the quota plane,
sections 5.1 and 5.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, permutations, product
from typing import Final

from reprieve.engine.diagnosis.quota_shortages import accepted_flavors, askings
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.model import ClusterQueue, Fungibility, Workload
from reprieve.engine.quota.targets.candidates import Preemptor

__all__ = ["other_choices", "selections"]

#: So many choices are tried: each is a decision.
_TRIED: Final = 16


def selections(
    snapshot: Snapshot, queue: ClusterQueue, who: Preemptor
) -> Iterator[tuple[str, Workload]]:
    """Yield flavors by pod set, with the workload whose pods select them by their labels."""
    if max((len(each.flavors) for each in queue.groups), default=0) < 2:
        return
    wanted = askings(snapshot, who.workload, queue)
    known = snapshot.configuration.flavors
    choices = [
        [
            flavor
            for group in queue.groups
            if any(name in group.covered for name in asking.amounts)
            for flavor in accepted_flavors(snapshot, asking, group)
            if known[flavor].labels
        ]
        or [""]
        for asking in wanted
    ]
    for chosen in islice(product(*choices), _TRIED):
        pairs = [(asking, flavor) for asking, flavor in zip(wanted, chosen, strict=True) if flavor]
        selectors = {
            pod_set.name: known[flavor].labels
            for asking, flavor in pairs
            for pod_set in asking.pod_sets
        }
        pod_sets = tuple(
            replace(each, node_selector={**each.node_selector, **selectors.get(each.name, {})})
            for each in who.workload.pod_sets
        )
        selected = ", ".join(
            f"{flavor} for {asking.names}" if len(wanted) > 1 else flavor
            for asking, flavor in pairs
        )
        if pairs:
            yield selected, replace(who.workload, pod_sets=pod_sets)


def other_choices(queue: ClusterQueue) -> Iterator[tuple[str, ClusterQueue]]:
    """Yield what may be changed in the choice of flavors by a queue, with the queue as it is then.

    The order of the flavors of one group comes first, then the scan.
    """
    for place, group in enumerate(queue.groups):
        for flavors in islice(permutations(group.flavors), 1, _TRIED):
            groups = list(queue.groups)
            groups[place] = replace(group, flavors=flavors)
            order = ", ".join(each.flavor for each in flavors)
            yield f"its flavors in the order {order}", replace(queue, groups=tuple(groups))
    for borrow, preempt in product(Fungibility, Fungibility):
        wanted = replace(queue.fungibility, when_can_borrow=borrow, when_can_preempt=preempt)
        changes = []
        if borrow is not queue.fungibility.when_can_borrow:
            changes.append(f"whenCanBorrow: {borrow}")
        if preempt is not queue.fungibility.when_can_preempt:
            changes.append(f"whenCanPreempt: {preempt}")
        if changes:
            setting = f"`flavorFungibility` {', '.join(changes)}"
            yield setting, replace(queue, fungibility=wanted)
