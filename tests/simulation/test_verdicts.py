"""A sentence for each policy says what it buys and costs; a star needs six runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reprieve.simulation.reporting.intervals import difference
from reprieve.simulation.reporting.report import report_html
from reprieve.simulation.reporting.summary import Results, summarised
from reprieve.simulation.reporting.verdicts import is_clear, verdict_lines
from reprieve.simulation.runs import carried_out, planned
from reprieve.simulation.study import read_study
from tests.simulation.building import STUDY, study_in


def results_of(folder: Path, seeds: int) -> Results:
    """Return a small study over so many seeds."""
    text = STUDY.replace("seeds: [0, 1, 2]", f"seeds: {list(range(seeds))}")
    study = read_study(study_in(folder, text))
    runs = planned(study)
    return summarised(study, runs, list(carried_out(study, runs, 1, folder, lambda *_: None)))


@pytest.mark.parametrize(("runs", "clear"), [(3, False), (5, False), (6, True), (9, True)])
def test_a_difference_is_clear_of_six_runs_or_more(runs: int, clear: bool) -> None:
    found = difference([10.0 + number for number in range(runs)], [0.0] * runs)
    assert is_clear(found) is clear
    assert not is_clear(difference([0.0, 1.0, -1.0] * 3, [0.0] * 9))


def test_three_runs_get_no_star_but_their_number_and_the_interval(tmp_path: Path) -> None:
    results = results_of(tmp_path, 3)
    text = report_html(results)
    assert " *</small>" not in text
    assert "With 3 runs there is no star" in text
    assert re.search(r"<small>\([^)]* – [^)]*\)</small>", text)
    (sentence,) = verdict_lines(results.loads[0])
    assert sentence.startswith("classical against none (3 runs, no proof): ")
    assert sentence.endswith(".")


def test_six_runs_may_get_a_star_and_the_sentence_has_no_caution(tmp_path: Path) -> None:
    results = results_of(tmp_path, 6)
    text = report_html(results)
    assert " *</small>" in text
    assert "A star: the interval of the difference has no 0 in it." in text
    (sentence,) = verdict_lines(results.loads[0])
    assert sentence.startswith("classical against none: ")
    # Who preempts has more preemptions than who does not, which is a cost.
    assert re.search(r"costs .*preempted \+\d", sentence)
    assert sum(sentence.count(word) for word in ("buys ", "costs ")) == 2
