"""Fail when the embedded cluster is more than its budget of the sources (lines of Python)."""

from __future__ import annotations

import sys
from pathlib import Path

LIMIT_PERCENT = 30


def lines(folder: Path) -> int:
    """Return the number of lines of all Python files below `folder`."""
    return sum(len(file.read_bytes().splitlines()) for file in folder.rglob("*.py"))


def main(sources: Path) -> int:
    """Return the exit code."""
    local, whole = lines(sources / "local"), lines(sources)
    percent = 100 * local / whole
    print(f"local: {local} of {whole} lines, {percent:.1f} % (at most {LIMIT_PERCENT} %)")
    return 0 if percent <= LIMIT_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parents[1] / "src" / "reprieve"))
