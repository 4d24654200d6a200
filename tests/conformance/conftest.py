"""Collects the cases under `--vectors`: subfolders are planes, files are formats."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.gang_jobs import RUNNERS as GANG_RUNNERS
from tests.conformance.quota_runners import RUNNERS as QUOTA_RUNNERS
from tests.conformance.runners import RUNNERS
from tests.conformance.workload_aware_engine import FOUND
from tests.conformance.workload_aware_vectors import Vector, vectors_in
from tests.conformance.world import Json

PLANES_WITH_ENGINE = ("idle", "quota", "workload-aware", "gang-jobs")
WORKLOAD_AWARE: dict[str, Callable[[Vector], bool]] = {
    "judged_vector": lambda v: v.kind in FOUND and not v.id.startswith("integration_"),
    "executed_vector": lambda v: v.kind == "executed" and not v.id.startswith("integration_"),
    "cycled_vector": lambda v: (
        v.kind in ("executed", "executed-status") and not v.id.startswith("integration_")
    ),
    "integration_vector": lambda v: v.id.startswith("integration_"),
    "played_vector": lambda v: v.kind == "steps" or v.id.startswith("integration_"),
}
DEFAULT = Path(__file__).resolve().parents[2].parent / "shared" / "conformance"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    planes = _planes(metafunc.config)
    if "vector" in metafunc.fixturenames:
        cases = [case for plane in planes for case in _cases(plane)]
        metafunc.parametrize("vector", cases or [_absent()], ids=_id if cases else None)
    if "quota_vector" in metafunc.fixturenames:
        cases = [case for plane in planes for case in _quota_cases(plane)]
        metafunc.parametrize("quota_vector", cases or [_absent()], ids=_id if cases else None)
    if "gang_vector" in metafunc.fixturenames:
        cases = [case for plane in planes for case in _gang_cases(plane)]
        metafunc.parametrize("gang_vector", cases or [_absent()], ids=_id if cases else None)
    for name, wanted in WORKLOAD_AWARE.items():
        if name in metafunc.fixturenames:
            found = [v for plane in planes for v in _workload_aware_cases(plane) if wanted(v)]
            ids = [f"workload-aware/{v.id}" for v in found]
            metafunc.parametrize(name, found or [_absent()], ids=ids or None)
    if "plane" in metafunc.fixturenames:
        names = [p.name for p in planes if not _has_engine(p)]
        metafunc.parametrize("plane", names or [_none_without_engine(planes)])


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


def _has_engine(plane: Path) -> bool:
    """Whether it is a plane of ours by its name, or by the formats of its files."""
    if plane.name in PLANES_WITH_ENGINE:
        return True
    files = [_document(path) for path in plane.glob("*.json")]
    if any(_is_quota(file) or _is_workload_aware(file) or _is_gangs(file) for file in files):
        return True
    return any(isinstance(file, dict) and file.get("format") in RUNNERS for file in files)


def _cases(plane: Path) -> list[tuple[str, str, Json]]:
    if not _has_engine(plane):
        return []
    cases = []
    for path in sorted(plane.glob("*.json")):
        document = _document(path)
        if isinstance(document, list):
            continue
        cases += [
            (f"{plane.name}/{path.name}::{case['name']}", document["format"], case)
            for case in document["cases"]
        ]
    return cases


def _is_quota(document: object) -> bool:
    """Whether a file is a list of cases, each with a kind that the quota plane runs."""
    return isinstance(document, list) and any(
        isinstance(case, dict) and case.get("kind") in QUOTA_RUNNERS for case in document
    )


def _quota_cases(plane: Path) -> list[tuple[str, str, Json]]:
    cases = []
    for path in sorted(plane.glob("*.json")):
        document = _document(path)
        if _is_quota(document) or (plane.name == "quota" and isinstance(document, list)):
            cases += [
                (f"{plane.name}/{path.name}::{case['name']}", case["kind"], case)
                for case in document
            ]
    return cases


def _is_gangs(document: object) -> bool:
    """Whether a file is a list of cases, each with a kind of gangs and job preemption."""
    return isinstance(document, list) and any(
        isinstance(case, dict) and case.get("kind") in GANG_RUNNERS for case in document
    )


def _gang_cases(plane: Path) -> list[tuple[str, str, Json]]:
    documents = {path.name: _document(path) for path in sorted(plane.glob("*.json"))}
    return [
        (f"{plane.name}/{name}::{case['name']}", case["kind"], case)
        for name, document in documents.items()
        if _is_gangs(document)
        for case in document
    ]


def _is_workload_aware(document: object) -> bool:
    """Whether a file is a list of cases, each with a kind of the scheduling plane."""
    return isinstance(document, list) and any(
        isinstance(case, dict) and (case.get("kind") in FOUND or case.get("kind") == "steps")
        for case in document
    )


@cache
def _workload_aware_cases(plane: Path) -> list[Vector]:
    files = (_document(path) for path in plane.glob("*.json"))
    ours = plane.name == "workload-aware" or any(_is_workload_aware(file) for file in files)
    return list(vectors_in(plane)) if ours else []


@cache
def _document(path: Path) -> Any:
    """Return a file's content, read once for all who collect from it: nobody changes it."""
    return json.loads(path.read_text(encoding="utf-8"))


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
