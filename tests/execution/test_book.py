"""What a book of plans promises to the planes: names, lost answers, what is open, who stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kubeworld.units.durations import HOUR, MINUTE
from reprieve.api.reprieve import IntentPhase
from reprieve.engine import plan as engine
from reprieve.execution.records.book import Book, Retention
from reprieve.kube.errors import Forbidden
from reprieve.telemetry.metrics import Metrics
from reprieve.units.ids import PlanId, Uid
from reprieve.units.references import Reference
from tests.execution.test_recovery import Records, with_time
from tests.kube.fakes import FakeAnswer, refusal
from tests.scheduling.memory import Target

_KIND = "preemptions.reprieve.dev"


def _ref(name: str) -> Reference:
    return Reference("v1", "Pod", "ns", name, Uid(f"{name}-uid"))


def _plan(name: str, preemptor: str | None = "high") -> engine.Plan:
    victim = engine.Victim(_ref("low"), _ref("low"), {"cpu": 1}, "lower priority")
    return engine.Plan(
        PlanId(name),
        engine.Plane.QUOTA,
        1,
        engine.Proof(engine.ProofLevel.QUOTA),
        _ref(preemptor) if preemptor else None,
        (victim,),
    )


class Books(Records):
    """An API server with records, and a book on them."""

    def __init__(self, retention: Retention | None = None) -> None:
        super().__init__()
        self.retention = retention or Retention()
        self.metrics = Metrics()
        self.book = self.another()

    def another(self, plane: engine.Plane = engine.Plane.QUOTA) -> Book:
        return Book(
            plane,
            self.client,
            "ns",
            self.fence,
            self.clock,
            self.metrics,
            retention=lambda: self.retention,
        )

    async def written(self, plan: engine.Plan) -> str:
        found: list[str] = []

        async def write() -> None:
            found.append((await self.book.write(plan)).metadata.name)

        await with_time(self, write)
        return found[0]

    async def closed(self, plan: engine.Plan) -> str:
        intent = await self.book.write(plan)
        await self.book.close(intent, IntentPhase.COMPLETED, "", ())
        return intent.metadata.name


def _failing(
    verb: str, times: int, *, code: int = 503
) -> Callable[[str, Target], FakeAnswer | None]:
    left = [times]

    def hook(done: str, where: Target) -> FakeAnswer | None:
        if (done, where.kind) == (verb, _KIND) and left[0]:
            left[0] -= 1
            return refusal(code, "Forbidden" if code == 403 else "ServiceUnavailable", "no")
        return None

    return hook


async def test_numbers_count_the_plans_for_one_preemptor_and_those_for_nobody() -> None:
    books = Books()
    names = [await books.closed(_plan(name)) for name in ("a", "b")]
    names += [await books.closed(_plan(name, "other")) for name in ("c",)]
    names += [await books.closed(_plan(name, None)) for name in ("d", "e")]
    assert names == [
        "quota-high-uid-1",
        "quota-high-uid-2",
        "quota-other-uid-1",
        "quota-always-1",
        "quota-always-2",
    ]


async def test_the_next_process_goes_on_counting_and_takes_over_what_is_open() -> None:
    books = Books()
    await books.closed(_plan("a"))
    await books.closed(_plan("b", None))
    opened = await books.book.write(_plan("c"))
    other = books.another(engine.Plane.SCHEDULING)
    await other.write(replace(_plan("foreign"), plane=engine.Plane.SCHEDULING))
    books.book = books.another()
    claimed: list[str] = []

    async def recover() -> None:
        left = await books.book.recover()
        assert {each.spec.plane for each in left.records} == {"quota"}
        claimed.extend(each.metadata.name for each in left.claimed)

    await with_time(books, recover)
    assert claimed == [opened.metadata.name] == ["quota-high-uid-2"]
    assert await books.closed(_plan("d")) == "quota-high-uid-3"
    assert await books.closed(_plan("e", None)) == "quota-always-2"


async def test_a_name_that_stands_for_another_plan_is_left_alone() -> None:
    books = Books()
    await books.opened("quota-high-uid-1")
    assert await books.written(_plan("a")) == "quota-high-uid-2"
    assert books.phases() == {"quota-high-uid-1": "Planned", "quota-high-uid-2": "Evicting"}
    assert list(books.book.open) == ["quota-high-uid-2"]


@pytest.mark.parametrize("verb", ["post", "patch"])
async def test_a_plan_whose_answer_is_lost_is_written_again_and_stands_once(verb: str) -> None:
    books = Books()
    books.api.after = _failing(verb, 1)
    assert await books.written(_plan("a")) == "quota-high-uid-1"
    assert books.phases() == {"quota-high-uid-1": "Evicting"}


async def test_a_plan_is_open_from_before_its_first_write_until_it_is_closed() -> None:
    books = Books()
    seen: list[list[str]] = []

    def hook(verb: str, where: Target) -> FakeAnswer | None:
        seen.append(list(books.book.open))
        return None

    books.api.before = hook
    intent = await books.book.write(_plan("a"))
    await books.book.close(intent, IntentPhase.COMPLETED, "", ())
    assert seen == [["quota-high-uid-1"]] * 3
    assert not books.book.open


async def test_what_could_not_be_begun_is_not_open_and_is_abandoned_where_it_is_stored() -> None:
    books = Books()
    books.api.before = _failing("patch", 1, code=403)
    with pytest.raises(Forbidden):
        await books.book.write(_plan("a"))
    assert not books.book.open
    await books.book.settle()
    assert books.phases() == {"quota-high-uid-1": "Abandoned"}


async def test_a_record_that_somebody_else_wrote_is_closed_all_the_same() -> None:
    books = Books()
    intent = await books.book.write(_plan("a"))
    stored = books.api.objects[_KIND]["ns", intent.metadata.name]
    books.api.put(_KIND, {**stored, "status": {"phase": "Evicting", "owner": "other"}})
    ended = await books.book.close(intent, IntentPhase.COMPLETED, "over", ())
    assert ended is not None and ended.status.phase is IntentPhase.COMPLETED
    assert books.phases() == {intent.metadata.name: "Completed"} and not books.book.open


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "closed by somebody else"])
async def test_a_record_that_is_over_already_is_left_as_it_is(gone: bool) -> None:
    books = Books()
    intent = await books.book.write(_plan("a"))
    name = intent.metadata.name
    stored = books.api.objects[_KIND]["ns", name]
    if gone:
        books.api.remove(_KIND, "ns", name)
    else:
        books.api.put(_KIND, {**stored, "status": {"phase": "Abandoned"}})
    assert await books.book.close(intent, IntentPhase.COMPLETED, "", ()) is None
    assert books.phases() == ({} if gone else {name: "Abandoned"}) and not books.book.open


async def test_a_record_that_cannot_be_closed_stays_open() -> None:
    books = Books()
    intent = await books.book.write(_plan("a"))
    books.api.before = _failing("patch", 9, code=403)
    with pytest.raises(Forbidden):
        await books.book.close(intent, IntentPhase.COMPLETED, "", ())
    assert list(books.book.open) == [intent.metadata.name]


async def test_a_dry_run_is_written_once_and_again_only_where_that_failed() -> None:
    books = Books()
    books.api.before = _failing("post", 1, code=403)
    await books.book.record_dry_run(_plan("a"))
    assert not books.book.noted(_plan("a")) and not books.phases()
    for _ in range(2):
        await books.book.record_dry_run(_plan("a"))
    assert books.book.noted(_plan("a")) and list(books.phases()) == ["quota-dry-run-a"]
    before = len(books.api.writes)
    await books.another().record_dry_run(_plan("a"))
    assert len(books.api.writes) <= before + 1 and list(books.phases()) == ["quota-dry-run-a"]


async def test_a_dry_run_whose_record_has_gone_is_forgotten_and_written_again() -> None:
    books = Books(Retention(24 * HOUR, cap=1))
    for name in ("a", "b"):
        await books.book.record_dry_run(_plan(name))
        await books.clock.advance(MINUTE)
    for _ in range(2):
        await books.book.remove_old()
    assert [books.book.noted(_plan(name)) for name in ("a", "b")] == [False, True]
    await books.book.record_dry_run(_plan("a"))
    assert sorted(books.phases()) == ["quota-dry-run-a", "quota-dry-run-b"]


async def test_above_the_cap_records_go_but_for_fresh_ones_and_their_numbers_begin_anew() -> None:
    books = Books(Retention(24 * HOUR, cap=1, fresh=HOUR, fresh_cap=2))
    await books.closed(_plan("old", "gone"))
    await books.clock.advance(2 * HOUR)
    for number in range(3):
        await books.closed(_plan(f"p{number}", f"fresh-{number}"))
        await books.clock.advance(MINUTE)
    await books.book.remove_old()
    assert sorted(books.phases()) == ["quota-fresh-1-uid-1", "quota-fresh-2-uid-1"]
    await books.clock.advance(2 * HOUR)
    await books.book.remove_old()
    assert sorted(books.phases()) == ["quota-fresh-2-uid-1"]
    assert await books.closed(_plan("new", "gone")) == "quota-gone-uid-1"
    assert await books.closed(_plan("next", "fresh-2")) == "quota-fresh-2-uid-2"
    await books.clock.advance(25 * HOUR)
    await books.book.remove_old()
    assert not books.phases()
