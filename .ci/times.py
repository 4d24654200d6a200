"""Print which files of tests take the longest: sums of the seconds of their tests.

Usage: times.py REPORT... Each is what `tests/conftest.py` writes: one JSON object per test and
outcome, with `seconds` (of the test itself, without fixtures). Tests run beside each other, so the
sum of a tier is several times the time that it takes.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

MOST_FILES = 40


def sums(lines: Iterable[str]) -> Counter[str]:
    """Return the seconds of each file of tests."""
    found = Counter[str]()
    for line in lines:
        entry = json.loads(line)
        found[entry["id"].partition("::")[0]] += entry["seconds"]
    return found


def table(name: str, found: Counter[str], most: int = MOST_FILES) -> Iterator[str]:
    """Yield the sum of a report and its files, the longest first."""
    yield f"{name}: {sum(found.values()):.0f} s in {len(found)} files"
    for file, seconds in found.most_common(most):
        yield f"{seconds:8.1f} s  {file}"


def main(reports: Sequence[Path]) -> None:
    """Print a table of each report that is there."""
    for report in reports:
        if report.exists():
            with report.open(encoding="utf-8") as lines:
                print("\n".join(table(report.stem, sums(lines))))


if __name__ == "__main__":
    main([Path(each) for each in sys.argv[1:]])
