"""The check of idle plans notices an evaluation that takes more than it has to, or says so wrongly.

Each fault is put into the evaluation, which then decides about many random clusters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.idle import evaluation, plans
from reprieve.engine.idle.check import Fault, check_all
from reprieve.engine.idle.model import Fit, Workload
from reprieve.engine.idle.search import Search
from reprieve.engine.plan import Proof
from tests.engine.cases import NOW, clusters
from tests.engine.rows import policy_of, rows_of

Case = dict[str, Any]


def noticed(**options: Any) -> Counter[Fault]:
    """In how many clusters the check finds each fault."""
    found: Counter[Fault] = Counter()

    @settings(
        max_examples=200,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(clusters())
    def run(case: Case) -> None:
        rows, policy, now = rows_of(case), policy_of(case, **options), Nanos(NOW * SECOND)
        decided = evaluation.evaluate(rows, policy, now)
        violations = check_all(decided.plans, rows, policy, now, decided.reservations)
        found.update({each.fault for each in violations})

    run()
    return found


def skip_the_reprieve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is put back."""
    monkeypatch.setattr(Search, "spare", lambda self: [])


def keep_one_that_is_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of those that could be put back goes all the same."""
    spare = Search.spare
    monkeypatch.setattr(Search, "spare", lambda self: spare(self)[1:])


def take_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the demand fits one more goes, and is not put back."""
    collect, spare = Search.collect, Search.spare

    def more(self: Search, idle: Iterable[Workload]) -> bool:
        every = list(idle)
        if not collect(self, every):
            return False
        gone = {*self.chosen, *(each.root.uid for each in self.victims)}
        self.victims += [each for each in every if each.root.uid not in gone][:1]
        return True

    def but_the_last(self: Search) -> list[Workload]:
        return [each for each in spare(self) if each is not self.victims[-1]]

    monkeypatch.setattr(Search, "collect", more)
    monkeypatch.setattr(Search, "spare", but_the_last)


def forget_what_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The victims of an earlier plan for the same demand do not count."""
    monkeypatch.setattr(evaluation, "in_flight", lambda *_: None)


def call_everything_compatible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every plan says that it may take too many."""
    proof = plans.proof_of

    def compatible(search: Search, *, compatible: bool, gap: int | None = None) -> Proof:
        del compatible
        return proof(search, compatible=True, gap=gap)

    monkeypatch.setattr(evaluation, "proof_of", compatible)


TRIMMED = ({"fit": Fit.NODE}, {"fit": Fit.SUM, "irreducible": True})
BOTH = ({"fit": Fit.NODE}, {"fit": Fit.SUM})
CASES = [
    *((skip_the_reprieve, options, Fault.REDUCIBLE) for options in TRIMMED),
    *((keep_one_that_is_spare, options, Fault.REDUCIBLE) for options in TRIMMED),
    *((take_one_too_many, options, Fault.REDUCIBLE) for options in TRIMMED),
    *((forget_what_is_on_its_way, options, Fault.UNDERSTATED_FLIGHT) for options in BOTH),
    *((call_everything_compatible, options, Fault.WRONGLY_COMPATIBLE) for options in BOTH),
]


@pytest.mark.parametrize(("break_it", "options", "fault"), CASES)
def test_a_fault_of_the_evaluation_is_noticed(
    break_it: Callable[[pytest.MonkeyPatch], None],
    options: dict[str, Any],
    fault: Fault,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    break_it(monkeypatch)
    assert noticed(**options)[fault] >= 3


@pytest.mark.parametrize("options", [*TRIMMED, {"fit": Fit.SUM}], ids=repr)
def test_without_a_fault_nothing_is_said(options: dict[str, Any]) -> None:
    assert noticed(**options) == {}
