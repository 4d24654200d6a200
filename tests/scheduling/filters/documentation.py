"""The cases of all filters, and the part of `docs/filters.md` that is made from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from reprieve.engine.placement.profile import FilterName
from tests.scheduling.filters.case import Case
from tests.scheduling.filters.dependent import DEPENDENT
from tests.scheduling.filters.independent import INDEPENDENT

__all__ = ["CASES", "filters_markdown"]

CASES: Final = tuple(
    sorted(
        (*(case for each in INDEPENDENT for case in each.cases()), *DEPENDENT),
        key=lambda case: list(FilterName).index(case.filter),
    )
)

_CHECKS: Final[Mapping[FilterName, str]] = {
    FilterName.NODE_NAME: "the node that the pod names, if it names one",
    FilterName.NODE_UNSCHEDULABLE: "that the node is not cordoned, unless the pod tolerates it",
    FilterName.TAINT_TOLERATION: "that all NoSchedule and NoExecute taints are tolerated",
    FilterName.NODE_AFFINITY: "the pod's node selector and required node affinity, and the "
    "affinity that the configuration adds",
    FilterName.NODE_PORTS: "that no pod on the node has one of the pod's host ports",
    FilterName.NODE_RESOURCES_FIT: "capacity for one more pod, and for each resource that the pod "
    "requests",
    FilterName.VOLUME_RESTRICTIONS: "that exclusive disks are free on the node, and "
    "ReadWriteOncePod claims in the whole cluster",
    FilterName.NODE_VOLUME_LIMITS: "that each CSI driver can attach the volumes to the node",
    FilterName.VOLUME_BINDING: "that all claims are bound to volumes that the node reaches, or can "
    "be bound or provisioned for it",
    FilterName.VOLUME_ZONE: "that bound volumes are of the node's zone and region",
    FilterName.POD_TOPOLOGY_SPREAD: "that no domain gets ahead of the emptiest by more than "
    "maxSkew; the minimum is exact over all domains",
    FilterName.INTER_POD_AFFINITY: "required affinity and anti-affinity of the pod, and the "
    "required anti-affinity of pods that are there",
    FilterName.DYNAMIC_RESOURCES: "that devices for all resource claims can be allocated; devices "
    "of victims do not count as free unless `simulateClaims` is set",
    FilterName.NODE_DECLARED_FEATURES: "that the node declares the features that the pod needs",
}


def filters_markdown() -> str:
    """Return one section per filter, in the order in which they look at a node."""
    parts = []
    for name in FilterName:
        parts.append(f"## {name}\n\nChecks {_CHECKS[name]}.\n")
        parts += [_case(each) for each in CASES if each.filter is name]
    return "\n".join(parts)


def _case(case: Case) -> str:
    lines = [
        f"**{case.promise.capitalize()}.** {case.story}\n",
        f"- The first member without a node: `{case.says}`",
    ]
    if case.victims:
        victims = [
            f"`{pod}` ({f'kept out by {case.refused[pod]}' if pod in case.refused else 'with it'})"
            for pod in case.victims
        ]
        lines.append(f"- Victims: {', '.join(victims)}.")
    else:
        lines.append("- No victims: the gang would not fit without any lower pod either.")
    if case.kept:
        lines.append(f"- Stay: {_names(case.kept)}.")
    if case.nodes:
        lines.append(f"- The members are nominated to {_names(case.nodes)}.")
    return "\n".join(lines) + "\n"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
