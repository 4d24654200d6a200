"""Makes one test of each case of the golden table, plays them, and sums up at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.integration.control_plane import ADMINISTRATOR, NoBinaries, control_plane, find_binaries
from tests.kubectl import exceptions
from tests.kubectl.clusters import embedded, on
from tests.kubectl.golden import LIMIT_PERCENT, Case, Group, load_groups
from tests.kubectl.play import Play

DEFAULT = Path(__file__).parents[2].parent / "shared" / "observed" / "kubectl"
ABSENT = "no golden table: the folder with it is not here (see --golden)"
AT_ONCE = 3
# Recorded with what a bare API server does not have: a scheduler and kubelets, an API switched on.
MORE_THAN_AN_API_SERVER = ("live", "scheduling")
EMBEDDED, REAL = "embedded_case", "real_case"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    groups = _groups(metafunc.config)
    absent = _skipped("absent", ABSENT)
    if EMBEDDED in metafunc.fixturenames:
        cases = _cases(groups.values(), exceptions.EMBEDDED)
        metafunc.parametrize(EMBEDDED, cases or [absent])
    if REAL in metafunc.fixturenames:
        metafunc.parametrize(REAL, _real(groups) if groups else [absent])
    if "golden_group" in metafunc.fixturenames:
        named = [pytest.param(group, id=group.name) for group in groups.values()]
        metafunc.parametrize("golden_group", named or [absent])


def _groups(config: pytest.Config) -> dict[str, Group]:
    """Return the groups of the folder that was named, or of the usual one if it is there."""
    named = config.getoption("--golden", default=None)
    groups = load_groups(Path(named) if named else DEFAULT)
    if named and not groups:
        raise pytest.UsageError(f"--golden {named}: no group files; accepted: a folder with them")
    return groups


def _skipped(name: str, reason: str) -> object:
    return pytest.param(None, id=name, marks=pytest.mark.skip(reason=reason))


def _cases(groups: Iterable[Group], excepted: Mapping[str, str]) -> list[object]:
    return [_case(group, case, excepted) for group in groups for case in group.stable]


def _case(group: Group, case: Case, excepted: Mapping[str, str]) -> object:
    name = f"{group.name}::{case.name}"
    if name not in excepted:
        return pytest.param((group, case), id=name)
    # Strict: an excepted case that is answered alike fails, so that the list stays true.
    marks = pytest.mark.xfail(
        raises=pytest.fail.Exception,
        strict=True,
        reason=excepted[name],
    )
    return pytest.param((group, case), id=name, marks=marks)


def _real(groups: dict[str, Group]) -> list[object]:
    try:
        excepted = exceptions.of_real_server(find_binaries())
    except NoBinaries as missing:
        return [_skipped("none", str(missing))]
    played = [group for name, group in groups.items() if name not in MORE_THAN_AN_API_SERVER]
    return _cases(played, excepted)


def _chosen(request: pytest.FixtureRequest, parameter: str) -> list[Group]:
    """Return the groups of which at least one case was selected."""
    chosen = {}
    for item in request.session.items:
        found = getattr(getattr(item, "callspec", None), "params", {}).get(parameter)
        if found is not None:
            chosen[found[0].name] = found[0]
    return list(chosen.values())


@pytest.fixture(scope="session")
def embedded_play(
    request: pytest.FixtureRequest, kubectl: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Play]:
    """All groups that were selected, playing on embedded clusters from the first case on."""
    folder, groups = tmp_path_factory.mktemp("golden"), _chosen(request, EMBEDDED)
    with Play(groups, kubectl, embedded, folder, at_once=AT_ONCE) as play:
        yield play


@pytest.fixture(scope="session")
def real_play(
    request: pytest.FixtureRequest, kubectl: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Play]:
    """The selected groups one after the other on one real API server."""
    folder, groups = tmp_path_factory.mktemp("golden-real"), _chosen(request, REAL)
    plane_folder = tmp_path_factory.mktemp("control-plane")
    users = {ADMINISTRATOR: "system:masters"}
    with (
        control_plane(find_binaries(), plane_folder, users) as plane,
        Play(groups, kubectl, on(plane), folder, at_once=1) as play,
    ):
        yield play


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each group: passed and excepted cases, and what failed."""
    counts: dict[str, Counter[str]] = {}
    for outcome in ("passed", "xfailed", "xpassed", "failed"):
        for report in terminalreporter.getreports(outcome):
            _, found, name = report.nodeid.partition("test_golden.py::test_embedded_cluster[")
            if found and getattr(report, "when", "") == "call":
                counts.setdefault(name.partition("::")[0], Counter())[outcome] += 1
    if counts:
        terminalreporter.section("golden table of kubectl")
    for name in sorted(counts, key=list(LIMIT_PERCENT).index):
        passed, failed = counts[name]["passed"], counts[name]["failed"]
        excepted = counts[name]["xfailed"] + counts[name]["xpassed"]
        terminalreporter.line(f"{name}: {passed} passed, {excepted} excepted, {failed} failed")
