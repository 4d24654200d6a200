"""From the version before this one to this one and back, with a plan open at each of its stages.

Whom the operator evicted is counted from the API server's audit log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.node.cluster import GPUS, OPERATOR, Cluster
from tests.node.former import NO_FORMER, build_former, former_commit
from tests.node.machine import IMAGE, missing
from tests.node.release import VALUES, Object, Release, Version
from tests.node.work import evicted, followed, gang, records, running, sweep

pytestmark = [pytest.mark.slow, pytest.mark.node]

WAITS = ("--wait", "--timeout", "5m")
NOTICE: Object = {"scheduling": {**VALUES["scheduling"], "notice": {"max": "2m"}}}
# The phase of its record in each stage of a plan.
PHASES = {"noticed": "Noticed", "recorded": "Planned", "evicting": "Evicting"}
GROUP = "admissionregistration.k8s.io/v1"


class Versions:
    """A release that is of the one version or the other."""

    def __init__(self, release: Release, former: Version) -> None:
        self._release, self._former = release, former
        release.helm("install", "--create-namespace", *WAITS, version=former, **NOTICE)
        self._newest = False

    def before(self, change: str) -> None:
        """Bring the release to the version that is changed."""
        if change == "upgrade" and self._newest:
            self.make("rollback")
        elif change == "rollback" and not self._newest:
            self.make("upgrade")

    def make(self, change: str) -> None:
        """Upgrade to this version, or roll back to the former one."""
        values = NOTICE if change == "upgrade" else {}
        self._release.helm(change, *WAITS, **values)
        self._newest = change == "upgrade"


@pytest.fixture(scope="module")
def former() -> tuple[Version, Path]:
    if lacking := missing():
        pytest.skip(lacking)
    commit = former_commit()
    if not commit:
        pytest.skip(NO_FORMER)
    return build_former(commit)


@pytest.fixture(scope="module")
def images(former: tuple[Version, Path]) -> Sequence[Path]:
    return (IMAGE, former[1])


@pytest.fixture(scope="module")
def versions(cluster: Cluster, former: tuple[Version, Path]) -> Versions:
    return Versions(Release(cluster), former[0])


@contextmanager
def held(cluster: Cluster) -> Iterator[None]:
    """Refuse the operator's first write after a record, so that its plan stays recorded."""
    name = {"name": "hold"}
    rules = [
        {"apiGroups": [group], "apiVersions": ["*"], "operations": [verb], "resources": [kind]}
        for group, verb, kind in (
            ("reprieve.dev", "UPDATE", "preemptions/status"),
            ("", "CREATE", "configmaps"),  # which shows when the policy has come into force
        )
    ]
    allowed = f"request.userInfo.username != '{OPERATOR}' && object.metadata.name != 'probe'"
    policy: Object = {
        "apiVersion": GROUP,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": name,
        "spec": {
            "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": allowed}],
        },
    }
    binding: Object = {
        "apiVersion": GROUP,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": name,
        "spec": {"policyName": "hold", "validationActions": ["Deny"]},
    }

    def in_force() -> bool:
        try:
            cluster.kubectl("create", "configmap", "probe", "--dry-run=server")
        except RuntimeError:
            return True
        return False

    cluster.apply(policy, binding)
    try:
        cluster.until("the policy is in force", in_force)
        yield
    finally:
        kinds = "validatingadmissionpolicybinding,validatingadmissionpolicy"
        cluster.kubectl("delete", kinds, "hold")


def opened(cluster: Cluster, space: str, stage: str) -> Object:
    """Return the record of a gang's plan, once it is in that stage."""
    cluster.apply(*gang(space, 2, GPUS // 2))

    def found() -> Object | None:
        for record in records(cluster, space):
            phase = record.get("status", {}).get("phase") or "Planned"
            if phase == PHASES[stage] and (stage != "evicting" or evicted(cluster, space)):
                return record
        return None

    record: Object = cluster.until(f"the plan is {stage}", found)
    return record


def completed(cluster: Cluster, space: str) -> Object | None:
    """Return the record that is carried out, once all are final: others were given up."""
    found = records(cluster, space)
    phases = sorted(each.get("status", {}).get("phase", "") for each in found)
    if phases != [*["Abandoned"] * (len(found) - 1), "Completed"]:
        return None
    return next(each for each in found if each["status"]["phase"] == "Completed")


@pytest.mark.usefixtures("classes")
@pytest.mark.parametrize("change", ["upgrade", "rollback"])
@pytest.mark.parametrize("stage", list(PHASES))
def test_a_plan_is_carried_out_once_by_whichever_version_follows(
    versions: Versions, cluster: Cluster, space: str, stage: str, change: str
) -> None:
    versions.before(change)
    work = sweep(space, 4, GPUS // 2, saves=40 if stage == "evicting" else 3, grace=120)
    if stage == "noticed":
        for pod in work:
            pod["metadata"]["annotations"] = {"reprieve.dev/notice": "50s"}
    cluster.apply(*work)
    workers = followed(cluster, space, 4)
    if stage == "recorded":
        with held(cluster):
            record = opened(cluster, space, stage)
            versions.make(change)
            assert evicted(cluster, space) == []
    else:
        record = opened(cluster, space, stage)
        versions.make(change)
    followed(cluster, space, 2, "gang=train")
    finished = cluster.until("the records are final", lambda: completed(cluster, space))

    victims = sorted(each["root"]["name"] for each in finished["spec"]["victims"])
    assert len(victims) == 2
    if stage != "recorded":
        assert finished["metadata"]["uid"] == record["metadata"]["uid"]
    assert sorted(evicted(cluster, space)) == victims
    for name in victims:
        assert workers[name].said() == ["works", "TERM", "saved"]
    assert set(running(cluster, space, "app=sweep")) == workers.keys() - {*victims}
