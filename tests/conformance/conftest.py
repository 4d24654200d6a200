"""Collects the cases under `--vectors`: subfolders are planes, files are formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conformance.world import Json

PLANES_WITH_ENGINE = ("idle",)
DEFAULT = Path(__file__).resolve().parents[2].parent / "shared" / "conformance"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    planes = _planes(metafunc.config)
    if "vector" in metafunc.fixturenames:
        cases = [case for plane in planes for case in _cases(plane)]
        metafunc.parametrize("vector", cases or [_absent()], ids=_id if cases else None)
    if "plane" in metafunc.fixturenames:
        names = [p.name for p in planes if p.name not in PLANES_WITH_ENGINE]
        metafunc.parametrize("plane", names or [_none_without_engine(planes)])


@pytest.fixture
def vector_ids(request: pytest.FixtureRequest) -> frozenset[str]:
    return frozenset(case[0] for plane in _planes(request.config) for case in _cases(plane))


def _planes(config: pytest.Config) -> list[Path]:
    given = config.getoption("vectors", default=None)
    folder = Path(given) if given else DEFAULT
    if not folder.is_dir():
        if given:
            raise pytest.UsageError(f"--vectors {given}: no such folder")
        return []
    planes = sorted(each for each in folder.iterdir() if each.is_dir() and any(each.glob("*.json")))
    # A folder that holds files directly is one plane itself.
    return [*planes, folder] if any(folder.glob("*.json")) else planes


def _cases(plane: Path) -> list[tuple[str, str, Json]]:
    if plane.name not in PLANES_WITH_ENGINE:
        return []
    cases = []
    for path in sorted(plane.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        cases += [
            (f"{plane.name}/{path.name}::{case['name']}", document["format"], case)
            for case in document["cases"]
        ]
    return cases


def _id(case: tuple[str, str, Json]) -> str:
    return case[0]


def _absent() -> object:
    return pytest.param(
        None,
        id="absent",
        marks=pytest.mark.skip(reason="no vectors: give their folder with --vectors"),
    )


def _none_without_engine(planes: list[Path]) -> object:
    reason = "every plane has an engine" if planes else "no vectors: give their folder"
    return pytest.param("", id="none", marks=pytest.mark.skip(reason=reason))
