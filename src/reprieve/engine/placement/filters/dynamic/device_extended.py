"""Extended resources that a DeviceClass stands for: where they become one more claim of the pod.

A node that offers a resource itself needs no claim for it, so nodes differ in which resources are
to be had as devices. The claim is made when the pod is placed, under a name that follows from the
pod's uid. Source: specification 21.9.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import Mask
from reprieve.engine.cluster.devices import (
    DeviceClassRow,
    DeviceRequest,
    Request,
    ResourceClaimRow,
    extended_classes,
)
from reprieve.engine.cluster.rows import ExtendedRequest, Kind, PodClass
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.filters.dynamic.device_allocation import Wanted

__all__ = ["Case", "cases_of", "extended_claim", "extended_claim_name", "extended_requests"]

_MAX_NAME: Final = 253


@dataclass(frozen=True, slots=True)
class Case:
    """Nodes that have to fulfil the same claims; `extended` ones come last, as one claim."""

    nodes: Mask
    extended: tuple[ExtendedRequest, ...]
    claim: tuple[Wanted, ...]  # the one for `extended`


def extended_requests(snapshot: Snapshot, entry: PodClass) -> tuple[ExtendedRequest, ...]:
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


def cases_of(snapshot: Snapshot, requests: tuple[ExtendedRequest, ...]) -> tuple[Case, ...]:
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
        found.append(Case(lacking == bits, extended, (claim,) if extended else ()))
    return tuple(found)


def _device_request(extended: ExtendedRequest, device_class: DeviceClassRow) -> Request:
    wanted = DeviceRequest(extended.name, device_class.name, count=extended.count)
    return Request(extended.name, (wanted,))


def extended_claim(pending: Pending, case: Case) -> ResourceClaimRow:
    """Return the claim that is made for the extended resources of a case that has some."""
    row = pending.row
    (wanted,) = case.claim
    return ResourceClaimRow(
        row.uid, row.namespace, extended_claim_name(pending), 0, wanted.requests, extended=True
    )


def extended_claim_name(pending: Pending) -> str:
    """Return the name of the claim that is made for a pod's extended resources."""
    suffix = f"-extended-resources-{sha256(pending.row.uid.encode()).hexdigest()[:5]}"
    return pending.row.name[: _MAX_NAME - len(suffix)] + suffix
