"""Names and walks that the vectors do not name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from reprieve.engine.idle.discovery import (
    Failed,
    Forbidden,
    Found,
    Lookup,
    Missing,
    Owner,
    OwnerForbidden,
    OwnerUnaware,
    OwnerUnreadable,
    Root,
    gpu_workload_name,
    owns,
    resolve_root,
)
from reprieve.engine.idle.evaluation_lease import LeaseState, may_acquire
from reprieve.engine.idle.literal import LiteralSwitches
from reprieve.intake.cluster.selectors import equal_labels
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from reprieve.wording.kaiwo import resolution_error_text
from tests.engine.rows import NOW, ago

OFF = LiteralSwitches()
POD = Found(
    Reference("v1", "Pod", "ml", "p", Uid("p")), (Owner("batch/v1", "Job", "j", Uid("j"), True),)
)
START = Lookup("v1", "Pod", "ml", "p")


def test_a_name_that_is_too_long_loses_its_middle_and_keeps_its_uid() -> None:
    name = "a" * 120 + "." + "b" * 132
    made = gpu_workload_name("Job", name, "12345678-abcd")
    assert len(made) <= 253
    assert made.startswith("job-aaa")
    assert made.endswith("bbb-12345678")
    fits = "n" * (253 - len("job-") - len("-12345678"))
    assert gpu_workload_name("Job", fits, "12345678-abcd") == f"job-{fits}-12345678"


def test_the_walk_asks_for_the_owner_with_its_uid() -> None:
    walk = resolve_root(START, OFF, POD)
    assert next(walk) == Lookup("batch/v1", "Job", "ml", "j", Uid("j"))


def test_what_stops_a_walk_is_told_apart() -> None:
    for answer, error, text in (
        (Forbidden("403"), OwnerForbidden, "add get permission"),
        (Failed("timeout"), OwnerUnreadable, "transient error resolving owner"),
    ):
        walk = resolve_root(START, OFF, POD)
        next(walk)
        with pytest.raises(error) as raised:
            walk.send(answer)
        assert text in resolution_error_text(raised.value)


def test_a_pod_whose_owner_is_gone_belongs_to_nobody() -> None:
    walk = owns(Reference("apps/v1", "Deployment", "ml", "d", Uid("d")), POD, True, OFF)
    next(walk)
    with pytest.raises(StopIteration) as ended:
        walk.send(Missing())
    assert ended.value.value is False


def test_a_lease_is_taken_only_when_it_is_free() -> None:
    held = LeaseState("other", ago(29), 30)
    assert not may_acquire(held, "me", NOW)
    assert may_acquire(LeaseState("other", ago(30), 30), "me", NOW)
    assert may_acquire(LeaseState("other", ago(1)), "me", NOW)  # no duration counts as run out
    assert may_acquire(LeaseState("other", None, 30), "me", NOW)


def test_the_oracle_knows_nothing_of_the_engine() -> None:
    for path in (Path(__file__).parents[1] / "oracle").rglob("*.py"):
        if path.name.startswith("test_"):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = [
            name.name
            for each in ast.walk(tree)
            if isinstance(each, ast.Import)
            for name in each.names
        ] + [each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
        foreign = (n for n in imported if n.partition(".")[0] in ("reprieve", "tests", "bench"))
        assert [n for n in foreign if not n.startswith("tests.oracle")] == [], path


def way_up(*things: Found, literal: LiteralSwitches = OFF) -> Root:
    """Walk from the first thing; the others are the answers in their order."""
    walk = resolve_root(START, literal, things[0])
    try:
        next(walk)
        for answer in things[1:]:
            walk.send(answer)
    except StopIteration as end:
        root: Root = end.value
        return root
    raise AssertionError("the walk asks for more")


def below(kind: str, name: str, api_version: str = "apps/v1", **labels: str) -> Found:
    """The pod `p` that names this owner as its controller."""
    owner = Owner(api_version, kind, name, Uid(name), True)
    return Found(Reference("v1", "Pod", "ml", labels.pop("pod", "p"), Uid("p")), (owner,), labels)


def owner(
    kind: str,
    name: str,
    api_version: str = "apps/v1",
    owners: tuple[Owner, ...] = (),
    children: frozenset[Uid] | None = None,
    labels: dict[str, str] | None = None,
    **selected: str,
) -> Found:
    selector = equal_labels(selected) if selected else None
    ref = Reference(api_version, kind, "ml", name, Uid(name))
    return Found(ref, owners, labels or {}, selector, children)


def test_a_stateful_set_that_does_not_select_a_pod_is_not_its_root() -> None:
    theirs = owner("StatefulSet", "db", app="db")
    forged = below("StatefulSet", "db", pod="p", app="other")
    root = way_up(forged, theirs)
    assert (root.ref, root.chain, root.denied_by) == (forged.ref, "Pod/p", theirs.ref)


@pytest.mark.parametrize(
    ("name", "known"),
    [("db-0", True), ("db-12", True), ("mine", False), ("0", False), ("123", False)],
)
def test_a_pod_with_the_labels_of_a_stateful_set_needs_a_name_of_its_too(
    name: str, known: bool
) -> None:
    theirs = owner("StatefulSet", "db", app="db")
    pod = below("StatefulSet", "db", pod=name, app="db")
    assert (way_up(pod, theirs).ref == theirs.ref) is known


def test_a_deployment_is_the_root_of_its_replica_sets_only() -> None:
    theirs = owner("Deployment", "web", app="web")
    assert way_up(below("Deployment", "web", app="web"), theirs).ref.kind == "Pod"
    up = (Owner("apps/v1", "Deployment", "web", Uid("web"), True),)
    middle = owner("ReplicaSet", "web-1", owners=up, labels={"app": "web"}, app="web")
    pod = below("ReplicaSet", "web-1", app="web")
    assert way_up(pod, middle, theirs).ref == theirs.ref
    forged = owner("ReplicaSet", "web-1", owners=up, labels={"app": "mine"}, app="web")
    root = way_up(pod, forged, theirs)
    assert (root.ref, root.chain) == (forged.ref, "Pod/p -> ReplicaSet/web-1")


def test_a_job_knows_its_pods_by_its_selector() -> None:
    job = owner("Job", "j", "batch/v1", controller_uid="j")
    assert way_up(below("Job", "j", "batch/v1", controller_uid="j"), job).ref == job.ref
    assert way_up(below("Job", "j", "batch/v1", controller_uid="k"), job).ref.kind == "Pod"


def test_a_cron_job_that_does_not_list_a_job_is_asked_again() -> None:
    up = (Owner("batch/v1", "CronJob", "tick", Uid("tick"), True),)
    job = owner("Job", "j", "batch/v1", owners=up)
    pod = below("Job", "j", "batch/v1")
    listed = owner("CronJob", "tick", "batch/v1", children=frozenset({Uid("j")}))
    assert way_up(pod, job, listed).ref == listed.ref
    with pytest.raises(OwnerUnaware) as raised:
        way_up(pod, job, owner("CronJob", "tick", "batch/v1", children=frozenset()))
    assert "does not list Job/j" in resolution_error_text(raised.value)


def test_kinds_that_say_nothing_of_their_children_are_believed() -> None:
    cluster = owner("RayCluster", "ray", "ray.io/v1")
    assert way_up(below("RayCluster", "ray", "ray.io/v1"), cluster).ref == cluster.ref


def test_the_way_to_a_root_that_says_nothing_of_its_children_is_believed() -> None:
    up = (Owner("kaiwo.silogen.ai/v1alpha1", "KaiwoJob", "k", Uid("k"), True),)
    job = owner("Job", "j", "batch/v1", owners=up, controller_uid="j")
    root = owner("KaiwoJob", "k", "kaiwo.silogen.ai/v1alpha1")
    assert way_up(below("Job", "j", "batch/v1"), job, root).ref == root.ref


def test_a_pod_that_names_another_ones_replica_set_is_not_of_its_deployment() -> None:
    up = (Owner("apps/v1", "Deployment", "web", Uid("web"), True),)
    middle = owner("ReplicaSet", "web-1", owners=up, labels={"app": "web"}, app="web")
    forged = below("ReplicaSet", "web-1", app="other")
    root = way_up(forged, middle, owner("Deployment", "web", app="web"))
    assert (root.ref, root.denied_by) == (forged.ref, middle.ref)


def test_of_several_owners_that_do_not_know_their_child_the_nearest_counts() -> None:
    up = (Owner("apps/v1", "Deployment", "web", Uid("web"), True),)
    middle = owner("ReplicaSet", "web-1", owners=up, labels={"app": "mine"}, app="web")
    forged = below("ReplicaSet", "web-1", app="other")
    root = way_up(forged, middle, owner("Deployment", "web", app="web"))
    assert (root.ref, root.chain, root.denied_by) == (forged.ref, "Pod/p", middle.ref)


def test_a_pod_that_names_another_ones_job_is_not_of_its_cron_job() -> None:
    up = (Owner("batch/v1", "CronJob", "tick", Uid("tick"), True),)
    job = owner("Job", "j", "batch/v1", owners=up, controller_uid="j")
    forged = below("Job", "j", "batch/v1", controller_uid="k")
    listed = owner("CronJob", "tick", "batch/v1", children=frozenset({Uid("j")}))
    root = way_up(forged, job, listed)
    assert (root.ref, root.denied_by) == (forged.ref, job.ref)


def test_with_the_literal_switch_whatever_a_pod_names_is_its_root() -> None:
    theirs = owner("StatefulSet", "db", app="db")
    literal = LiteralSwitches(owner_uid_unchecked=True)
    assert way_up(below("StatefulSet", "db"), theirs, literal=literal).ref == theirs.ref
