"""Types are checked everywhere: in sources, tests, benchmarks, examples and scripts."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

#: What an exception for a module may say: that a package of others has no types.
WITHOUT_TYPES = {"module", "ignore_missing_imports", "follow_imports"}


def _settings() -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    return settings


def _unchecked(files: list[str], checked: list[str]) -> list[str]:
    """Return which files are in none of these folders."""
    return [each for each in files if not any(each.startswith(f"{at}/") for at in checked)]


def test_every_module_of_the_project_is_type_checked() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = listed.stdout.splitlines()
    assert len(files) > 2000
    assert _unchecked(files, _settings()["files"]) == []


def test_a_module_beside_the_folders_is_found() -> None:
    assert _unchecked(["tests/a.py", "more/b.py", "testsuite/c.py"], ["tests"]) == [
        "more/b.py",
        "testsuite/c.py",
    ]


def test_no_module_is_checked_less_strictly_than_others() -> None:
    settings = _settings()
    assert settings["strict"] is True and "exclude" not in settings
    own = ("reprieve", "kubelocal", "kubeworld", "bench", "tests", "examples", "*")
    for each in settings["overrides"]:
        assert each.keys() <= WITHOUT_TYPES, each
        assert not any(name.partition(".")[0].startswith(own) for name in each["module"]), each
