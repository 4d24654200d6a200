"""Workloads are told by the name of their job, also when both are gone."""

from __future__ import annotations

from reprieve.api.reprieve import ObjectRef
from reprieve.engine.idle.discovery import gpu_workload_name
from reprieve.jobs.naming import workload_name
from reprieve.jobs.table import BUILT_IN
from reprieve.web.mirror.former_units import FormerUnits
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.records.called import called
from tests.web import cluster

UID = "3f0e4c0a-8a52-4b8e-9a53-0d6e1c9d2f11"


def ref(kind: str, name: str, uid: str = "its-own") -> ObjectRef:
    return ObjectRef("x/v1", kind, name, uid, "team-a")


def test_what_is_there_says_whose_it_is() -> None:
    mirror = cluster.mirror(cluster.workload("train"))
    there = ref("Workload", "job-train", "uid-team-a-job-train")
    assert called(mirror, there) == "job/team-a/train"
    assert called(mirror, ref("Workload", "job-train", "another")) == "workload/team-a/job-train"


def test_what_is_gone_is_told_by_its_job_where_the_jobs_uid_makes_its_name() -> None:
    for row in BUILT_IN:
        unit = f"{row.kind.lower()}/team-a/train-x-7"
        quota = ref("Workload", workload_name(row.kind, row.group, "train-x-7", UID))
        idle = ref("GpuWorkload", gpu_workload_name(row.kind, "train-x-7", UID))
        for each in (quota, idle):
            assert called(Mirror(), each, f"owner/{UID}") == unit
            own = f"{each.kind.lower()}/team-a/{each.name}"
            assert called(Mirror(), each, "owner/another-uid") == own
            assert called(Mirror(), each, "label/team-a/mine") == own
            assert called(Mirror(), each) == own


def test_what_was_deleted_is_named_by_the_job_that_it_was_of() -> None:
    train = cluster.workload("train")
    mirror = cluster.mirror(train)
    gone = ref("Workload", "job-train", "uid-team-a-job-train")
    cluster.take(mirror, train)
    assert called(mirror, gone) == "job/team-a/train"
    assert called(mirror, ref("Workload", "job-train", "another")) == "workload/team-a/job-train"


def test_only_the_latest_deletions_are_remembered() -> None:
    three = [cluster.workload(name) for name in ("a", "b", "c")]
    mirror = cluster.mirror(*three)
    former = FormerUnits(most=2)
    former.follow(mirror.workloads)
    for each in three:
        cluster.take(mirror, each)
    found = [former.get(f"uid-team-a-job-{name}") for name in ("a", "b", "c")]
    assert found == [None, "job/team-a/b", "job/team-a/c"]
