"""The ladder of docs/simulate/validation.md in small: a replay decides what the operator does."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import validation
from bench.cluster_study import (
    TENANTS,
    Agreement,
    Played,
    agreement,
    played,
    reproduced,
    study_jobs,
    virtually,
)
from bench.recorded_cases import kube_scheduler_cases, kueue_cases
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.replay import replay
from reprieve.simulation.replaying.work import Checkpointing
from reprieve.simulation.reporting.validation_figures import read_validation


def test_a_study_through_the_real_plane_has_the_same_victims_and_admissions(tmp_path: Path) -> None:
    jobs = study_jobs(45)
    replayed = Played.of(replay(jobs, PolicySpec("classical"), Checkpointing(), TENANTS, (1, 16)))
    assert len(replayed.victims) >= 5
    real = virtually(lambda: played(jobs, TENANTS, 16, tmp_path))
    found = agreement(replayed, real)
    assert (found.admissions, found.victims) == (1.0, 1.0)
    assert abs(found.makespan_off) < 0.02
    # The second step: what the plane recorded is decided again.
    assert reproduced(real.records) == (len(real.records), len(real.records))
    assert len(real.records) >= 3


def test_agreement_counts_what_both_have_in_the_same_order() -> None:
    one = Played(["a", "b", "c", "d"], [("d", "a"), ("d", "b"), ("d", "b")], 100)
    other = Played(["a", "c", "b", "d"], [("d", "b"), ("d", "c")], 80)
    assert agreement(one, other) == Agreement(0.75, 1 / 3, 0.25)
    assert agreement(one, one) == Agreement(1, 1, 0)
    assert agreement(Played(makespan_s=1), Played(makespan_s=1)) == Agreement(0, 1, 0)


@pytest.mark.parametrize("cases", [kueue_cases, kube_scheduler_cases])
def test_recorded_cases_of_others_have_the_victims_that_they_say(cases: object) -> None:
    if not validation.VECTORS.is_dir():
        pytest.skip("absent: recorded cases beside the project (../shared/conformance)")
    assert callable(cases)
    chosen = [case for number, case in enumerate(cases(validation.VECTORS)) if not number % 50]
    verdicts = [case() for case in chosen]
    assert len(verdicts) >= 5 and False not in verdicts and True in verdicts


def test_its_file_is_what_a_report_reads(tmp_path: Path) -> None:
    file = tmp_path / "validation.json"
    given = ["--quick", "--steps", "1", "--out", str(file)]
    assert validation.main(given) == 0
    found = read_validation(file)
    assert found.command == f"python -m bench.validation {' '.join(given)}"
    names = ["M/M/1 at 0.5", "M/M/4 at 0.6", "M/D/1 at 0.6"]
    two = [f"two classes, preemptive, priority {priority}" for priority in (100, 0)]
    assert [each.case for each in found.comparisons] == names + two
    assert all(each.holds and each.figures["jobs"] == 5_000 for each in found.comparisons)
