"""Check a release and write its text and chart: `release.py check TAG`, `release.py notes TAG`.

`release.py chart FOLDER REGISTRY` copies the chart to FOLDER/reprieve, with that registry's images.
A tag is `v` and the version that stands in each `pyproject.toml`, in the packages and in the chart.
A candidate is `v1.2.3-rc1`, which Python writes 1.2.3rc1; catalogues are told of it by the chart.
The changelog has a section of that version, with a date; that is the text of the release.
"""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from pathlib import Path

__all__ = ["NotReleasable", "chart", "check", "notes"]


_TAG = re.compile(r"v\d+\.\d+\.\d+(-rc\d+)?")
_CHART_FOLDER = "charts/reprieve"
_CHART_FILE = f"{_CHART_FOLDER}/Chart.yaml"


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


def chart(root: Path, folder: Path, registry: str) -> Path:
    """Return a copy of the chart that names the images and the address of a registry by itself.

    Raises:
        NotReleasable: the chart has no longer the lines that name them.
    """
    copy = folder / "reprieve"
    shutil.copytree(root / _CHART_FOLDER, copy)
    for name, line, named in (
        ("values.yaml", "  repository: reprieve\n", f"  repository: {registry}/reprieve\n"),
        ("README.md", " oci://REGISTRY/charts/", f" oci://{registry}/charts/"),
    ):
        text = (copy / name).read_text("utf-8")
        if text.count(line) != 1:
            raise NotReleasable(f"{_CHART_FOLDER}/{name}: {text.count(line)} times {line!r}, not 1")
        (copy / name).write_text(text.replace(line, named), encoding="utf-8")
    return copy


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
    root = Path(__file__).parents[1]
    try:
        match arguments:
            case ["check", tag]:
                check(root, tag)
            case ["notes", tag]:
                print(notes(root, tag), end="")
            case ["chart", folder, registry]:
                print(chart(root, Path(folder), registry))
            case _:
                print(
                    "accepted: release.py check TAG, release.py notes TAG,"
                    " release.py chart FOLDER REGISTRY",
                    file=sys.stderr,
                )
                return 2
    except NotReleasable as fault:
        print(fault, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
