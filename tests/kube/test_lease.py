"""Leader election in virtual time: who leads, until when, and with which epoch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import MINUTE, SECOND
from reprieve.kube.errors import Forbidden, Unreachable
from reprieve.kube.lease import LeaderElector, LeaseTimes
from reprieve.kube.resource import LEASES
from reprieve.kube.transport import Request
from tests.background import ended
from tests.kube.fakes import Collection, FakeAnswer, FakeWire, client_over, refusal


class Stage:
    """One lease and any number of candidates."""

    def __init__(self) -> None:
        self.leases = Collection(LEASES)
        self.clock = VirtualClock()
        self.tasks: list[asyncio.Task[None]] = []
        self.reports: list[Exception] = []

    def candidate(
        self, name: str, refuse: Callable[[Request], FakeAnswer | None] | None = None
    ) -> Candidate:
        return Candidate(self, name, refuse)

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.leases.objects["ops", "reprieve"]["spec"]
        return spec


class Candidate:
    def __init__(
        self, stage: Stage, name: str, refuse: Callable[[Request], FakeAnswer | None] | None
    ) -> None:
        self.stage = stage
        self.refuse = refuse or (lambda request: None)
        self.wire = FakeWire(self._answer)
        self.changes: list[bool] = []
        self.published: list[tuple[int | None, int]] = []
        self.wanted = True
        self.elector = LeaderElector(
            client_over(self.wire, stage.clock),
            stage.clock,
            namespace="ops",
            name="reprieve",
            identity=name,
            jitter=Random(name),
            changed=self.changes.append,
            report=stage.reports.append,
            published=lambda held_until, epoch: self.published.append((held_until, epoch)),
            wanted=lambda: self.wanted,
        )
        self.task = asyncio.ensure_future(self.elector.run())
        stage.tasks.append(self.task)

    def _answer(self, request: Request) -> FakeAnswer:
        return self.refuse(request) or self.stage.leases.handle(request)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    for task in made.tasks:
        await ended(task)


async def test_a_missing_lease_is_created_and_held(stage: Stage) -> None:
    one = stage.candidate("one")
    await stage.clock.advance(0)
    await one.elector.wait_leading()
    assert one.elector.leading
    assert one.elector.held_until == 15 * SECOND
    assert one.elector.epoch == 0
    assert one.changes == [True]
    assert stage.spec == {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-03-04T10:00:00.000000Z",
        "renewTime": "2026-03-04T10:00:00.000000Z",
        "leaseTransitions": 0,
    }


async def test_renewals_move_the_end_and_need_no_read(stage: Stage) -> None:
    one = stage.candidate("one")
    await stage.clock.advance(9 * SECOND)
    assert one.elector.held_until == (8 + 15) * SECOND
    assert stage.spec["renewTime"] == "2026-03-04T10:00:08.000000Z"
    assert stage.spec["acquireTime"] == "2026-03-04T10:00:00.000000Z"
    assert [request.method for request in one.wire.requests] == ["GET", "POST", *["PUT"] * 4]


async def test_only_one_of_many_candidates_leads_at_any_time(stage: Stage) -> None:
    candidates = [stage.candidate(name) for name in ("one", "two", "three")]
    seen = set()
    for _ in range(60):
        await stage.clock.advance(SECOND)
        leaders = [each.elector.identity for each in candidates if each.elector.leading]
        assert len(leaders) <= 1
        seen.update(leaders)
    assert len(seen) == 1


async def test_a_holder_that_falls_silent_is_replaced_with_the_next_epoch(stage: Stage) -> None:
    one = stage.candidate("one")
    await stage.clock.advance(SECOND)
    two = stage.candidate("two")
    await stage.clock.advance(MINUTE)
    assert not two.elector.leading
    silent = one.elector.held_until
    one.task.cancel()
    await stage.clock.advance(MINUTE)
    assert silent is not None
    assert two.elector.leading
    assert two.elector.epoch == 1
    assert (stage.spec["holderIdentity"], stage.spec["leaseTransitions"]) == ("two", 1)


async def test_a_foreign_lease_is_never_taken_before_its_duration_was_observed(
    stage: Stage,
) -> None:
    # By its own renewTime this lease ended years ago; the writer's clock may simply be wrong.
    stage.leases.put(
        {
            "metadata": {"name": "reprieve", "namespace": "ops"},
            "spec": {
                "holderIdentity": "other",
                "leaseDurationSeconds": 15,
                "renewTime": "2001-01-01T00:00:00.000000Z",
                "leaseTransitions": 6,
            },
        }
    )
    one = stage.candidate("one")
    await stage.clock.advance(15 * SECOND - 1)
    assert not one.elector.leading
    assert one.elector.holder == "other"
    await stage.clock.advance(6 * SECOND)
    assert one.elector.leading
    assert one.elector.epoch == 7


async def test_stop_releases_the_lease_for_the_next_one(stage: Stage) -> None:
    one = stage.candidate("one")
    await stage.clock.advance(SECOND)
    await one.elector.stop()
    assert one.changes == [True, False]
    assert one.elector.held_until is None
    assert stage.spec["holderIdentity"] == ""
    assert stage.spec["leaseTransitions"] == 0
    two = stage.candidate("two")
    await stage.clock.advance(0)
    assert two.elector.leading
    assert two.elector.epoch == 1


async def test_a_renewal_cut_off_by_stop_is_released_too(stage: Stage) -> None:
    one = stage.candidate("one")
    await stage.clock.advance(SECOND)
    handle = one.wire.handler
    stored = []

    async def stuck(request: Request) -> FakeAnswer:
        stored.append(handle(request))
        await stage.clock.sleep(MINUTE)
        raise AssertionError("cut off before")

    one.wire.handler = stuck
    await stage.clock.advance(2 * SECOND)
    assert len(stored) == 1
    one.wire.handler = handle
    await one.elector.stop()
    assert stage.spec["holderIdentity"] == ""


async def test_stop_of_a_candidate_touches_nothing(stage: Stage) -> None:
    stage.candidate("one")
    await stage.clock.advance(0)
    two = stage.candidate("two")
    await stage.clock.advance(SECOND)
    await two.elector.stop()
    assert {request.method for request in two.wire.requests} == {"GET"}
    assert stage.spec["holderIdentity"] == "one"


async def test_a_leader_without_answers_ceases_before_its_lease_ends(stage: Stage) -> None:
    one = stage.candidate("one")
    await stage.clock.advance(SECOND)

    def refuse(request: Request) -> FakeAnswer | None:
        raise Unreachable("no route")

    one.refuse = refuse
    ends = one.elector.held_until
    assert ends is not None
    await one_lost(stage, one, ends)
    assert one.changes == [True, False]
    assert [str(report) for report in stage.reports] == ["no route"]
    one.refuse = lambda request: None
    await stage.clock.advance(MINUTE)
    assert one.elector.leading


async def one_lost(stage: Stage, candidate: Candidate, before: int) -> None:
    waiting = asyncio.ensure_future(candidate.elector.wait_lost())
    while not waiting.done():
        await stage.clock.advance(SECOND)
    assert stage.clock.monotonic() < before
    assert candidate.elector.held_until is None


async def test_a_leader_that_sees_another_holder_ceases_at_once(stage: Stage) -> None:
    one = stage.candidate("one")
    await stage.clock.advance(SECOND)
    lease = stage.leases.objects["ops", "reprieve"]
    stage.leases.put({**lease, "spec": {**lease["spec"], "holderIdentity": "thief"}})
    await stage.clock.advance(2 * SECOND)
    assert one.changes == [True, False]
    assert one.elector.holder == "thief"


async def test_a_renewal_whose_answer_was_lost_is_recognised_as_our_own(stage: Stage) -> None:
    one = stage.candidate("one")
    await stage.clock.advance(SECOND)
    lost: list[object] = []

    def refuse(request: Request) -> FakeAnswer | None:
        if request.method == "PUT" and not lost:
            lost.append(stage.leases.handle(request))
            raise Unreachable("reset")
        return None

    one.refuse = refuse
    await stage.clock.advance(20 * SECOND)
    assert one.elector.leading
    assert one.changes == [True]
    assert stage.spec["leaseTransitions"] == 0


async def test_the_end_counts_from_the_start_of_the_renewal(stage: Stage) -> None:
    one = stage.candidate("one")
    await stage.clock.advance(SECOND)
    handle = one.wire.handler

    async def slow(request: Request) -> FakeAnswer:
        await stage.clock.sleep(3 * SECOND)
        answer = handle(request)
        assert isinstance(answer, FakeAnswer)
        return answer

    one.wire.handler = slow
    await stage.clock.advance(5 * SECOND)
    assert stage.clock.monotonic() == 6 * SECOND
    assert one.elector.held_until == (2 + 15) * SECOND


async def test_a_lease_that_vanishes_does_not_turn_the_epoch_back(stage: Stage) -> None:
    stage.leases.put(
        {
            "metadata": {"name": "reprieve", "namespace": "ops"},
            "spec": {"holderIdentity": "", "leaseTransitions": 6},
        }
    )
    one = stage.candidate("one")
    await stage.clock.advance(SECOND)
    assert one.elector.epoch == 7
    stage.leases.remove("ops", "reprieve")
    await stage.clock.advance(10 * SECOND)
    assert one.elector.leading
    assert one.elector.epoch == 8


async def test_missing_rights_are_reported_once(stage: Stage) -> None:
    denial = 'User "x" cannot get resource "leases" in API group "coordination.k8s.io"'
    one = stage.candidate("one", lambda request: refusal(403, "Forbidden", denial))
    await stage.clock.advance(MINUTE)
    assert not one.elector.leading
    [report] = stage.reports
    assert isinstance(report, Forbidden)
    assert report.rule is not None


def test_times_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="duration > renew deadline"):
        LeaseTimes(duration=SECOND, renew_deadline=2 * SECOND)


async def test_a_lease_is_not_kept_for_somebody_who_is_gone_and_kept_for_one_who_comes_back(
    stage: Stage,
) -> None:
    one = stage.candidate("one")
    await stage.clock.advance(SECOND)
    one.wanted = False
    await stage.clock.advance(6 * SECOND)
    assert stage.spec["renewTime"] == "2026-03-04T10:00:00.000000Z"
    one.wanted = True
    await stage.clock.advance(2 * SECOND)
    assert one.published[-1] == (one.elector.held_until, 0) == ((8 + 15) * SECOND, 0)
    one.wanted = False
    await stage.clock.advance(MINUTE)
    assert one.changes == [True, False]
    assert one.published[-1:] == [(None, 0)]


async def test_a_candidate_looks_again_the_moment_a_silent_holder_has_lost_the_lease(
    stage: Stage,
) -> None:
    one = stage.candidate("one")
    await stage.clock.advance(SECOND)
    one.task.cancel()
    two = stage.candidate("two")
    # Seen by the candidate at its start, a second after it was taken.
    await stage.clock.advance(15 * SECOND - 1)
    assert not two.elector.leading
    await stage.clock.advance(1)
    assert two.elector.leading


async def test_what_is_noted_goes_with_the_next_write_and_stays_for_the_next_holder(
    stage: Stage,
) -> None:
    one = stage.candidate("one")
    await stage.clock.advance(0)
    assert one.elector.annotation("a/b") is None
    one.elector.annotate("a/b", "first")
    assert await one.elector.renew_now()
    metadata = stage.leases.objects["ops", "reprieve"]["metadata"]
    assert metadata["annotations"] == {"a/b": "first"}
    one.elector.annotate("a/b", "second")
    stopping = asyncio.ensure_future(one.elector.stop())
    await stage.clock.advance(SECOND)
    await stopping
    assert stage.spec["holderIdentity"] == ""
    two = stage.candidate("two")
    await stage.clock.advance(5 * SECOND)
    assert two.elector.leading
    assert two.elector.annotation("a/b") == "second"
    assert not await one.elector.renew_now(), "who does not hold the lease writes nothing"
    assert stage.spec["holderIdentity"] == "two"
