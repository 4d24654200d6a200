"""The generated clusters of `bench.scheduling` with more in them, one thing at a time.

`devices`: every node publishes eight devices, of which claims of its bound pods hold six, and each
member of the gang has a claim for one. `spread`: nodes are in 64 zones, and the members keep to a
`maxSkew` of 2. `all`: every bound pod is in a group that goes as a whole. `budgets`: 2,000 budgets
in a hundred namespaces, and every bound pod is under one. `pod`: one pod waits in place of the
gang, and may preempt on every node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from bench.scheduling_input import Scenario, bound_in_groups, generated
from reprieve.engine.cluster.devices import (
    AllocatedDevice,
    Allocation,
    Consumer,
    Device,
    DeviceClassRow,
    DeviceRequest,
    Reach,
    Request,
    ResourceClaimRow,
    ResourceSliceRow,
)
from reprieve.engine.cluster.rows import (
    BudgetRow,
    Change,
    Entry,
    Kind,
    NodeRow,
    NodeTerm,
    Operator,
    PodRow,
    Requirement,
    SpreadConstraint,
)
from reprieve.units.ids import Uid

__all__ = ["WITH", "generated_with", "single_pod"]

_ZONES: Final = 64
_NAMESPACES: Final = 100
_BUDGETS: Final = 20  # in each namespace
_DEVICES: Final = 8
_HELD: Final = 6
_CLASS: Final = "gpu.example"
_DRIVER: Final = "driver.gpu.example"


def generated_with(nodes: int, size: int, what: str) -> Scenario:
    """Return the generated cluster with one of `WITH` in it; an empty text adds nothing."""
    if not what:
        return generated(nodes, size)
    scenario = WITH[what](nodes, size)
    return replace(scenario, name=f"{scenario.name}_{what}")


def single_pod(scenario: Scenario) -> Scenario:
    """Return the same cluster, where a plain pod waits in place of the gang."""
    first = replace(scenario.waiting[0], group="")
    return replace(scenario, name=f"{scenario.name}_pod", waiting=(first,), group="")


def _devices(nodes: int, size: int) -> Scenario:
    scenario = generated(nodes, size)
    devices = tuple(Device(f"gpu-{number}") for number in range(_DEVICES))
    request = (Request("gpu", (DeviceRequest("gpu", _CLASS),)),)
    held: dict[str, int] = {}

    def row(change: Change) -> Iterator[Change]:
        if isinstance(change, NodeRow):
            slice_row = ResourceSliceRow(
                Uid(f"slice-{change.name}"),
                f"slice-{change.name}",
                1,
                _DRIVER,
                change.name,
                reach=Reach(node=change.name),
                devices=devices,
            )
            yield change
            yield _entry(Kind.RESOURCE_SLICE, "", slice_row)
        elif isinstance(change, PodRow) and held.setdefault(change.node, 0) < _HELD:
            number = held[change.node]
            held[change.node] += 1
            device = AllocatedDevice("gpu", (_DRIVER, change.node, f"gpu-{number}"))
            on_node = Requirement("metadata.name", Operator.IN, (change.node,))
            allocation = Allocation((device,), (NodeTerm(fields=(on_node,)),))
            claim = _claim(change, request)
            consumer = Consumer("pods", change.name, change.uid)
            claim = replace(claim, allocation=allocation, reserved_for=(consumer,))
            yield replace(change, claims=(("gpu", claim.name),))
            yield _entry(Kind.RESOURCE_CLAIM, change.namespace, claim)
        else:
            yield change

    rows = [each for change in scenario.rows for each in row(change)]
    own = DeviceClassRow(Uid(_CLASS), _CLASS, 1, (f'device.driver == "{_DRIVER}"',))
    rows.append(_entry(Kind.DEVICE_CLASS, "", own))
    waiting = []
    for pod in scenario.waiting:
        claim = _claim(pod, request)
        rows.append(_entry(Kind.RESOURCE_CLAIM, pod.namespace, claim))
        waiting.append(replace(pod, claims=(("gpu", claim.name),)))
    return replace(scenario, rows=tuple(rows), waiting=tuple(waiting))


def _claim(pod: PodRow, requests: tuple[Request, ...]) -> ResourceClaimRow:
    return ResourceClaimRow(
        Uid(f"claim-{pod.uid}"), pod.namespace, f"{pod.name}-gpu", 1, requests, owner=pod.uid
    )


def _entry(
    kind: Kind, namespace: str, row: ResourceClaimRow | ResourceSliceRow | DeviceClassRow
) -> Entry:
    return Entry(kind, row.uid, namespace, row.name, row.version, row)


def _spread(nodes: int, size: int) -> Scenario:
    scenario = generated(nodes, size)
    rows: list[Change] = []
    for number, change in enumerate(scenario.rows):
        if isinstance(change, NodeRow):
            labels = {**change.labels, "topology.kubernetes.io/zone": f"zone-{number % _ZONES:02}"}
            change = replace(change, labels=labels)
        rows.append(change)
    selector = (Requirement("gang", Operator.IN, ("preemptor",)),)
    spread = (SpreadConstraint("topology.kubernetes.io/zone", 2, True, selector),)
    own = replace(scenario.waiting[0].pod_class, spread=spread)
    waiting = tuple(
        replace(pod, pod_class=own, labels=(("gang", "preemptor"),)) for pod in scenario.waiting
    )
    return replace(scenario, rows=tuple(rows), waiting=waiting)


def _all(nodes: int, size: int) -> Scenario:
    scenario = generated(nodes, size, whole=False)
    return replace(scenario, rows=bound_in_groups(scenario.rows))


def _budgets(nodes: int, size: int) -> Scenario:
    scenario = generated(nodes, size)
    rows: list[Change] = []
    for change in scenario.rows:
        if isinstance(change, BudgetRow):
            continue
        if isinstance(change, PodRow) and not change.group:
            number = len(rows)
            app = f"app-{number // _NAMESPACES % _BUDGETS}"
            namespace = f"team-{number % _NAMESPACES:02}"
            change = replace(change, namespace=namespace, labels=(("app", app),))
        rows.append(change)
    for number in range(_NAMESPACES * _BUDGETS):
        team, budget = divmod(number, _BUDGETS)
        asks = (Requirement("app", Operator.IN, (f"app-{budget}",)),)
        name, namespace = f"budget-{budget}", f"team-{team:02}"
        rows.append(BudgetRow(Uid(f"pdb-{number}"), namespace, name, 1, asks, number % 7))
    return replace(scenario, rows=tuple(rows))


WITH: Final[Mapping[str, Callable[[int, int], Scenario]]] = MappingProxyType(
    {"devices": _devices, "spread": _spread, "all": _all, "budgets": _budgets}
)
