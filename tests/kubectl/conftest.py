"""Makes one test of each case of the golden table, plays them, and sums up at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubectl.clusters import embedded
from tests.kubectl.exceptions import EXCEPTIONS
from tests.kubectl.golden import LIMIT_PERCENT, Case, Group, load_groups
from tests.kubectl.play import Play

DEFAULT = Path(__file__).parents[2].parent / "shared" / "observed" / "kubectl"
ABSENT = "no golden table: the folder with it is not here (see --golden)"
# The other groups wait a lot, and are left to the line that runs slow tests.
QUICK = ("create", "apply", "get", "errors")
AT_ONCE = 3


def table(config: pytest.Config) -> dict[str, Group]:
    """Return the groups of the folder that was named, or of the usual one if it is there."""
    named = config.getoption("--golden", default=None)
    groups = load_groups(Path(named) if named else DEFAULT)
    if named and not groups:
        raise pytest.UsageError(f"--golden {named}: no group files; accepted: a folder with them")
    return groups


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    groups = table(metafunc.config)
    absent = pytest.param(None, id="absent", marks=pytest.mark.skip(reason=ABSENT))
    if "embedded_case" in metafunc.fixturenames:
        cases = [_parameter(group, case) for group in groups.values() for case in group.stable]
        metafunc.parametrize("embedded_case", cases or [absent])
    if "golden_group" in metafunc.fixturenames:
        metafunc.parametrize("golden_group", list(groups.values()) or [absent], ids=_group_name)


def _group_name(group: Group) -> str:
    return group.name


def _parameter(group: Group, case: Case) -> object:
    name = f"{group.name}::{case.name}"
    marks: list[pytest.MarkDecorator] = []
    if group.name not in QUICK:
        marks.append(pytest.mark.slow)
    if name in EXCEPTIONS:
        # Strict: an excepted case that is answered alike fails, so that the list stays true.
        marks.append(
            pytest.mark.xfail(raises=pytest.fail.Exception, strict=True, reason=EXCEPTIONS[name])
        )
    return pytest.param((group, case), id=name, marks=marks)


@pytest.fixture(scope="session")
def embedded_play(
    request: pytest.FixtureRequest, kubectl: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Play]:
    """All groups that were selected, playing on embedded clusters from the first case on."""
    chosen = {
        item.callspec.params["embedded_case"][0].name: item.callspec.params["embedded_case"][0]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and "embedded_case" in getattr(getattr(item, "callspec", None), "params", {})
        and item.get_closest_marker("skip") is None
    }
    folder = tmp_path_factory.mktemp("golden")
    play = Play(list(chosen.values()), kubectl, embedded, folder, at_once=AT_ONCE)
    play.start()
    yield play
    play.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each group: passed and excepted cases, and what failed."""
    counts: dict[str, Counter[str]] = {}
    for outcome in ("passed", "xfailed", "failed"):
        for report in terminalreporter.getreports(outcome):
            _, found, name = report.nodeid.partition("test_golden.py::test_embedded_cluster[")
            if found and getattr(report, "when", "") == "call":
                counts.setdefault(name.partition("::")[0], Counter())[outcome] += 1
    if counts:
        terminalreporter.section("golden table of kubectl")
    for name in sorted(counts, key=list(LIMIT_PERCENT).index):
        passed, excepted, failed = (counts[name][o] for o in ("passed", "xfailed", "failed"))
        terminalreporter.line(f"{name}: {passed} passed, {excepted} excepted, {failed} failed")
