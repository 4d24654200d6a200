"""The page Queues: the tree of cohorts and ClusterQueues, what each has, uses, borrows and lends.

Table `queues`, a row for each queue and resource in a flavor: queue, kind, parent, depth, flavor,
resource, nominal, used, borrowed, lent, borrowingLimit, lendingLimit. Table `shares`: queue, kind,
parent, depth, weight, share, arithmetic, pending, admitted, stopped, message. Table `reclaimable`,
of borrowing queues, the first to be evicted first: unit, queue, amount, borrowed, priority, since.
Viewers of single namespaces see the queues that their LocalQueues lead to, with their own work
alone. The row of a cohort adds up those below it, and its own nominal quota.

Weighted share: of each resource what is borrowed, in thousandths of what the cohort can lend; the
largest counts, divided by the weight. Source: specification of the quota plane, fair sharing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.mirror.queues import QueueRecord, Quota, WorkloadRecord, WorkloadState
from reprieve.web.pages.asked import Asked, asked_of, one, whole
from reprieve.web.tables import (
    Cell,
    Column,
    Kind,
    NotFound,
    Page,
    Parameters,
    Table,
    Viewer,
    seconds,
)

__all__ = ["page"]

_QUEUES: Final = (
    Column("queue", Kind.TEXT),
    Column("kind", Kind.WORD),
    Column("parent", Kind.TEXT),
    Column("depth", Kind.NUMBER),
    Column("flavor", Kind.TEXT),
    Column("resource", Kind.TEXT),
    Column("nominal", Kind.NUMBER),
    Column("used", Kind.NUMBER),
    Column("borrowed", Kind.NUMBER),
    Column("lent", Kind.NUMBER),
    Column("borrowingLimit", Kind.NUMBER),
    Column("lendingLimit", Kind.NUMBER),
)
_SHARES: Final = (
    Column("queue", Kind.TEXT),
    Column("kind", Kind.WORD),
    Column("parent", Kind.TEXT),
    Column("depth", Kind.NUMBER),
    Column("weight", Kind.NUMBER),
    Column("share", Kind.NUMBER),
    Column("arithmetic", Kind.TEXT),
    Column("pending", Kind.NUMBER),
    Column("admitted", Kind.NUMBER),
    Column("stopped", Kind.FLAG),
    Column("message", Kind.TEXT),
)
_RECLAIMABLE: Final = (
    Column("unit", Kind.UNIT),
    Column("queue", Kind.TEXT),
    Column("amount", Kind.NUMBER),
    Column("borrowed", Kind.NUMBER),
    Column("priority", Kind.NUMBER),
    Column("since", Kind.INSTANT),
)
_MOST_RECLAIMABLE: Final = 200
_QUEUE: Final = "ClusterQueue"
_COHORT: Final = "Cohort"

_Usage = Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class _Tree:
    """Who is below whom, and what each ClusterQueue's Workloads use, await and are."""

    cohorts: dict[str, QueueRecord | None]
    queues: dict[str, QueueRecord]
    children: dict[str, list[tuple[str, str]]]
    usage: dict[str, Counter[tuple[str, str]]]
    pending: Counter[str]
    admitted: Counter[str]


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of the tree; `record` None for a cohort without an object of its own."""

    kind: str
    name: str
    parent: str
    depth: int
    record: QueueRecord | None

    @property
    def cohort(self) -> bool:
        """Whether it is a Cohort."""
        return self.kind == _COHORT


def page(mirror: Mirror, viewer: Viewer, parameters: Parameters, at: Nanos) -> Page:
    """Return the tree of queues; `name` restricts it to one ClusterQueue or Cohort and those below.

    Raises:
        InvalidParameter: as of `asked_of`.
        NotFound: there is no such queue, or none that the viewer may know.
    """
    asked = asked_of(mirror, parameters)
    tree = _tree(mirror, viewer)
    walked = _walk(tree)
    if root := one(parameters, "name"):
        walked = _below(walked, root)
        if not walked:
            raise NotFound(f"there is no ClusterQueue or Cohort {root!r}")
    rows: dict[str, tuple[Cell, ...]] = {}
    for each in walked:
        rows.update(_rows(tree, each, asked.resource))
    names = {each.name for each in walked if not each.cohort}
    return Page(
        {
            "resource": asked.resource,
            "resources": list(asked.resources),
            "unseen": list(mirror.unseen),
        },
        {
            "queues": Table(_QUEUES, rows),
            "shares": Table(
                _SHARES, {f"{each.kind}/{each.name}": _share(tree, each) for each in walked}
            ),
            "reclaimable": Table(
                _RECLAIMABLE, dict(_reclaimable(mirror, tree, names, viewer, asked))
            ),
        },
    )


def _tree(mirror: Mirror, viewer: Viewer) -> _Tree:
    """Return the whole tree; for viewers of some namespaces their queues, and no more of them."""
    if viewer.sees_all:
        queues = {each.name: each for each in mirror.cluster_queues}
        cohorts: dict[str, QueueRecord | None] = {each.name: each for each in mirror.cohorts}
    else:
        doors = {each.cluster_queue for each in mirror.local_queues if viewer.sees(each.namespace)}
        queues = {
            each.name: replace(each, parent="", quotas=(), share=None, weight=1000, message="")
            for each in mirror.cluster_queues
            if each.name in doors
        }
        cohorts = {}
    for door in mirror.local_queues:
        # A ClusterQueue that may not be read, or is not there, is known by who leads to it.
        if door.cluster_queue and viewer.sees(door.namespace):
            queues.setdefault(door.cluster_queue, _unknown(door.cluster_queue))
    children: dict[str, list[tuple[str, str]]] = {}
    for name, cohort in sorted(cohorts.items()):
        if cohort is not None and cohort.parent:
            children.setdefault(cohort.parent, []).append((_COHORT, name))
    for name, queue in sorted(queues.items()):
        children.setdefault(queue.parent, []).append((_QUEUE, name))
    # A cohort need not have an object of its own.
    for parent in children:
        if parent:
            cohorts.setdefault(parent, None)
    usage: dict[str, Counter[tuple[str, str]]] = {}
    pending: Counter[str] = Counter()
    admitted: Counter[str] = Counter()
    for each in mirror.workloads:
        if not viewer.sees(each.namespace):
            continue
        if each.state.holds:
            total = usage.setdefault(each.cluster_queue, Counter())
            for flavor, resource, amount in each.held:
                total[flavor, resource] += amount
            admitted[each.cluster_queue] += 1
        elif each.state is WorkloadState.PENDING:
            pending[mirror.cluster_queue_of(each.namespace, each.queue)] += 1
    return _Tree(cohorts, queues, children, usage, pending, admitted)


def _unknown(name: str) -> QueueRecord:
    """Return a ClusterQueue of which nothing but the name is known."""
    return QueueRecord("", "", name, 0, "", (), 1000, None, False, True, "")


def _walk(tree: _Tree) -> list[_Node]:
    """Return every node, parents first; a cycle of cohorts is cut."""
    found: list[_Node] = []
    seen: set[str] = set()

    def go(name: str, parent: str, depth: int) -> None:
        if name in seen:
            return
        seen.add(name)
        found.append(_Node(_COHORT, name, parent, depth, tree.cohorts[name]))
        for kind, child in tree.children.get(name, ()):
            if kind == _COHORT:
                go(child, name, depth + 1)
            else:
                found.append(_Node(_QUEUE, child, name, depth + 1, tree.queues[child]))

    roots = [name for name, each in tree.cohorts.items() if each is None or not each.parent]
    for name in (*sorted(roots), *sorted(tree.cohorts)):
        go(name, "", 0)
    alone = [name for _, name in tree.children.get("", ())]
    return [*found, *(_Node(_QUEUE, name, "", 0, tree.queues[name]) for name in alone)]


def _below(walked: list[_Node], root: str) -> list[_Node]:
    """Return a node and those below it."""
    for at, node in enumerate(walked):
        if node.name == root:
            rest = walked[at + 1 :]
            end = next((n for n, each in enumerate(rest) if each.depth <= node.depth), len(rest))
            return walked[at : at + 1 + end]
    return []


def _rows(tree: _Tree, node: _Node, resource: str) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    quotas = () if node.record is None else node.record.quotas
    used = _used_below(tree, node.name) if node.cohort else tree.usage.get(node.name, Counter())
    own = {(each.flavor, each.resource): each for each in quotas}
    below = _quotas_below(tree, node.name) if node.cohort else {}
    # A queue of which nothing is known, in which nothing runs, is there all the same.
    keys = dict.fromkeys((*own, *sorted(below), *sorted(used))) or {("", resource): None}
    for key in keys:
        quota = own.get(key) or Quota(*key, 0, None, None)
        usage = used.get(key, 0)
        limits = (quota.borrowing_limit, quota.lending_limit)
        cells: tuple[int | None, ...]
        if node.cohort:
            nominal, borrowed, lent = below.get(key, (0, 0, 0))
            cells = (quota.nominal + nominal, usage, borrowed, lent, *limits)
        else:
            borrowed = max(0, usage - quota.nominal)
            cells = (quota.nominal, usage, borrowed, _lent(tree, node, quota, usage), *limits)
        if not quotas and not node.cohort:
            # What is not known of a queue is not zero.
            cells = (None, usage, None, None, None, None)
        yield (
            f"{node.kind}/{node.name}/{key[0]}/{key[1]}",
            (
                node.name,
                node.kind,
                node.parent,
                node.depth,
                *key,
                *(None if cell is None else whole(key[1], cell) for cell in cells),
            ),
        )


def _quotas_below(
    tree: _Tree, cohort: str, depth: int = 0
) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Return what the queues and cohorts below have, borrow and lend, by flavor and resource."""
    total: dict[tuple[str, str], tuple[int, int, int]] = {}

    def add(key: tuple[str, str], *amounts: int) -> None:
        before = total.get(key, (0, 0, 0))
        total[key] = (before[0] + amounts[0], before[1] + amounts[1], before[2] + amounts[2])

    for kind, name in tree.children.get(cohort, ()):
        if kind == _COHORT:
            record = tree.cohorts.get(name)
            for each in () if record is None else record.quotas:
                add((each.flavor, each.resource), each.nominal, 0, 0)
            if depth < len(tree.cohorts):
                for key, amounts in _quotas_below(tree, name, depth + 1).items():
                    add(key, *amounts)
            continue
        queue = tree.queues[name]
        node = _Node(_QUEUE, name, cohort, 0, queue)
        for each in queue.quotas:
            key = (each.flavor, each.resource)
            usage = tree.usage.get(name, Counter()).get(key, 0)
            lent = _lent(tree, node, each, usage)
            add(key, each.nominal, max(0, usage - each.nominal), lent)
    return total


def _used_below(tree: _Tree, cohort: str, depth: int = 0) -> Counter[tuple[str, str]]:
    total: Counter[tuple[str, str]] = Counter()
    for kind, name in tree.children.get(cohort, ()):
        if kind == _QUEUE:
            total.update(tree.usage.get(name, Counter()))
        elif depth < len(tree.cohorts):
            total.update(_used_below(tree, name, depth + 1))
    return total


def _lent(tree: _Tree, node: _Node, quota: Quota, usage: int) -> int:
    """Return how much of its unused quota its siblings may have: no more than they borrow."""
    if node.cohort or not node.parent:
        return 0
    unused = max(0, quota.nominal - usage)
    if quota.lending_limit is not None:
        unused = min(unused, quota.lending_limit)
    key = (quota.flavor, quota.resource)
    borrowed = 0
    for kind, sibling in tree.children.get(node.parent, ()):
        if kind == _QUEUE and sibling != node.name:
            own = sum(
                each.nominal
                for each in tree.queues[sibling].quotas
                if (each.flavor, each.resource) == key
            )
            borrowed += max(0, tree.usage.get(sibling, Counter()).get(key, 0) - own)
    return min(unused, borrowed)


def _share(tree: _Tree, node: _Node) -> tuple[Cell, ...]:
    record = node.record
    share, words = (None, "") if node.cohort or record is None else _arithmetic(tree, record)
    return (
        node.name,
        node.kind,
        node.parent,
        node.depth,
        None if record is None else record.weight / 1000,
        share if record is None or record.share is None else record.share,
        words,
        None if node.cohort else tree.pending[node.name],
        None if node.cohort else tree.admitted[node.name],
        record is not None and record.stopped,
        "" if record is None else record.message,
    )


def _arithmetic(tree: _Tree, record: QueueRecord) -> tuple[int | None, str]:
    """Return the weighted share, None where it has no bound, and how it comes about in words."""
    if not record.parent:
        return None, ""
    borrowed: Counter[str] = Counter()
    usage = tree.usage.get(record.name, Counter())
    own = {(each.flavor, each.resource): each.nominal for each in record.quotas}
    for key, amount in usage.items():
        borrowed[key[1]] += max(0, amount - own.get(key, 0))
    lendable: Counter[str] = Counter()
    for kind, name in tree.children.get(record.parent, ()):
        for each in tree.queues[name].quotas if kind == _QUEUE else ():
            limit = each.nominal if each.lending_limit is None else each.lending_limit
            lendable[each.resource] += min(each.nominal, limit)
    cohort = tree.cohorts.get(record.parent)
    for each in cohort.quotas if cohort is not None else ():
        lendable[each.resource] += each.nominal
    parts = [
        (amount * 1000 / lendable[resource], resource, amount)
        for resource, amount in borrowed.items()
        if amount and lendable[resource]
    ]
    if not parts:
        return 0, "borrows nothing: 0"
    ratio, resource, amount = max(parts)
    weight = record.weight / 1000
    shown = f"{whole(resource, amount)} of {whole(resource, lendable[resource])} {resource}"
    share = ceil(ratio / weight) if weight else None
    equals = "endless" if share is None else str(share)
    return share, f"borrows {shown} that can be lent: {ratio:.0f} / weight {weight:g} = {equals}"


def _reclaimable(
    mirror: Mirror, tree: _Tree, names: set[str], viewer: Viewer, asked: Asked
) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    found: list[tuple[WorkloadRecord, int, int]] = []
    borrowed = {name: _borrowed(tree, name, asked.resource) for name in names}
    for each in mirror.workloads:
        over = borrowed.get(each.cluster_queue, 0) if each.state.holds else 0
        amount = sum(held for _, resource, held in each.held if resource == asked.resource)
        if over and amount and asked.shows(viewer, each.namespace):
            found.append((each, amount, over))
    # The lowest priority is evicted first, and of those what was admitted last.
    found.sort(key=lambda each: (each[0].priority, -each[0].since, each[0].uid))
    for workload, amount, over in found[:_MOST_RECLAIMABLE]:
        yield (
            workload.uid,
            (
                workload.unit,
                workload.cluster_queue,
                whole(asked.resource, amount),
                whole(asked.resource, over),
                workload.priority,
                seconds(workload.since),
            ),
        )


def _borrowed(tree: _Tree, name: str, resource: str) -> int:
    own: _Usage = {(each.flavor, each.resource): each.nominal for each in tree.queues[name].quotas}
    # What a queue borrows is unknown where its quotas are not known.
    usage = tree.usage.get(name, Counter()) if own else Counter()
    return sum(
        max(0, amount - own.get(key, 0)) for key, amount in usage.items() if key[1] == resource
    )
