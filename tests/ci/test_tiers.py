"""What the README's line leaves out is there, is run by CI, and is left out by its mark alone."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.conftest import SLOW, THOROUGH, THOROUGH_TESTS
from tests.tiers import MOST_VARIANTS, SLOW_VARIANTS, is_slow_variant

ROOT = Path(__file__).parents[2]


def test_every_place_that_is_left_out_is_there_and_none_lies_within_another() -> None:
    for place in THOROUGH:
        assert (ROOT / place).is_dir() is place.endswith("/"), place
        assert (ROOT / place).exists(), f"{place}: moved or gone"
        assert not [other for other in THOROUGH if other != place and place.startswith(other)]


def test_what_is_run_by_hand_is_there_and_is_left_out_by_that_alone() -> None:
    assert [each for each in SLOW if not (ROOT / each).is_file() or each in THOROUGH] == []
    marked = [each for each in SLOW if "mark.thorough" in (ROOT / each).read_text(encoding="utf-8")]
    assert marked == [], "a test has one of both marks"


def test_every_test_that_is_left_out_by_name_is_there_in_a_file_that_is_not() -> None:
    for file, names in THOROUGH_TESTS.items():
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not file.startswith((*THOROUGH, *SLOW)), file
        assert [name for name in names if f"def {name}(" not in text] == [], file


def test_every_variant_that_is_run_by_hand_is_of_a_test_that_is_there() -> None:
    for file, tests in SLOW_VARIANTS.items():
        text = (ROOT / file).read_text(encoding="utf-8")
        assert [name for name in tests if name and f"def {name}(" not in text] == [], file


def test_every_test_of_which_few_variants_are_thorough_is_there() -> None:
    for test, most in MOST_VARIANTS.items():
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), test
        assert most >= 1, test


def test_a_variant_is_known_by_how_its_parameters_begin() -> None:
    file = "tests/quota_plane/test_lost_work.py"
    test = "test_what_is_saved_outlives_a_death_at_any_write"
    found = {name: is_slow_variant(f"{file}::{test}{name}") for name in ("[before]", "[stored]")}
    assert found == {"[before]": True, "[stored]": False}
    assert is_slow_variant("tests/whatif/test_fixes.py::test_any")
    assert not is_slow_variant(f"{file}::test_another")


def test_the_second_command_runs_what_the_first_one_leaves_out() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    marks = options["addopts"]
    assert marks[marks.index("-m") + 1] == "not slow and not thorough"
    script = (ROOT / ".ci" / "run").read_text()
    assert "uv run pytest -m thorough" in script
    assert 'check "thorough tests" run_thorough_tests' in script
