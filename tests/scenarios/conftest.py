"""The files of the scenario tests, and the one thread that plays all scenarios."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.virtual_time import loop_factories

if TYPE_CHECKING:
    from tests.scenarios.concert import Concert

OWN = Path(__file__).parent / "own"
LIBRARY = Path(__file__).parents[2] / "src" / "reprieve" / "scenarios" / "library"
#: The user stories of KEP-5710.
STORIES = (
    "training-as-victim",
    "training-as-preemptor",
    "multihost-inference",
    "degraded-inference",
)
DEFAULT = Path(__file__).parents[2].parent / "shared" / "conformance" / "idle" / "scenarios"


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Let the demo's tests run in virtual time; those of scenarios start processes."""
    if item.path.name.startswith("test_demo"):
        return loop_factories(item)
    return {"real": asyncio.new_event_loop}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "scenario_file" in metafunc.fixturenames:
        named = metafunc.config.getoption("--scenarios")
        folder = Path(named) if named else DEFAULT
        if named and not folder.is_dir():
            raise pytest.UsageError(f"--scenarios {named}: no such folder; accepted: a folder")
        metafunc.parametrize("scenario_file", _files(folder, "scenarios"))
    if "own_scenario_file" in metafunc.fixturenames:
        metafunc.parametrize("own_scenario_file", _files(OWN, "own scenarios"))
    if "story_file" in metafunc.fixturenames:
        metafunc.parametrize(
            "story_file", [LIBRARY / f"{name}.yaml" for name in STORIES], ids=STORIES
        )


def _files(folder: Path, what: str) -> list[object]:
    files = sorted(folder.glob("*.yaml"))
    if files:
        return [pytest.param(file, id=file.stem) for file in files]
    reason = f"no {what}: the folder with them is not here"
    return [pytest.param(folder, id="absent", marks=pytest.mark.skip(reason=reason))]


@pytest.fixture(scope="session")
def concert(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Concert]:
    """All scenarios that were selected, playing from the first time that one is asked for."""
    from tests.scenarios.concert import Concert

    chosen: list[Any] = [
        item.callspec.params[name]
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        for name in ("scenario_file", "own_scenario_file", "story_file")
        if name in item.callspec.params and item.get_closest_marker("skip") is None
    ]
    concert = Concert(chosen, tmp_path_factory.mktemp("scenarios"))
    concert.start()
    yield concert
    concert.stop()
