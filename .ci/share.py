"""Fail when the embedded cluster is more than its budget of the sources (lines of Python)."""

from __future__ import annotations

import sys
from pathlib import Path

LIMIT_PERCENT = 30


def lines(package: Path) -> int:
    """Return the number of lines of a package's Python files, its tests left out.

    What it shares with another by a link is not counted again.
    """
    return sum(
        len(file.read_bytes().splitlines())
        for folder in (package, *package.iterdir())
        if folder.is_dir() and not folder.is_symlink() and folder.name != "tests"
        for file in (folder.glob("*.py") if folder == package else folder.rglob("*.py"))
    )


def main(root: Path) -> int:
    """Return the exit code."""
    local = lines(root / "kubelocal" / "src" / "kubelocal")
    whole = (
        local + lines(root / "src" / "reprieve") + lines(root / "kubeworld" / "src" / "kubeworld")
    )
    percent = 100 * local / whole
    print(f"kubelocal: {local} of {whole} lines, {percent:.1f} % (at most {LIMIT_PERCENT} %)")
    return 0 if percent <= LIMIT_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parents[1]))
