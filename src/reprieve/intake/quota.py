"""ClusterQueues, Cohorts, LocalQueues and ResourceFlavors into rows of the quota plane.

What the schema and the webhooks refuse may be stored all the same (an older version wrote it, the
webhook was off). An object that cannot be meant as it is written is `Unusable`, with the field and
what is accepted; everything else continues without it.

Source: specification of the quota plane, sections 1 to 3.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import TypeVar

from kubeworld.units.quantities import InvalidQuantity, parse_exact
from reprieve.api import core, kueue
from reprieve.engine.quota.holdings.shares import fair_weight
from reprieve.engine.quota.model import (
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    FlavorFungibility,
    FlavorQuotas,
    Fungibility,
    LabelSelector,
    LocalQueue,
    NodeExpression,
    Policy,
    Preemption,
    Preference,
    QueueingStrategy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    StopPolicy,
    Taint,
    Toleration,
)
from reprieve.engine.topology.model import Topology
from reprieve.intake.quota_requests import amount_of

__all__ = [
    "Unusable",
    "cluster_queue_row",
    "cohort_row",
    "label_selector",
    "local_queue_row",
    "resource_flavor_row",
    "toleration_row",
    "topology_row",
]


class Unusable(ValueError):
    """A field of an object states nothing that can be meant; `field` is its path."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field
        self.why = why


def cluster_queue_row(
    queue: kueue.ClusterQueue,
    active_checks: Collection[str] = frozenset(),
    provisioning: Collection[str] = frozenset(),
) -> ClusterQueue:
    """Return the row of a ClusterQueue.

    Args:
        queue: as it is stored.
        active_checks: names of the AdmissionChecks that exist and whose condition Active is true.
        provisioning: names of those that provide nodes.

    Raises:
        Unusable: a field cannot be meant as it is written.
    """
    spec = queue.spec
    rules, within = spec.preemption, spec.preemption.borrow_within_cohort
    at = "spec.preemption"
    borrowing = None
    if within is not None:
        policy = _word(Policy, within.policy, f"{at}.borrowWithinCohort.policy")
        borrowing = BorrowWithinCohort(policy, within.max_priority_threshold)
    strategy = spec.admission_checks_strategy
    checks = strategy.admission_checks if strategy is not None else ()
    scope = spec.admission_scope
    return ClusterQueue(
        name=queue.metadata.name,
        cohort=spec.cohort_name,
        groups=_groups(spec.resource_groups),
        preemption=Preemption(
            _word(Policy, rules.within_cluster_queue, f"{at}.withinClusterQueue"),
            _word(Policy, rules.reclaim_within_cohort, f"{at}.reclaimWithinCohort"),
            borrowing,
        ),
        fungibility=_fungibility(spec.flavor_fungibility),
        strategy=_word(QueueingStrategy, spec.queueing_strategy, "spec.queueingStrategy"),
        selector=label_selector(spec.namespace_selector),
        stop_policy=_word(StopPolicy, spec.stop_policy, "spec.stopPolicy"),
        weight=_weight(spec.fair_sharing),
        checks=tuple(check.name for check in checks),
        checks_on_flavors={check.name: tuple(check.on_flavors or ()) for check in checks},
        unready_checks=tuple(each.name for each in checks if each.name not in active_checks),
        provisioning=tuple(check.name for check in checks if check.name in provisioning),
        usage_based=scope is not None and scope.admission_mode == "UsageBasedAdmissionFairSharing",
        generation=queue.metadata.generation,
        terminating=bool(queue.metadata.deletion_timestamp),
    )


def cohort_row(cohort: kueue.Cohort) -> Cohort:
    """Return the row of a Cohort.

    Raises:
        Unusable: a field cannot be meant as it is written.
    """
    spec = cohort.spec
    return Cohort(
        cohort.metadata.name,
        spec.parent_name,
        _groups(spec.resource_groups),
        _weight(spec.fair_sharing),
    )


def local_queue_row(queue: kueue.LocalQueue) -> LocalQueue:
    """Return the row of a LocalQueue.

    Raises:
        Unusable: a field cannot be meant as it is written.
    """
    return LocalQueue(
        f"{queue.metadata.namespace}/{queue.metadata.name}",
        queue.spec.cluster_queue,
        _word(StopPolicy, queue.spec.stop_policy, "spec.stopPolicy"),
        _weight(queue.spec.fair_sharing),
    )


def resource_flavor_row(flavor: kueue.ResourceFlavor) -> ResourceFlavor:
    """Return the row of a ResourceFlavor."""
    spec = flavor.spec
    return ResourceFlavor(
        flavor.metadata.name,
        dict(spec.node_labels or {}),
        tuple(Taint(each.key, each.value, each.effect) for each in spec.node_taints or ()),
        tuple(toleration_row(each) for each in spec.tolerations or ()),
        spec.topology_name or "",
    )


def topology_row(topology: kueue.Topology) -> Topology:
    """Return the row of a Topology."""
    return Topology(topology.metadata.name, tuple(each.node_label for each in topology.spec.levels))


def toleration_row(toleration: core.Toleration) -> Toleration:
    """Return a toleration of a pod or a flavor."""
    return Toleration(
        toleration.key,
        toleration.operator or "Equal",
        toleration.value,
        toleration.effect,
        toleration.toleration_seconds is None,
    )


def label_selector(selector: kueue.LabelSelector | None) -> LabelSelector | None:
    """Return the requirements of a selector; None, which selects nothing, stays None."""
    if selector is None:
        return None
    labels = [
        NodeExpression(key, "In", (value,)) for key, value in (selector.match_labels or {}).items()
    ]
    more = [
        NodeExpression(each.key, each.operator, tuple(each.values or ()))
        for each in selector.match_expressions or ()
    ]
    return LabelSelector((*labels, *more))


Word = TypeVar("Word", bound=StrEnum)


def _word(words: type[Word], text: str, field: str) -> Word:
    try:
        return words(text)
    except ValueError:
        accepted = ", ".join(sorted(word.value for word in words if word.value))
        raise Unusable(field, f"unknown value {text!r}; accepted: {accepted}") from None


def _fungibility(given: kueue.FlavorFungibility) -> FlavorFungibility:
    at = "spec.flavorFungibility"
    preference = None
    if given.preference is not None:
        preference = _word(Preference, given.preference, f"{at}.preference")
    return FlavorFungibility(
        _word(Fungibility, given.when_can_borrow, f"{at}.whenCanBorrow"),
        _word(Fungibility, given.when_can_preempt, f"{at}.whenCanPreempt"),
        preference,
    )


def _groups(groups: Sequence[kueue.ResourceGroup]) -> tuple[ResourceGroup, ...]:
    return tuple(
        ResourceGroup(
            tuple(group.covered_resources),
            tuple(
                FlavorQuotas(
                    flavor.name,
                    {
                        quota.name: _quota(
                            quota, f"spec.resourceGroups[{i}].flavors[{j}].resources[{k}]"
                        )
                        for k, quota in enumerate(flavor.resources)
                    },
                )
                for j, flavor in enumerate(group.flavors)
            ),
        )
        for i, group in enumerate(groups)
    )


def _quota(given: kueue.ResourceQuota, at: str) -> Quota:
    def amount(text: kueue.Quantity | None, field: str) -> int | None:
        if text is None:
            return None
        try:
            found = amount_of(given.name, text)
        except InvalidQuantity as error:
            raise Unusable(f"{at}.{field}", str(error)) from None
        if found < 0:
            raise Unusable(f"{at}.{field}", "must be greater than or equal to 0")
        return found

    return Quota(
        amount(given.nominal_quota, "nominalQuota") or 0,
        amount(given.borrowing_limit, "borrowingLimit"),
        amount(given.lending_limit, "lendingLimit"),
    )


def _weight(sharing: kueue.FairSharing | None) -> float:
    if sharing is None or sharing.weight is None:
        return 1.0
    text = str(sharing.weight)
    try:
        exact = parse_exact(text)
        weight = float(exact) if text.endswith("i") else fair_weight(text)
    except (InvalidQuantity, ValueError) as error:
        raise Unusable("spec.fairSharing.weight", str(error)) from None
    if weight < 0:
        raise Unusable("spec.fairSharing.weight", "must be greater than or equal to 0")
    return weight
