"""DynamicResources: whether the claims of a pod can be had on a node.

An allocated claim must be available there, and have capacity for one more user; all others must be
fulfilled together by the search of `device_allocation`. A claim that a member of the own group has
reserved counts as allocated; one that another attempt is allocating is waited for. Extended
resources that the node does not offer and a DeviceClass stands for become one more claim. What a
placed pod allocates is written before it is bound: `ClaimAllocation`. All refusals are
unresolvable, except that with `simulate_claims` a shortage is not. Source: specification 21.9.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, U8, Mask
from reprieve.engine.cluster.devices import (
    MAX_CONSUMERS,
    AllocatedDevice,
    Consumer,
    Request,
    ResourceClaimRow,
)
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.filtering import Filter, Placed, Reach, Refusal, View
from reprieve.engine.placement.filters.dynamic.claims_alike import asked_alike, claim_names
from reprieve.engine.placement.filters.dynamic.device_allocation import Wanted
from reprieve.engine.placement.filters.dynamic.device_extended import (
    Case,
    cases_of,
    extended_claim,
    extended_requests,
)
from reprieve.engine.placement.filters.dynamic.device_inventory import Inventory
from reprieve.engine.placement.filters.dynamic.device_record import allocation_of
from reprieve.engine.placement.filters.dynamic.device_selectors import UnsupportedSelector
from reprieve.engine.placement.filters.dynamic.device_state import (
    Answer,
    Answers,
    ClaimAllocation,
    DeviceState,
    device_state_of,
)
from reprieve.engine.placement.filters.reach import NodeSets, node_sets_of
from reprieve.engine.placement.filters.static import (
    compile_narrowing,
    compile_node_affinity,
    compile_taints,
    compile_unschedulable,
)
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.reasons import Reason, Rejection

__all__ = ["DynamicResources", "compile_devices"]

_ALL_CLAIMS: Final = "cannot allocate all claims"
_CODES: Final = np.full(256, Rejection.DEVICES, np.uint8)
_CODES[Answer.YES] = 0
_CODES[Answer.USED] = Rejection.DEVICES_TAKEN


class DynamicResources:
    """The answers for one pending pod, or for several that are answered alike.

    All of those are pending, and messages concern the one that was named last; a placed pod is
    never queried.
    """

    name = FilterName.DYNAMIC_RESOURCES

    def __init__(
        self,
        snapshot: Snapshot,
        state: DeviceState,
        sets: NodeSets,
        pending: Pending,
        cases: tuple[Case, ...],
        eligible: Mask,
        alike: bool,
    ) -> None:
        """`eligible`: (nodes,) that filters before this one pass whatever pods there are.

        `alike`: it is for all pods that request the same (`claims_alike`).
        """
        self._snapshot = snapshot
        self._state = state
        self._sets = sets
        self._pending = pending
        self._rows = _claims_of(pending, state)
        self._cases = cases
        self._eligible = eligible
        self._asked = tuple((case, case.nodes & eligible) for case in cases)
        self._alike = alike
        self._seen = -1
        self._blocked: Reason | None = None
        self._here: Mask = eligible
        self._wanted: tuple[Wanted, ...] = ()
        self._codes: tuple[int, U8] | None = None  # with how often answers were forgotten before

    def codes(self) -> U8:
        self._refresh()
        if self._codes is None or self._codes[0] != self._state.forgotten:
            self._codes = self._state.forgotten, self._everywhere()
        return self._codes[1]

    def _everywhere(self) -> U8:
        if self._blocked is not None:
            return np.full(len(self._snapshot.nodes), self._blocked.rejection, np.uint8)
        codes = np.where(self._here, np.uint8(0), np.uint8(Rejection.DEVICES_NOT_HERE))
        for case, asked in self._asked:
            wanted = self._wanted + case.claim
            if wanted:
                found = _CODES[self._state.answers(wanted, asked).codes]
                np.copyto(codes, found, where=asked & (found != 0))
        return codes

    def code_at(self, node: int) -> int:
        self._refresh()
        if self._blocked is not None:
            return self._blocked.rejection
        if self._eligible[node]:
            found = self._answers_at(node)
            if found is not None and found.codes[node]:
                return int(_CODES[found.codes[node]])
        return 0 if self._here[node] else Rejection.DEVICES_NOT_HERE

    def reasons_at(self, node: int) -> tuple[Reason, ...]:
        code = self.code_at(node)
        if not code:
            return ()
        if self._blocked is not None:
            return (self._blocked,)
        found = self._answers_at(node) if self._eligible[node] else None
        if code == Rejection.DEVICES_NOT_HERE or found is None:
            return (Reason(Rejection(code)),)
        return (Reason(Rejection(code), self._text(found, node)),)

    def tally(self, nodes: I64) -> dict[Reason, int]:
        """Return how many of these refused nodes have each reason."""
        counts: dict[Reason, int] = {}
        for node in nodes.tolist():
            for reason in self.reasons_at(node):
                counts[reason] = counts.get(reason, 0) + 1
        return counts

    def error(self) -> str:
        """Return the first error of an expression on a node that may be chosen, or nothing."""
        for case, asked in self._asked:
            wanted = self._wanted + case.claim
            if wanted:
                found = self._state.answers(wanted, asked)
                # A node that has failed once stays among these.
                if found.errors and (failed := (found.codes == Answer.ERROR) & asked).any():
                    return self._text(found, int(np.argmax(failed)))
        return ""

    def include(self, pending: Pending) -> Refusal | None:
        self.speak_for(pending)
        error = self.error()
        return Refusal(Reason(Rejection.DEVICES, error), error=True) if error else None

    def speak_for(self, pending: Pending) -> None:
        self._pending = pending

    def add(self, pod: Placed) -> Reach:
        return self._reach(pod, came=True)

    def remove(self, pod: Placed) -> Reach:
        return self._reach(pod, came=False)

    def _reach(self, pod: Placed, *, came: bool) -> Reach:
        if not self._state.change(pod, came):
            return Reach.NOTHING
        # A claim that another pod has reserved may be one of the own ones, unless they are alike.
        at_node = (self._alike or pod.pending is None) and self._state.only_at_node(pod)
        return Reach.NODE if at_node else Reach.DOMAINS

    def reserve(self, pending: Pending, node: int) -> None:
        """Reserve what the claims get on this node; nothing where the node refuses them."""
        if self.code_at(node):
            return
        row = pending.row
        claims = _claims_of(pending, self._state) if self._alike else self._open
        made: list[ClaimAllocation] = []
        results = self.results_at(node)
        where = self._snapshot.nodes[node].name
        inventory = self._state.inventory
        for number, claim in enumerate(claims):
            allocation = allocation_of(inventory, claim, results[number], where)
            consumer = _consumer(self._snapshot, pending, claim.name)
            made.append(ClaimAllocation(claim.namespace, claim.name, where, consumer, allocation))
        for claim in self._shared:
            consumer = _consumer(self._snapshot, pending, claim.name)
            if all(each.uid != consumer.uid for each in claim.reserved_for):
                made.append(ClaimAllocation(claim.namespace, claim.name, where, consumer))
        case = next(case for case in self._cases if case.nodes[node])
        if case.extended:
            claim = extended_claim(pending, case)
            allocation = allocation_of(inventory, claim, results[-1], where)
            consumer = Consumer("pods", row.name, row.uid)
            made.append(
                ClaimAllocation(
                    row.namespace, claim.name, where, consumer, allocation, case.extended
                )
            )
        self._state.reserve(row.uid, _owner(pending), tuple(made))

    def release(self, pending: Pending, node: int) -> None:
        """Give it back."""
        self._state.release(pending.row.uid)

    def results_at(self, node: int) -> tuple[tuple[AllocatedDevice, ...], ...]:
        """Return the devices that each unallocated claim would get on a node that passes."""
        self._refresh()
        case = next(case for case in self._cases if case.nodes[node])
        wanted = self._wanted + case.claim
        return self._state.results_at(wanted, node) if wanted else ()

    @property
    def open_requests(self) -> tuple[tuple[Request, ...], ...]:
        """Return the requests of the claims that `results_at` fulfils, without extended ones."""
        self._refresh()
        return tuple(claim.requests for claim in self._open)

    def _answers_at(self, node: int) -> Answers | None:
        case = next(case for case in self._cases if case.nodes[node])
        wanted = self._wanted + case.claim
        return self._state.answer_at(wanted, node) if wanted else None

    def _text(self, answers: Answers, node: int) -> str:
        answer = answers.codes.item(node)
        if answer == Answer.ERROR:
            number, text = answers.errors[node]
            if number is None:
                return text
            claims = _claims_of(self._pending, self._state) if self._alike else self._open
            return f"claim {_wanted(claims[number]).label}: {text}"
        return f"{_ALL_CLAIMS}: the search was ended" if answer == Answer.ENDED else _ALL_CLAIMS

    def _refresh(self) -> None:
        state = self._state
        if self._seen == state.revision or (self._alike and self._seen >= 0):
            return
        self._seen = state.revision
        self._codes = None
        self._blocked = None
        self._here = np.ones(len(self._snapshot.nodes), np.bool_)
        self._open: list[ResourceClaimRow] = []
        self._shared: list[ResourceClaimRow] = []
        for row in self._rows:
            key = (row.namespace, row.name)
            holder, reserved = ("", None) if self._alike else state.claims.get(key, ("", None))
            allocation = row.allocation if reserved is None else reserved.allocation
            if allocation is None:
                self._open.append(row)
                continue
            if reserved is not None and holder != _owner(self._pending):
                self._blocked = _in_process(row)
            if not self._room(row):
                self._blocked = Reason(Rejection.DEVICES_IN_USE)
            self._shared.append(row)
            self._here &= self._sets.mask(allocation.terms)
        self._wanted = tuple(map(_wanted, self._open))

    def _room(self, row: ResourceClaimRow) -> bool:
        consumer = _consumer(self._snapshot, self._pending, row.name)
        reserved = self._state.consumers.get((row.namespace, row.name), {})
        users = {each.uid for each in row.reserved_for} | reserved.keys()
        return consumer.uid in users or len(users) < MAX_CONSUMERS


def compile_devices(view: View, pending: Pending) -> Filter | Refusal | None:
    """Return the filter of a pod with claims, or with extended resources of a DeviceClass."""
    entry = view.snapshot.classes[pending.pod_class]
    assert entry is not None
    requests = extended_requests(view.snapshot, entry)
    names = [name for _, name in pending.row.claims if name is not None]
    if not names and not requests:
        return None
    state = device_state_of(view)
    state.follow(view)
    for name in names:
        row = state.rows.get((pending.row.namespace, name))
        text = f'resourceclaim "{name}" not found' if row is None else _wrong(state, row)
        if text:
            return Refusal(Reason(Rejection.DEVICES, text))
    cases = cases_of(view.snapshot, requests)
    for case in cases:
        for text in (_unusable(state.inventory, claim) for claim in case.claim):
            if text:
                return Refusal(Reason(Rejection.DEVICES, text))
    eligible = _eligible(view, pending)
    alike = asked_alike(view.snapshot, pending) is not None
    found = DynamicResources(
        view.snapshot, state, node_sets_of(view), pending, cases, eligible, alike
    )
    found.codes()
    error = found.error()
    return Refusal(Reason(Rejection.DEVICES, error), error=True) if error else found


def _wrong(state: DeviceState, row: ResourceClaimRow) -> str:
    """Return why no node can have a claim, or nothing."""
    if row.deleting:
        return f'resourceclaim "{row.name}" is being deleted'
    if row.in_flight:
        return _in_process(row).subject
    return "" if row.allocation is not None else _unusable(state.inventory, _wanted(row))


def _unusable(inventory: Inventory, claim: Wanted) -> str:
    for request in claim.requests:
        for each in request.alternatives:
            name = f"{request.name}/{each.name}" if request.first_available else request.name
            row = inventory.classes.get(("", each.device_class))
            if each.unsupported:
                return f"claim {claim.label}: request {name}: {each.unsupported} is not supported"
            if row is None:
                return f"request {name}: device class {each.device_class} does not exist"
            for whose, selectors in (
                (f"class {row.name}", row.selectors),
                (f"claim {claim.label}", each.selectors),
            ):
                for number, expression in enumerate(selectors):
                    try:
                        inventory.compiled(expression)
                    except UnsupportedSelector as unsupported:
                        return f"{whose}: selector #{number}: {unsupported}"
    return ""


def _claims_of(pending: Pending, state: DeviceState) -> tuple[ResourceClaimRow, ...]:
    return tuple(state.rows[pending.row.namespace, name] for name in claim_names(pending.row))


def _wanted(row: ResourceClaimRow) -> Wanted:
    return Wanted(row.requests, row.constraints, f"{row.namespace}/{row.name}")


def _owner(pending: Pending) -> str:
    row = pending.row
    return f"group {row.namespace}/{row.group}" if row.group else row.uid


def _consumer(snapshot: Snapshot, pending: Pending, claim: str) -> Consumer:
    """Return who uses a claim: the group when the claim is the group's, else the pod."""
    row = pending.row
    index = snapshot.group_index.get(f"{row.namespace}/{row.group}", -1) if row.group else -1
    group = snapshot.group_rows[index] if index >= 0 else None
    if group is not None and any(name == claim for _, name in group.claims):
        return Consumer("podgroups", group.name, group.uid)
    return Consumer("pods", row.name, row.uid)


def _in_process(row: ResourceClaimRow) -> Reason:
    text = f"resource claim {row.namespace}/{row.name} is in the process of being allocated"
    return Reason(Rejection.DEVICES, text)


def _eligible(view: View, pending: Pending) -> Mask:
    """Return the nodes that a pod may get, whatever else runs there: (nodes,)."""
    found = np.ones(len(view.snapshot.nodes), np.bool_)
    for name, compile_filter in (
        (FilterName.NODE_NAME, compile_narrowing),
        (FilterName.NODE_UNSCHEDULABLE, compile_unschedulable),
        (FilterName.TAINT_TOLERATION, compile_taints),
        (FilterName.NODE_AFFINITY, compile_node_affinity),
    ):
        if name is FilterName.NODE_NAME or name in view.profile.filters:
            static = compile_filter(view, pending)
            if static is not None and not isinstance(static, Refusal):
                found &= static.codes() == 0
    return found
