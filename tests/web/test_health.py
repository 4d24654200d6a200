"""The page Health says who leads, what is open, who is held, and how the page is fed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import msgspec
import pytest

import reprieve
from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.reprieve import IntentPhase, Preemption, VictimState, VictimStatus
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.ledger import Displacement
from reprieve.web.mirror.leading import Lease
from reprieve.web.mirror.mirror import Mirror, Watched
from reprieve.web.pages import health
from reprieve.web.records.loops import loops_of
from reprieve.web.tables import Page, Viewer
from tests.web import cluster
from tests.web.stories import NOW, idle_record, mirror_of, quota_record, rows_of

EVERYTHING = Viewer(sees_all=True)
DECIDED = 1772619300.0


def lease(holder: str, renewed: int, version: int, epoch: int = 3) -> Lease:
    text = {
        "metadata": {
            "name": "reprieve",
            "namespace": "kaiwo-system",
            "uid": "lease",
            "resourceVersion": str(version),
        },
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": 15,
            "leaseTransitions": epoch,
            "acquireTime": format_instant(Nanos(NOW - HOUR)),
            "renewTime": format_instant(Nanos(NOW + renewed * SECOND)),
        },
    }
    return msgspec.convert(text, Lease)


def shown(mirror: Mirror, viewer: Viewer = EVERYTHING, when: int = 0) -> Page:
    return health.page(mirror, viewer, {}, Nanos(NOW + when * SECOND))


def going_on(record: Preemption) -> Preemption:
    status = msgspec.structs.replace(
        record.status, phase=IntentPhase.EVICTING, finished_at="", victims=record.status.victims[:1]
    )
    return msgspec.structs.replace(record, status=status)


def test_an_open_preemption_is_told_until_it_is_over() -> None:
    mirror = mirror_of([going_on(quota_record()), idle_record()])
    mirror.leases.applied(lease("reprieve-7f4d", 0, 1))
    mirror.watched = lambda: [Watched("pods", "Watching", 0, 12, "")]
    page = shown(mirror, when=10)
    assert page.values == {
        "leader": {
            "holder": "reprieve-7f4d",
            "namespace": "kaiwo-system",
            "epoch": 3,
            "since": DECIDED - 3_600,
            "renewed": DECIDED,
            "held": True,
        },
        "open": 1,
        "day": {"plans": 2, "abandoned": 0, "faults": 0},
        "polled": None,
        "unseen": [],
        "version": reprieve.__version__,
    }
    assert rows_of(page, "open") == [
        {
            "preemption": "quota-train-1",
            "decided": DECIDED,
            "plane": "quota",
            "preemptor": "workload/team-b/train",
            "state": "Evicting",
            "victims": 2,
            "left": 1,
        }
    ]
    assert rows_of(page, "kinds") == [
        {"kind": "pods", "health": "Watching", "namespaces": None, "objects": 12, "error": ""}
    ]


def test_nobody_leads_whose_lease_has_run_out() -> None:
    mirror = mirror_of()
    assert shown(mirror).values["leader"] is None
    mirror.leases.applied(lease("reprieve-7f4d", 0, 1))
    assert shown(mirror, when=14).values["leader"]["held"] is True
    assert shown(mirror, when=16).values["leader"]["held"] is False


def test_renewals_alone_have_no_page_made_anew_but_every_ten_seconds() -> None:
    mirror = mirror_of()
    versions = []
    for number in range(11):
        mirror.leases.applied(lease("one", 2 * number, number + 1))
        versions.append(mirror.version)
    assert [later - first for first, later in pairwise(versions)] == [
        0, 0, 0, 0, 1, 0, 0, 0, 0, 1,
    ]  # fmt: skip
    mirror.leases.applied(lease("two", 21, 20, epoch=4))
    assert mirror.version == versions[-1] + 1
    assert shown(mirror, when=21).values["leader"]["holder"] == "two"


def test_what_went_wrong_in_the_last_day_is_told() -> None:
    record = quota_record()
    first, second = record.spec.victims
    status = msgspec.structs.replace(
        record.status,
        phase=IntentPhase.ABANDONED,
        reason="the preemptor is gone",
        disruptions_pending=True,
        victims=[
            VictimStatus(first.root.uid, VictimState.FAILED, "2026-03-04T10:16:00Z", "no rights"),
            VictimStatus(second.root.uid, VictimState.SPARED, "2026-03-04T10:16:00Z"),
        ],
    )
    mirror = mirror_of([msgspec.structs.replace(record, status=status)])
    queue = cluster.cluster_queue("a", 8)
    said = {"type": "Active", "status": "False", "reason": "Stopped", "message": "it is stopped"}
    queue["status"] = {"conditions": [{**said, "lastTransitionTime": cluster.at(0)}]}
    cluster.put(mirror, queue)
    common = {"where": "quota", "preemption": "quota-train-1"}
    assert rows_of(shown(mirror), "faults") == [
        {
            "at": DECIDED + 60,
            "what": "workload/team-a/probe could not be evicted: no rights",
            **common,
        },
        {"at": DECIDED + 252, "what": "abandoned: the preemptor is gone", **common},
        {
            "at": DECIDED + 252,
            "what": "some Disruptions of its victims are not written yet",
            **common,
        },
        {
            "at": None,
            "where": "quota",
            "what": "ClusterQueue a cannot admit: it is stopped",
            "preemption": "",
        },
    ]
    assert shown(mirror, when=25 * 3_600).values["day"]["plans"] == 0


def test_a_tenant_is_told_that_somebody_leads_and_of_his_own() -> None:
    mirror = mirror_of([going_on(quota_record()), idle_record()])
    mirror.leases.applied(lease("reprieve-7f4d", 0, 1))
    mirror.watched = lambda: [Watched("pods", "Watching", 0, 12, "")]
    page = shown(mirror, Viewer(False, frozenset({"team-a"})), when=10)
    assert (page.values["leader"]["holder"], page.values["leader"]["held"]) == ("", True)
    assert page.values["open"] == 1 and page.values["day"]["plans"] == 1
    (row,) = rows_of(page, "open")
    assert (row["preemptor"], row["left"]) == ("another tenant's work", 1)
    assert rows_of(page, "kinds") == []


def turned(number: int, forth: bool) -> Preemption:
    """Two lineages that displace each other, each time by other objects."""
    record = quota_record(f"quota-turn-{number}")
    (victim, *_) = record.spec.victims
    names = ("sweep", "eval") if forth else ("eval", "sweep")

    def ref(name: str) -> Any:
        return msgspec.structs.replace(victim.subject, name=name, uid=f"{name}-{number}")

    one, other = (ref(name) for name in names)
    victim = msgspec.structs.replace(
        victim, subject=other, root=other, lineage=f"owner/{names[1]}", lost_device_seconds=60
    )
    spec = msgspec.structs.replace(
        record.spec,
        preemptor=one,
        preemptor_lineage=f"owner/{names[0]}",
        victims=[victim],
        plan_id=f"plan-{number}",
        decided_at=format_instant(Nanos(NOW + number * MINUTE)),
        input=None,
    )
    return msgspec.structs.replace(record, spec=spec)


def test_lines_of_work_that_displace_each_other_in_turn_are_told_as_held() -> None:
    mirror = mirror_of([turned(number, forth=number % 2 == 0) for number in range(4)])
    page = shown(mirror, when=240)
    (row,) = rows_of(page, "loops")
    assert sorted(row["members"]) == ["workload/team-a/eval", "workload/team-a/sweep"]
    assert row["displacements"] == 4
    assert row["until"] > DECIDED + 240
    assert " does not displace " in row["held"]
    assert rows_of(shown(mirror, Viewer(False, frozenset({"team-b"}))), "loops") == []
    assert rows_of(shown(mirror, when=3 * 3_600), "loops") == []


def test_a_thousand_records_are_folded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fold begins with all that is known: a fold for each record took seconds."""
    folds: list[int] = []
    fold = Governor.fold

    def counted(self: Governor, rows: Iterable[Displacement]) -> None:
        known = list(rows)
        folds.append(len(known))
        fold(self, known)

    monkeypatch.setattr(Governor, "fold", counted)
    records = [turned(number, forth=number % 2 == 0) for number in range(40)]
    loops_of(records, Nanos(NOW + HOUR))
    assert folds == [40]
