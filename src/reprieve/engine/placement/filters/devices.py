"""DynamicResources: whether the claims of a pod can be had on a node.

An allocated claim must be available there, and have room for one more user; all others must be
fulfilled together by the search of `device_allocation`. A claim that a member of the own group has
reserved counts as allocated; one that another attempt is allocating is waited for. Extended
resources that the node does not offer and a DeviceClass stands for become one more claim. What a
placed pod takes is what is written before it is bound: `ClaimAllocation`. All refusals are
unresolvable, except that with `simulate_claims` a shortage is not. Source: specification 21.9.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

import numpy as np

from reprieve.engine.cluster.devices import (
    MAX_CONSUMERS,
    AllocatedDevice,
    Allocation,
    Consumer,
    DeviceClassRow,
    DeviceConfiguration,
    DeviceRequest,
    Request,
    ResourceClaimRow,
    extended_classes,
)
from reprieve.engine.cluster.rows import (
    ExtendedRequest,
    Kind,
    NodeTerm,
    Operator,
    PodClass,
    Requirement,
)
from reprieve.engine.cluster.snapshot import I64, U8, Mask, Pending, Snapshot
from reprieve.engine.placement.filtering import Filter, Placed, Reach, Refusal, View
from reprieve.engine.placement.filters.device_allocation import Wanted
from reprieve.engine.placement.filters.device_inventory import Inventory
from reprieve.engine.placement.filters.device_selectors import UnsupportedSelector
from reprieve.engine.placement.filters.device_state import (
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

__all__ = ["DynamicResources", "compile_devices", "extended_claim_name"]

_ALL_CLAIMS: Final = "cannot allocate all claims"
_CODES: Final = np.full(256, Rejection.DEVICES, np.uint8)
_CODES[Answer.YES] = 0
_CODES[Answer.TAKEN] = Rejection.DEVICES_TAKEN
_MAX_NAME: Final = 253


@dataclass(frozen=True, slots=True)
class _Case:
    """Nodes that have to fulfil the same claims; `extended` ones come last, as one claim."""

    nodes: Mask
    extended: tuple[ExtendedRequest, ...]
    claim: tuple[Wanted, ...]  # the one for `extended`


class DynamicResources:
    """The answers for one pending pod."""

    name = FilterName.DYNAMIC_RESOURCES

    def __init__(
        self,
        snapshot: Snapshot,
        state: DeviceState,
        sets: NodeSets,
        pending: Pending,
        cases: tuple[_Case, ...],
        eligible: Mask,
    ) -> None:
        """`eligible`: (nodes,) that filters before this one let pass whatever pods there are."""
        self._snapshot = snapshot
        self._state = state
        self._sets = sets
        self._pending = pending
        self._rows = _claims_of(pending, state)
        self._cases = cases
        self._eligible = eligible
        self._seen = -1
        self._blocked: Reason | None = None
        self._here: Mask = eligible
        self._wanted: tuple[Wanted, ...] = ()

    def codes(self) -> U8:
        self._refresh()
        count = len(self._snapshot.nodes)
        if self._blocked is not None:
            return np.full(count, self._blocked.rejection, np.uint8)
        codes = np.where(self._here, np.uint8(0), np.uint8(Rejection.DEVICES_NOT_HERE))
        for case in self._cases:
            wanted = self._wanted + case.claim
            if wanted:
                asked = case.nodes & self._eligible
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
        for case in self._cases:
            wanted = self._wanted + case.claim
            if wanted:
                asked = case.nodes & self._eligible
                found = self._state.answers(wanted, asked)
                failed = np.flatnonzero((found.codes == Answer.ERROR) & asked)
                if len(failed):
                    return self._text(found, int(failed[0]))
        return ""

    def add(self, pod: Placed) -> Reach:
        return Reach.DOMAINS if self._state.change(pod, came=True) else Reach.NOTHING

    def remove(self, pod: Placed) -> Reach:
        return Reach.DOMAINS if self._state.change(pod, came=False) else Reach.NOTHING

    def reserve(self, pending: Pending, node: int) -> None:
        """Take what the claims get on this node; nothing where the node refuses them."""
        if self.code_at(node):
            return
        row = pending.row
        made: list[ClaimAllocation] = []
        results = self.results_at(node)
        where = self._snapshot.nodes[node].name
        for number, claim in enumerate(self._open):
            allocation = self._allocation(claim, results[number], node)
            consumer = _consumer(self._snapshot, pending, claim.name)
            made.append(ClaimAllocation(claim.namespace, claim.name, where, consumer, allocation))
        for claim in self._shared:
            consumer = _consumer(self._snapshot, pending, claim.name)
            if all(each.uid != consumer.uid for each in claim.reserved_for):
                made.append(ClaimAllocation(claim.namespace, claim.name, where, consumer))
        case = next(case for case in self._cases if case.nodes[node])
        if case.extended:
            claim = _extended_claim(pending, case)
            allocation = self._allocation(claim, results[-1], node)
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
        found = self._answers_at(node)
        return () if found is None else found.results.get(node, ())

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
            claim, text = answers.errors[node]
            return text if claim is None else f"claim {self._wanted[claim].label}: {text}"
        return f"{_ALL_CLAIMS}: the search was ended" if answer == Answer.ENDED else _ALL_CLAIMS

    def _refresh(self) -> None:
        state = self._state
        if self._seen == state.revision:
            return
        self._seen = state.revision
        self._blocked = None
        self._here = np.ones(len(self._snapshot.nodes), np.bool_)
        self._open: list[ResourceClaimRow] = []
        self._shared: list[ResourceClaimRow] = []
        for row in self._rows:
            key = (row.namespace, row.name)
            holder, reserved = state.claims.get(key, ("", None))
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

    def _allocation(
        self, claim: ResourceClaimRow, results: tuple[AllocatedDevice, ...], node: int
    ) -> Allocation:
        inventory = self._state.inventory
        devices = tuple(
            replace(each, share=_share(claim, place, each)) if _shareable(inventory, each) else each
            for place, each in enumerate(results)
        )
        return Allocation(
            devices,
            _terms(inventory, devices, self._snapshot.nodes[node].name),
            _configuration(inventory, claim, devices),
        )


def compile_devices(view: View, pending: Pending) -> Filter | Refusal | None:
    """Return the filter of a pod with claims, or with extended resources of a DeviceClass."""
    entry = view.snapshot.classes[pending.pod_class]
    assert entry is not None
    requests = _extended_requests(view.snapshot, entry)
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
    cases = _cases(view.snapshot, requests)
    for case in cases:
        for text in (_unusable(state.inventory, claim) for claim in case.claim):
            if text:
                return Refusal(Reason(Rejection.DEVICES, text))
    eligible = _eligible(view, pending)
    found = DynamicResources(view.snapshot, state, node_sets_of(view), pending, cases, eligible)
    found.codes()
    error = found.error()
    return Refusal(Reason(Rejection.DEVICES, error), error=True) if error else found


def extended_claim_name(pending: Pending) -> str:
    """Return the name of the claim that is made for a pod's extended resources."""
    suffix = f"-extended-resources-{sha256(pending.row.uid.encode()).hexdigest()[:5]}"
    return pending.row.name[: _MAX_NAME - len(suffix)] + suffix


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
    names = dict.fromkeys(name for _, name in pending.row.claims if name is not None)
    return tuple(state.rows[pending.row.namespace, name] for name in names)


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


def _extended_requests(snapshot: Snapshot, entry: PodClass) -> tuple[ExtendedRequest, ...]:
    """Return the requests that a DeviceClass may stand for.

    A class without requests per container has one for each resource.
    """
    if not snapshot.tables.get(Kind.DEVICE_CLASS):
        return ()
    classes = extended_classes(snapshot.tables)
    found = entry.extended or tuple(
        ExtendedRequest(resource, f"request-{number}", amount)
        for number, (resource, amount) in enumerate(entry.requests)
    )
    return tuple(each for each in found if each.resource in classes and each.count > 0)


def _cases(snapshot: Snapshot, requests: tuple[ExtendedRequest, ...]) -> tuple[_Case, ...]:
    """Return the nodes by the resources that they do not offer themselves."""
    lacking = np.zeros(len(snapshot.nodes), np.int64)
    resources = sorted({each.resource for each in requests})
    for place, resource in enumerate(resources):
        if resource in snapshot.resources:
            offered = snapshot.allocatable[:, snapshot.resources.index(resource)] > 0
        else:
            offered = np.zeros(len(snapshot.nodes), np.bool_)
        lacking |= np.where(offered, 0, 1 << place)
    classes = extended_classes(snapshot.tables) if requests else {}
    found = []
    for bits in np.unique(lacking).tolist():
        names = {name for place, name in enumerate(resources) if bits >> place & 1}
        extended = tuple(each for each in requests if each.resource in names)
        claim = Wanted(tuple(_device_request(each, classes[each.resource]) for each in extended))
        found.append(_Case(lacking == bits, extended, (claim,) if extended else ()))
    return tuple(found)


def _device_request(extended: ExtendedRequest, device_class: DeviceClassRow) -> Request:
    wanted = DeviceRequest(extended.name, device_class.name, count=extended.count)
    return Request(extended.name, (wanted,))


def _extended_claim(pending: Pending, case: _Case) -> ResourceClaimRow:
    row = pending.row
    (wanted,) = case.claim
    return ResourceClaimRow(
        row.uid, row.namespace, extended_claim_name(pending), 0, wanted.requests, extended=True
    )


def _shareable(inventory: Inventory, device: AllocatedDevice) -> bool:
    found = inventory.device(device.id)
    return found is not None and found.row.shareable


def _share(claim: ResourceClaimRow, place: int, device: AllocatedDevice) -> str:
    """Return an identity of the share, in the form of a UUID, the same at every decision."""
    text = "/".join((claim.uid, str(place), device.request, *device.id))
    digest = sha256(text.encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"


def _terms(
    inventory: Inventory, devices: Iterable[AllocatedDevice], node: str
) -> tuple[NodeTerm, ...] | None:
    """Return where an allocation is available: what all its devices have in common."""
    expressions: list[Requirement] = []
    fields: list[Requirement] = []
    for each in devices:
        found = inventory.device(each.id)
        if found is None or found.reach.node or found.row.binds_to_node:
            return (NodeTerm(fields=(Requirement("metadata.name", Operator.IN, (node,)),)),)
        for term in found.reach.terms or ():
            expressions += [e for e in term.expressions if e not in expressions]
            fields += [f for f in term.fields if f not in fields]
    if not expressions and not fields:
        return None
    return (NodeTerm(tuple(expressions), tuple(fields)),)


def _configuration(
    inventory: Inventory, claim: ResourceClaimRow, devices: Iterable[AllocatedDevice]
) -> tuple[tuple[str, DeviceConfiguration], ...]:
    """Return the configuration for the drivers: of the classes, then of the claim itself."""
    chosen = {each.request.partition("/")[0]: each.request for each in devices}
    of_class: dict[str, list[str]] = {}
    for request in claim.requests:
        for each in request.alternatives:
            name = f"{request.name}/{each.name}" if request.first_available else request.name
            if chosen.get(request.name) == name:
                of_class.setdefault(each.device_class, []).append(name)
    found = [
        ("FromClass", replace(configuration, requests=tuple(names)))
        for device_class, names in of_class.items()
        for configuration in inventory.classes[("", device_class)].configuration
    ]
    for configuration in claim.configuration:
        named = set(configuration.requests)
        if not named or named & chosen.keys() or named & set(chosen.values()):
            found.append(("FromClaim", configuration))
    everyone = [{request.name, chosen.get(request.name, "")} for request in claim.requests]
    return tuple(
        (source, replace(each, requests=()))
        if all(names & set(each.requests) for names in everyone)
        else (source, each)
        for source, each in found
    )
