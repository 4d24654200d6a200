"""Check the subjects of commits: an area in front, at most 72 characters, terms of the glossary.

Usage: subjects.py SINCE. SINCE is the commit after which subjects are held to this; a clone without
it (a shallow one) is not checked. Exit code 1 when a subject is not accepted.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_CHARACTERS = 72
_SUBJECT = re.compile(r"[a-z0-9][a-z0-9, _-]*: \S.*\S")


def forbidden(glossary: str) -> re.Pattern[str]:
    """Return the pattern of the words in the second table of the glossary."""
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", glossary.split("## Words that")[1], re.MULTILINE)
    words = [word.strip() for row in rows[1:] for word in row.split(",")]
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})\b", re.IGNORECASE)


def faults(subject: str, words: re.Pattern[str]) -> list[str]:
    """Return why a subject is not accepted."""
    found = []
    if len(subject) > MOST_CHARACTERS:
        found.append(f"{len(subject)} characters, at most {MOST_CHARACTERS} are accepted")
    if not _SUBJECT.fullmatch(subject):
        found.append("no area in front, as in `quota: bound the wait for saves`")
    if each := words.findall(re.sub(r"`[^`]*`", "", subject)):
        found.append(f"{', '.join(each)}: see the second table of docs/words.md")
    return found


def subjects(since: str) -> Sequence[str] | None:
    """Return the subjects after a commit, None where the clone does not have it."""
    command = ["git", "-C", str(ROOT), "log", "--no-merges", "--format=%s", f"{since}..HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else None


def main(since: str) -> int:
    """Print what is not accepted; return the exit code."""
    words = forbidden((ROOT / "docs" / "words.md").read_text(encoding="utf-8"))
    found = subjects(since)
    if found is None:
        print(f"not checked: this clone has no commit {since}")
        return 0
    wrong = [(each, fault) for each in found for fault in faults(each, words)]
    for subject, fault in wrong:
        print(f"{subject!r}: {fault}")
    print(f"{len(found)} subjects since {since[:12]}, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
