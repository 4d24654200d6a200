"""What a release is checked for, and what it says: `release.py check TAG`, `release.py notes TAG`.

A tag is `v` and the version that stands in both `pyproject.toml`, in the package and in the chart.
The changelog has a section of that version, with a date; that is the text of the release.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

__all__ = ["NotReleasable", "check", "notes"]


class NotReleasable(Exception):
    """What stands in the way of a release, one line each."""


def check(root: Path, tag: str) -> None:
    """Raise unless everything names the version of the tag.

    Raises:
        NotReleasable: with all that does not.
    """
    wanted = tag.removeprefix("v")
    faults = [] if re.fullmatch(r"v\d+\.\d+\.\d+", tag) else [f"{tag}: a tag is such as v1.2.3"]
    faults += [
        f"{where}: {found or 'no version'}, not {wanted}"
        for where, found in _versions(root).items()
        if found != wanted
    ]
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


# Where a version stands, beside both `pyproject.toml`: what to call it, the file, and the line.
_LINES = (
    ("src/reprieve/__init__.py", "src/reprieve/__init__.py", r'^__version__ = "([^"]+)"$'),
    ("version of the chart", "charts/reprieve/Chart.yaml", r'^version: "?([^"\s]+)"?$'),
    ("appVersion of the chart", "charts/reprieve/Chart.yaml", r'^appVersion: "?([^"\s]+)"?$'),
)


def _versions(root: Path) -> dict[str, str]:
    """Return the version that each place names, empty where there is none."""
    found: dict[str, str] = {}
    for name in ("pyproject.toml", "kubelocal/pyproject.toml"):
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
