"""`reprieve traces`: every form has a place to get it from, and files are known by their sums."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reprieve.cli.sessions.simulate_cluster import FORMS
from reprieve.cli.traces import traces
from reprieve.simulation.sources import SOURCES
from reprieve.units.errors import UsageError

# Of an empty file, as sha256sum says it.
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(traces, arguments, catch_exceptions=False)


def test_every_form_that_a_study_may_name_says_where_to_get_it() -> None:
    assert [source.form for source in SOURCES] == sorted(FORMS)
    told = run().output
    assert all(f"{source.form}: " in told and source.where in told for source in SOURCES)


def test_sums_that_were_written_are_checked_and_another_file_is_told(tmp_path: Path) -> None:
    for name in ("one.csv", "two.csv"):
        (tmp_path / name).write_bytes(b"")
    written = run(str(tmp_path / "one.csv"), str(tmp_path / "two.csv")).output
    assert written == f"{EMPTY}  {tmp_path / 'one.csv'}\n{EMPTY}  {tmp_path / 'two.csv'}\n"
    sums = tmp_path / "sums"
    sums.write_text(f"{EMPTY}  one.csv\n{EMPTY.upper()} *{tmp_path / 'two.csv'}\n")
    same = run("--check", str(sums))
    assert (same.exit_code, same.output.count("as it is stated")) == (0, 2)
    (tmp_path / "two.csv").write_text("more")
    (tmp_path / "one.csv").unlink()
    other = run("--check", str(sums))
    assert other.exit_code == 1
    assert f"{tmp_path / 'one.csv'}: is not there" in other.output
    assert f"{tmp_path / 'two.csv'}: another file: " in other.output


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty; accepted: what sha256sum writes"),
        (b"abc  one.csv\n", "sums:1: no sum of a file; accepted"),
        (b"\xff", "accepted: what sha256sum writes"),
    ],
)
def test_sums_in_another_form_are_refused(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "sums").write_bytes(content)
    with pytest.raises(UsageError) as refused:
        run("--check", str(tmp_path / "sums"))
    assert said in str(refused.value)
    with pytest.raises(UsageError, match="accepted: without FILES"):
        run("--check", str(tmp_path / "sums"), "one.csv")
    with pytest.raises(UsageError, match=r"none\.csv: No such file"):
        run(str(tmp_path / "none.csv"))
