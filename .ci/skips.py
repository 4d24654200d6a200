"""Print the skipped tests and fail when they differ from the expected ones.

Usage: skips.py REPORT EXPECTED [THING...]. REPORT is what `tests/conftest.py` writes: one JSON
object per test and outcome; THING is something that this machine has. EXPECTED has one test id per
line, `*` standing for any text:

    ID             is skipped wherever it is collected
    ? ID           may be skipped, depending on what the machine has
    @THING ID      is skipped where the machine has no THING, and nowhere else
    # ...          a comment
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Expected:
    """One line of the file."""

    text: str
    optional: bool = False
    needs: str = ""

    def matches(self, test: str) -> bool:
        """Return whether the line speaks of this test."""
        pattern = ".*".join(re.escape(part) for part in self.text.split("*"))
        return re.fullmatch(pattern, test) is not None


def read_expected(file: Path, things: Sequence[str] = ()) -> list[Expected]:
    """Return the lines that are not comments and that hold on a machine with these things."""
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    read = [_read(line) for line in lines if line and not line.startswith("#")]
    return [one for one in read if one.needs not in things]


def _read(line: str) -> Expected:
    if line.startswith("?"):
        return Expected(line.removeprefix("?").strip(), optional=True)
    if line.startswith("@"):
        thing, _, text = line.removeprefix("@").partition(" ")
        return Expected(text.strip(), needs=thing)
    return Expected(line)


def differences(reasons: dict[str, str | None], expected: list[Expected]) -> list[str]:
    """Return what is wrong. `reasons`: test id -> why it was skipped, None when it ran."""
    wrong = []
    for test, reason in sorted(reasons.items()):
        lines = [line for line in expected if line.matches(test)]
        if reason is not None and not lines:
            wrong.append(f"skipped, but not expected to be: {test}: {reason}")
        if reason is None and any(not line.optional for line in lines):
            wrong.append(f"expected to be skipped, but ran: {test}")
    return wrong


def main(report: Path, expected: Path, things: Sequence[str]) -> int:
    """Return the exit code."""
    if not report.exists():
        print(f"{report}: missing; the tests did not get to their end")
        return 1
    reasons: dict[str, str | None] = {}
    for line in report.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        skipped = entry["outcome"] == "skipped"
        reasons[entry["id"]] = entry["reason"] if skipped else reasons.get(entry["id"])
    for test, reason in sorted(reasons.items()):
        if reason is not None:
            print(f"skipped: {test}: {reason}")
    wrong = differences(reasons, read_expected(expected, things))
    print("\n".join(wrong) or f"as expected, {len(reasons)} tests in all")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
