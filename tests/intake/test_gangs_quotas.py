"""ElasticQuotas that protect their pods."""

from __future__ import annotations

import msgspec
import pytest

from reprieve.api.gangs import KOORDINATOR, SCHEDULER_PLUGINS, ElasticQuota
from reprieve.engine.scheduling.gangs.job import JobPolicy, QuotaProtection
from reprieve.intake.gangs_quotas import protected_by


def quota(name: str, used: str = "2", **labels: str) -> ElasticQuota:
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": f"ns-{name}",
                "labels": {f"quota.scheduling.koordinator.sh/{k}": v for k, v in labels.items()},
            },
            "spec": {"min": {"cpu": "2", "memory": "4Gi"}},
            "status": {"used": {"cpu": used}},
        },
        ElasticQuota,
    )


WITHIN, ABOVE = quota("within", "2000m"), quota("above", "2001m")
LABELLED = quota("labelled", "9", preemptible="false")
SPELT = quota("spelt", "9", preemptible="False")


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (QuotaProtection.IGNORE, set()),
        (QuotaProtection.LABELS, {"labelled"}),
        (QuotaProtection.MIN, {"labelled", "within"}),
    ],
)
def test_quotas_protect_by_label_and_by_guarantee(
    mode: QuotaProtection, expected: set[str]
) -> None:
    quotas = [(KOORDINATOR, each) for each in (WITHIN, ABOVE, LABELLED, SPELT)]
    found = protected_by(JobPolicy(quotas=mode), quotas)
    assert found.protected_quotas == frozenset(expected)
    assert found.protected_namespaces == frozenset()


def test_quotas_of_scheduler_plugins_count_their_namespace() -> None:
    policy = JobPolicy(quotas=QuotaProtection.MIN, protected_namespaces=frozenset({"own"}))
    found = protected_by(policy, [(SCHEDULER_PLUGINS, WITHIN), (SCHEDULER_PLUGINS, ABOVE)])
    assert found.protected_namespaces == {"own", "ns-within"}


def test_a_quota_that_cannot_be_read_protects_nobody() -> None:
    policy = JobPolicy(quotas=QuotaProtection.MIN)
    assert protected_by(policy, [(KOORDINATOR, quota("odd", "many"))]) == policy
