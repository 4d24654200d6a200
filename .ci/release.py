"""What a release is checked for, and what it says: `release.py check TAG`, `release.py notes TAG`.

A tag is `v` and the version that stands in each `pyproject.toml`, in the packages and in the chart.
A candidate is `v1.2.3-rc1`, which Python writes 1.2.3rc1; catalogues are told of it by the chart.
The changelog has a section of that version, with a date; that is the text of the release.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

__all__ = ["NotReleasable", "check", "notes"]


_TAG = re.compile(r"v\d+\.\d+\.\d+(-rc\d+)?")
_CHART_FILE = "charts/reprieve/Chart.yaml"


class NotReleasable(Exception):
    """What stands in the way of a release, one line each."""


def check(root: Path, tag: str) -> None:
    """Raise unless everything names the version of the tag.

    Raises:
        NotReleasable: with all that does not.
    """
    faults = [] if _TAG.fullmatch(tag) else [f"{tag}: a tag is such as v1.2.3 or v1.2.3-rc1"]
    version = tag.removeprefix("v")
    for where, found in _versions(root).items():
        wanted = version if where in _CHART else version.replace("-rc", "rc")
        if found != wanted:
            faults.append(f"{where}: {found or 'no version'}, not {wanted}")
    candidate = "true" if "-rc" in tag else "false"
    if f'artifacthub.io/prerelease: "{candidate}"' not in (root / _CHART_FILE).read_text("utf-8"):
        faults.append(f"{_CHART_FILE}: artifacthub.io/prerelease is not {candidate}")
    try:
        notes(root, tag)
    except NotReleasable as missing:
        faults.append(str(missing))
    if faults:
        raise NotReleasable("\n".join(faults))


def notes(root: Path, tag: str) -> str:
    """Return the changelog's section of a version.

    Raises:
        NotReleasable: there is none with a date, or nothing in it.
    """
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    version = re.escape(tag.removeprefix("v"))
    heading = rf"^## \[{version}\] - \d{{4}}-\d{{2}}-\d{{2}}\n(.*?)(?=^## |\Z)"
    found = re.search(heading, text, re.MULTILINE | re.DOTALL)
    if found is None or not found[1].strip():
        raise NotReleasable(
            f"CHANGELOG.md: no section '## [{tag.removeprefix('v')}] - YYYY-MM-DD' with text"
        )
    return found[1].strip() + "\n"


# Where a version stands, beside each `pyproject.toml`: what to call it, the file, and the line.
_LINES = (
    ("src/reprieve/__init__.py", "src/reprieve/__init__.py", r'^__version__ = "([^"]+)"$'),
    ("version of the chart", _CHART_FILE, r'^version: "?([^"\s]+)"?$'),
    ("appVersion of the chart", _CHART_FILE, r'^appVersion: "?([^"\s]+)"?$'),
)
_PROJECTS = (
    "pyproject.toml",
    "kubelocal/pyproject.toml",
    "kubeworld/pyproject.toml",
    "reprieve-notice/pyproject.toml",
)
_CHART = ("version of the chart", "appVersion of the chart")


def _versions(root: Path) -> dict[str, str]:
    """Return the version that each place names, empty where there is none."""
    found: dict[str, str] = {}
    for name in _PROJECTS:
        found[name] = tomllib.loads((root / name).read_text(encoding="utf-8"))["project"]["version"]
    for name, file, pattern in _LINES:
        match = re.search(pattern, (root / file).read_text(encoding="utf-8"), re.MULTILINE)
        found[name] = match[1] if match else ""
    return found


def main(arguments: list[str]) -> int:
    """Return the exit code."""
    if len(arguments) != 2 or arguments[0] not in ("check", "notes"):
        print("accepted: release.py check TAG, release.py notes TAG", file=sys.stderr)
        return 2
    root = Path(__file__).parents[1]
    try:
        if arguments[0] == "check":
            check(root, arguments[1])
        else:
            print(notes(root, arguments[1]), end="")
    except NotReleasable as fault:
        print(fault, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
