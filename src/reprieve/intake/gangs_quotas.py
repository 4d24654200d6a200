"""Which ElasticQuotas protect their pods from job preemption.

A quota protects when it carries the label that protects a single pod. With `Min` it also protects
while it uses no more than its guarantee (`spec.min`) of anything: others do not preempt what it was
guaranteed. Koordinator's quotas are named by a label of the pod, those of scheduler-plugins count
their namespace. Source: specification of gang jobs, sections 1.3 and 10.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from kubeworld.units.quantities import parse_milli
from reprieve.api.gangs import KOORDINATOR, Door, ElasticQuota
from reprieve.engine.scheduling.gangs.job import JobPolicy, QuotaProtection

__all__ = ["protected_by"]

_LABEL: Final = ("quota.scheduling.koordinator.sh/preemptible", "false")


def protected_by(policy: JobPolicy, quotas: Iterable[tuple[Door, ElasticQuota]]) -> JobPolicy:
    """Return the policy with the names and namespaces that these quotas protect."""
    if policy.quotas is QuotaProtection.IGNORE:
        return policy
    names, namespaces = set(policy.protected_quotas), set(policy.protected_namespaces)
    for door, quota in quotas:
        if not _protects(quota, within_min=policy.quotas is QuotaProtection.MIN):
            continue
        if door is KOORDINATOR:
            names.add(quota.metadata.name)
        else:
            namespaces.add(quota.metadata.namespace)
    return replace(
        policy, protected_quotas=frozenset(names), protected_namespaces=frozenset(namespaces)
    )


def _protects(quota: ElasticQuota, *, within_min: bool) -> bool:
    if (quota.metadata.labels or {}).get(_LABEL[0]) == _LABEL[1]:
        return True
    guaranteed = quota.spec.min or {}
    if not within_min or not guaranteed:
        return False
    used = quota.status.used or {}
    try:
        return all(
            parse_milli(used.get(name, 0)) <= parse_milli(amount)
            for name, amount in guaranteed.items()
        )
    except ValueError:
        # A quota that cannot be read protects no pod.
        return False
