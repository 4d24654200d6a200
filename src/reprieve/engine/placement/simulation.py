"""A copy of the snapshot's pods that can be changed: pods are removed, reprieved, and placed.

All attempts of a session share one simulation, so that later units see what earlier ones used; an
attempt that fails leaves it as it was. `used` and `scored` follow every change; filters and scores
are compiled when a pod first needs them and follow from then on. A change of many pods at once
drops the compiled ones instead, which is cheaper than notifying them. Source: specification 5.3,
7.7 and 8.7.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I32, I64, U8, Mask
from reprieve.engine.cluster.limits import LIMIT
from reprieve.engine.cluster.snapshot import Flag, Pending, Snapshot
from reprieve.engine.placement.compiled import Compiled, CompiledFilters
from reprieve.engine.placement.filtering import (
    Filter,
    Placed,
    PlacementScorer,
    Reach,
    Refusal,
)
from reprieve.engine.placement.profile import FilterName, Policy, Profile
from reprieve.engine.placement.reasons import RESOLVABLE, Code, Reason, Rejection, Status
from reprieve.engine.placement.scores import compile_scores

__all__ = ["Checkpoint", "Simulation"]

_FEW: Final = 64  # changes of which compiled filters are notified one by one
_PART: Final = 8  # of how many pods one moves at most, so that sums follow the change


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a simulation held at one moment."""

    present: Mask
    used: I64
    simulated: tuple[Placed, ...]
    shared: dict[str, object]
    scored: I64 | None


class Simulation:
    """The pods of a snapshot, and what would happen to others if some of them were not there.

    `evictable`: (slots,) pods that may be chosen as victims; all, unless the caller excludes some.
    `nominated`: by node, pods that others have to fit beside there (`respect`); they count in no
    column and no score.
    `search_start`: where the next search begins when not all nodes are examined (17.1). `now`: Unix
    seconds of the decision, 0 where the policy requests none.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy, profile: Profile) -> None:
        self.snapshot = snapshot
        self.policy = policy
        self.profile = profile
        self.present: Mask = snapshot.pod_node >= 0
        self.evictable: Mask = np.ones(len(self.present), np.bool_)
        self.search_start = 0
        self.now = 0
        self.scorers: Mapping[str, PlacementScorer] = {}
        self.nominated: Mapping[int, tuple[Placed, ...]] = {}
        self.simulated: list[Placed] = []
        self.used: I64 = snapshot.used.copy()
        self._scored: I64 | None = snapshot.scored.copy()
        self.shared: dict[str, object] = {}
        self._compiled = CompiledFilters()
        self._requests: dict[int, I64] = {}

    # Queries.

    @property
    def scored(self) -> I64:
        """Return cpu and memory in use as scores count them: (nodes, 2)."""
        if self._scored is None:
            self._scored = self._count_scored()
        return self._scored

    def filters(self, pending: Pending) -> tuple[Filter, ...]:
        """Return the filters that have something to check; they follow every change from now on."""
        return self._of(pending).filters

    def codes(self, pending: Pending) -> U8:
        """Return the first `Rejection` of each node, 0 where it passes: (nodes,), read-only."""
        compiled = self._of(pending)
        if compiled.refusal is not None:
            code = compiled.refusal.reason.rejection
            return np.full(len(self.snapshot.nodes), code, np.uint8)
        if compiled.codes is None:
            codes = np.zeros(len(self.snapshot.nodes), np.uint8)
            for each in compiled.filters:
                np.copyto(codes, each.codes(), where=codes == 0)
            for node in self.nominated:
                codes[node] = self._first(compiled.filters, node)
            compiled.codes = codes
        elif compiled.stale:
            for node in compiled.stale:
                compiled.codes[node] = self._first(compiled.filters, node)
        compiled.stale.clear()
        return compiled.codes

    def code_at(self, pending: Pending, node: int) -> int:
        """Return the first `Rejection` of one node, 0 when the pod passes."""
        compiled = self._of(pending)
        if compiled.refusal is not None:
            return compiled.refusal.reason.rejection
        if compiled.codes is not None and node not in compiled.stale:
            return int(compiled.codes[node])
        return self._first(compiled.filters, node)

    def refusal(self, pending: Pending) -> Refusal | None:
        """Return why every node is refused at once, or None."""
        return self._of(pending).refusal

    def status_at(self, pending: Pending, node: int) -> Status:
        """Return what the filters state about one node, with all reasons of the one that fails."""
        compiled = self._of(pending)
        if compiled.refusal is not None:
            code = Code.ERROR if compiled.refusal.error else Code.UNRESOLVABLE
            return Status(code, (compiled.refusal.reason,))
        beside = self.nominated.get(node, ())
        if beside:
            self._visit(compiled.filters, beside, 1)
            status = _status(compiled.filters, node)
            self._visit(compiled.filters, beside, -1)
            if status.code is not Code.SUCCESS:
                return status
        return _status(compiled.filters, node)

    def refusing(
        self, pending: Pending, node: int, names: Container[FilterName]
    ) -> FilterName | None:
        """Return the first of these filters that refuses a node, None when none does."""
        filters = self._of(pending).filters
        beside = self.nominated.get(node, ())
        if beside:
            self._visit(filters, beside, 1)
            found = _refusing(filters, node, names)
            self._visit(filters, beside, -1)
            if found is not None:
                return found
        return _refusing(filters, node, names)

    def totals(self, pending: Pending, nodes: I64) -> I64:
        """Return the weighted scores of each node index; all must have passed the filters."""
        compiled = self._of(pending)
        if compiled.scores is None:
            compiled.scores = compile_scores(self, pending)
        total = np.zeros(len(nodes), np.int64)
        for score, weight in compiled.scores:
            total += weight * score.values(nodes)
        return total

    def requests_of(self, pod_class: int) -> I64:
        """Return what a pod of the class requests: (resources,)."""
        known = self._requests.get(pod_class)
        if known is None:
            entry = self.snapshot.classes[pod_class]
            assert entry is not None
            amounts = {"pods": 1, **dict(entry.requests)}
            names = self.snapshot.resources
            known = np.array([amounts.get(name, 0) for name in names], np.int64)
            self._requests[pod_class] = known
        return known

    # Changing.

    def respect(self, nominated: Mapping[int, tuple[Pending, ...]]) -> None:
        """Refuse pods that do not fit beside those nominated to the node, from now on (8.7).

        A node has to pass with the pods that are nominated there, and without them. `nominated`:
        by index of the node; it replaces what was respected before.
        """
        found = {
            node: tuple(Placed(p.pod_class, p.labels, node, pending=p) for p in pods)
            for node, pods in nominated.items()
        }
        if found == self.nominated:
            return
        for compiled in self._compiled.each():
            compiled.stale.update(found, self.nominated)
        self.nominated = found

    def place(self, pending: Pending, node: int) -> Placed:
        """Place a pending pod on a node and reserve what its filters reserve."""
        for each in self._of(pending).reserving:
            each.reserve(pending, node)
        pod = Placed(pending.pod_class, pending.labels, node, pending=pending)
        self.simulated.append(pod)
        self._move(pod, 1)
        return pod

    def unplace(self, pod: Placed) -> None:
        """Undo `place`; later placements are undone first."""
        assert self.simulated[-1] is pod and pod.pending is not None
        self.simulated.pop()
        self._move(pod, -1)
        self._release(pod)

    def remove(self, slots: I64) -> None:
        """Remove pods of the snapshot: `slots` are indices of pods that are present."""
        self._change(slots, -1)

    def restore(self, slots: I64) -> None:
        """Restore pods of the snapshot."""
        self._change(slots, 1)

    def checkpoint(self) -> Checkpoint:
        """Return the present state, to which `rollback` returns."""
        return Checkpoint(
            self.present.copy(),
            self.used.copy(),
            tuple(self.simulated),
            dict(self.shared),
            None if self._scored is None else self._scored.copy(),
        )

    def rollback(self, state: Checkpoint) -> None:
        """Return to a checkpoint, at which fewer pods had been placed than now."""
        for pod in reversed(self.simulated[len(state.simulated) :]):
            self._release(pod)
        self.present = state.present.copy()
        self.used = state.used.copy()
        self.simulated = list(state.simulated)
        self.shared = dict(state.shared)
        self._scored = None if state.scored is None else state.scored.copy()
        self._compiled.forget()

    def placed_at(self, slot: int) -> Placed:
        """Return a pod of the snapshot as filters see it."""
        snapshot = self.snapshot
        return Placed(
            int(snapshot.pod_class[slot]),
            int(snapshot.pod_labels[slot]),
            int(snapshot.pod_node[slot]),
            bool(snapshot.pod_flags[slot] & Flag.DELETING),
            slot,
        )

    # How.

    def _release(self, pod: Placed) -> None:
        assert pod.pending is not None
        for each in self._of(pod.pending).reserving:
            each.release(pod.pending, pod.node)

    def _of(self, pending: Pending) -> Compiled:
        return self._compiled.of(self, pending)

    def _first(self, filters: tuple[Filter, ...], node: int) -> int:
        beside = self.nominated.get(node, ())
        if beside:
            self._visit(filters, beside, 1)
            code = _first(filters, node)
            self._visit(filters, beside, -1)
            if code:
                return code
        return _first(filters, node)

    def _visit(self, filters: tuple[Filter, ...], pods: tuple[Placed, ...], sign: int) -> None:
        """Show filters these pods too; it is undone at once, so that nothing becomes stale."""
        for pod in pods[::sign]:
            self.used[pod.node] += sign * self.requests_of(pod.pod_class)
            for each in filters:
                if sign > 0:
                    each.add(pod)
                else:
                    each.remove(pod)

    def _move(self, pod: Placed, sign: int) -> None:
        entry = self.snapshot.classes[pod.pod_class]
        assert entry is not None
        if pod.slot < 0:
            self.used[pod.node] += sign * self.requests_of(pod.pod_class)
        else:
            self.used[pod.node] += sign * self.snapshot.pod_requests[pod.slot]
        if self._scored is not None:
            self._scored[pod.node, 0] += sign * entry.scored_cpu
            self._scored[pod.node, 1] += sign * entry.scored_memory
        for compiled in self._compiled.each():
            for each in compiled.filters:
                reach = each.add(pod) if sign > 0 else each.remove(pod)
                if reach is Reach.NODE:
                    compiled.stale.add(pod.node)
                elif reach is Reach.DOMAINS:
                    compiled.codes = None
            for score, _ in compiled.scores or ():
                if sign > 0:
                    score.add(pod)
                else:
                    score.remove(pod)

    def _change(self, slots: I64, sign: int) -> None:
        if len(slots) <= _FEW:
            for slot in slots.tolist():
                self.present[slot] = sign > 0
                self._move(self.placed_at(slot), sign)
            return
        self.present[slots] = sign > 0
        snapshot = self.snapshot
        if sign < 0 and 2 * len(slots) > len(self.present) and self.used.max() < LIMIT:
            self.used = self._count_used()
        else:
            _add(self.used, snapshot.pod_node[slots], sign * snapshot.pod_requests.take(slots, 0))
        if self._scored is not None and _PART * len(slots) <= len(self.present):
            amounts = sign * self._scored_amounts[snapshot.pod_class[slots]]
            np.add.at(self._scored, snapshot.pod_node[slots], amounts)
        else:
            self._scored = None
        self._compiled.forget()

    def _count_used(self) -> I64:
        """Return what all present pods use: few are left when most have been removed."""
        snapshot = self.snapshot
        used = np.zeros_like(snapshot.used)
        slots = np.flatnonzero(self.present)
        _add(used, snapshot.pod_node[slots], snapshot.pod_requests.take(slots, 0))
        for pod in self.simulated:
            used[pod.node] += self.requests_of(pod.pod_class)
        return used

    @property
    def _scored_amounts(self) -> I64:
        """Return cpu and memory of pods by class, as scores count them: (classes, 2)."""
        classes = self.snapshot.classes
        return np.array(
            [(0, 0) if c is None else (c.scored_cpu, c.scored_memory) for c in classes], np.int64
        ).reshape(-1, 2)

    def _count_scored(self) -> I64:
        snapshot, amounts = self.snapshot, self._scored_amounts
        scored = np.zeros((len(snapshot.nodes), 2), np.int64)
        slots = np.flatnonzero(self.present)
        np.add.at(scored, snapshot.pod_node[slots], amounts[snapshot.pod_class[slots]])
        for pod in self.simulated:
            scored[pod.node] += amounts[pod.pod_class]
        return scored


def _add(used: I64, nodes: I32 | I64, requests: I64) -> None:
    """Add what pods on these nodes request, to (nodes, resources)."""
    nodes = nodes.astype(np.intp)
    for column in range(requests.shape[1]):
        if requests[:, column].any():
            np.add.at(used[:, column], nodes, requests[:, column])


def _first(filters: tuple[Filter, ...], node: int) -> int:
    for each in filters:
        code = each.code_at(node)
        if code:
            return code
    return 0


def _refusing(
    filters: tuple[Filter, ...], node: int, names: Container[FilterName]
) -> FilterName | None:
    return next((f.name for f in filters if f.name in names and f.code_at(node)), None)


def _status(filters: tuple[Filter, ...], node: int) -> Status:
    for each in filters:
        code_at = each.code_at(node)
        if code_at:
            resolvable = Rejection(code_at) in RESOLVABLE
            return Status(
                Code.UNSCHEDULABLE if resolvable else Code.UNRESOLVABLE,
                each.reasons_at(node) or (Reason(Rejection(code_at)),),
            )
    return Status(Code.SUCCESS)
