"""What helps a unit that waits, with the figures of the moment: what is free, where, and how much.

Where a figure states more than the general advice it stands there: what the queue has left, what
the emptiest node has left, how large the largest node is, who is first in the queue. Nothing is
tried by the engine for it, which needs seconds: that is requested on the page of the unit. A viewer
who does not see the whole cluster is given no sums over the work of others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Reason, Trait, with_trait
from reprieve.engine.plan import Plane
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.pages.asked import whole
from reprieve.web.pages.waiters import Waiter, uses_of
from reprieve.web.tables import Viewer
from reprieve.wording.diagnosis import next_step

__all__ = ["Figures", "figures_of", "what_helps"]

_NO_ROOM = with_trait(Trait.FULL_NODES)


@dataclass(frozen=True, slots=True)
class _Nodes:
    """What nodes have of a resource: free in all, the most on one, the largest node."""

    free: int = 0
    most: int = 0
    largest: int = 0


@dataclass(frozen=True, slots=True)
class Figures:
    """What a viewer may see: use and nominal quota by queue and resource, nodes by resource."""

    uses: Mapping[tuple[str, str], tuple[int, int]]
    nodes: Mapping[str, _Nodes]


def figures_of(mirror: Mirror, viewer: Viewer) -> Figures:
    """Return the figures of the moment; none for a viewer of some namespaces."""
    if not viewer.sees_all:
        return Figures({}, {})
    nodes: dict[str, _Nodes] = {}
    for each in mirror.node_sums():
        for name, amount in each.node.amounts.items():
            before = nodes.get(name, _Nodes())
            usable = not each.node.cordoned
            kept = each.held.get(name, 0) + each.claimed.get(name, 0)
            free = max(0, amount - kept) if usable else 0
            nodes[name] = _Nodes(
                before.free + free, max(before.most, free), max(before.largest, amount)
            )
    return Figures(uses_of(mirror), nodes)


def what_helps(waiter: Waiter, figures: Figures) -> str:
    """Return what to do: with figures where they are known, else what helps in general."""
    try:
        reason, plane = Reason(waiter.reason), Plane(waiter.plane)
        general = next_step(Diagnosis(plane, reason, {}))
    except (ValueError, KeyError):
        return ""
    said = ""
    if plane is Plane.QUOTA and reason is Reason.HELD_BY_OTHERS:
        said = _of_queue(waiter, figures)
    elif plane is Plane.SCHEDULING and (reason in _NO_ROOM or reason is Reason.NO_NODE_MATCHES):
        said = _of_nodes(waiter, figures.nodes.get(waiter.resource))
    return said or general


def _of_queue(waiter: Waiter, figures: Figures) -> str:
    known = figures.uses.get((waiter.queue, waiter.resource))
    if known is None:
        return ""
    used, nominal = known
    left = nominal - used
    resource, asks = waiter.resource, waiter.amount

    def text(amount: int) -> str:
        return f"{whole(resource, amount):,}"

    if left <= 0:
        over = f"{text(-left)} over" if left else "all of"
        return (
            f"{waiter.queue} uses {over} its nominal quota of {text(nominal)}: it is admitted once "
            f"{text(asks - left)} {resource} of it are free again, or others lend them"
        )
    if left < asks:
        return (
            f"{text(left)} of the {text(asks)} {resource} that it requests are left in "
            f"{waiter.queue}: request at most {text(left)}, or wait for {text(asks - left)} more"
        )
    return (
        f"its own quota has {text(left)} {resource} left; others who borrow it have to end first, "
        "or to be preempted"
    )


def _of_nodes(waiter: Waiter, nodes: _Nodes | None) -> str:
    if nodes is None or not waiter.each:
        return ""
    resource = waiter.resource

    def text(amount: int) -> str:
        return f"{whole(resource, amount):,}"

    if waiter.each > nodes.largest:
        return (
            f"a pod requests {text(waiter.each)} {resource}, and the largest node has "
            f"{text(nodes.largest)}: request at most that a pod, in more pods"
        )
    if waiter.reason == Reason.NO_NODE_MATCHES:
        return ""
    if waiter.each > nodes.most:
        less = f"request at most {text(nodes.most)} a pod, or " if nodes.most else ""
        return (
            f"a pod requests {text(waiter.each)} {resource}; the emptiest node has "
            f"{text(nodes.most)} free, all nodes {text(nodes.free)}: {less}wait for "
            f"{text(waiter.each - nodes.most)} more on one node"
        )
    if waiter.amount > nodes.free:
        return (
            f"{text(nodes.free)} of the {text(waiter.amount)} {resource} that it requests are "
            f"free: wait for {text(waiter.amount - nodes.free)} more, or request fewer pods"
        )
    return ""
