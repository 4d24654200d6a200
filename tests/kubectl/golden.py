"""The golden table: what kubectl answered against a real API server; comparing answers with it.

A group is one file of cases that build on each other. Recorded texts have placeholders for what
differs from run to run (`<uid>`, `<t>`, ...); here each stands for a pattern, everything else is
compared as it is, but for the width of columns, which follows the ages in them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["CONTRACT", "LIMIT_PERCENT", "Answer", "Case", "Group", "difference", "load_groups"]

CONTRACT: Final = ("create", "apply", "get", "modify", "wait", "crd", "errors", "scheduling")
COURTESY: Final = ("discovery", "auth", "events", "nodes", "live")
# Of the stable cases of a group, how many may be excepted.
LIMIT_PERCENT: Final = {**dict.fromkeys(CONTRACT, 5), **dict.fromkeys(COURTESY, 25)}


class Answer(msgspec.Struct, frozen=True):
    """What a command said and its exit code."""

    stdout: str
    stderr: str
    rc: int


class Beside(msgspec.Struct, frozen=True):
    """A command that runs while the case's own does, from `after` seconds on."""

    after: float
    argv: tuple[str, ...]


class Case(msgspec.Struct, frozen=True):
    """One command. It is repeated until its output matches `until`, where there is one."""

    name: str
    argv: tuple[str, ...]
    stdout: str
    stderr: str
    rc: int
    stdin: str | None = None
    env: dict[str, str] = {}
    sleep: float = 0.0
    until: str | None = msgspec.field(name="await", default=None)
    during: tuple[Beside, ...] = ()
    unstable: bool = False

    @property
    def answer(self) -> Answer:
        return Answer(self.stdout, self.stderr, self.rc)


class Group(msgspec.Struct, frozen=True):
    """Cases in order. `plane` is `full` when nodes, a scheduler and controllers have to run."""

    name: str
    plane: str
    namespace: str
    cases: tuple[Case, ...]
    files: dict[str, str] = {}
    cleanup: tuple[tuple[str, ...], ...] = ()

    @property
    def stable(self) -> list[Case]:
        return [case for case in self.cases if not case.unstable]


@cache
def load_groups(folder: Path) -> dict[str, Group]:
    """Return the groups of a folder by name; none when it has no files of groups."""
    files = sorted(folder.glob("*.json"))
    groups = [msgspec.json.decode(file.read_bytes(), type=Group) for file in files]
    return {group.name: group for group in groups}


def difference(expected: Answer, actual: Answer) -> str:
    """Return what is different, as a reader wants to see it; empty when nothing is."""
    parts = [] if expected.rc == actual.rc else [f"exit code {actual.rc}, not {expected.rc}"]
    for stream in ("stdout", "stderr"):
        wanted = _in_one_order(getattr(expected, stream).split("\n"))
        said = _CHANCE.sub("", getattr(actual, stream))
        got = _in_one_order(_with_placeholders(said.split("\n"), wanted))
        parts += difflib.unified_diff(wanted, got, f"recorded {stream}", stream, "", "", 1, "")
    return "\n".join(parts)


def _in_one_order(lines: Sequence[str]) -> list[str]:
    """Sort neighbouring lines that `kubectl drain` says of pods, which it evicts side by side."""
    runs = groupby(lines, key=lambda line: line.startswith("evicting pod "))
    return [line for evicting, run in runs for line in (sorted(run) if evicting else run)]


def _with_placeholders(got: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Replace each line by the recorded one that it equals: in its place, or elsewhere."""
    shown = []
    for index, line in enumerate(got):
        candidates = [*wanted[index : index + 1], *wanted]
        shown.append(next((one for one in candidates if _pattern(one).fullmatch(line)), line))
    return shown


# Said or not by kubectl itself when a watch that brought nothing ends with the command's timeout.
_CHANCE: Final = re.compile(
    r"^[IE]\d{4} .* reflector\.go:.*(?:very short watch|context deadline exceeded).*\n",
    re.MULTILINE,
)
_AGE: Final = r"(?:\d+[ydhms])+"
_PLACEHOLDERS: Final = {
    "<uid>": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "<rv>": r"\d+",
    "<time>": r"\S+T\S+Z|\w{3}, \d\d \w{3} \d{4} [\d:]+ [+-]\d{4}|\S+ [\d:.]+ [+-]\d{4}",
    "<t>": _AGE,
    "<rand>": r"[a-z0-9]+",
    "<hex>": r"[0-9a-f]+",
    "<token>": r"\S+",
    "<server>": r"(?:https?://)?[\w.-]+:\d+",
    "<hash>": r"\S+",
    "<continue>": r"\S+",
}
_SPECIAL: Final = re.compile(
    # A temporary file or folder, whose name ends with digits that were taken away.
    r"(?P<temporary><tmp>/[A-Za-z-]+)"
    r"|<klog (?P<klog>[^<>]+)>"
    # The build of kubectl, and of servers.
    r'|(?P<build>"?(?:gitVersion|gitCommit|gitTreeState|goVersion|platform)"?: |'
    r"^(?:Client|Kustomize) Version: |^kustomizeVersion: |\"kustomizeVersion\": )\S+?(?P<comma>,?)$"
    rf"|(?P<placeholder>{'|'.join(_PLACEHOLDERS)})"
    # An age that was left as it is, last in its line.
    r"|(?P<age>(?<=  )\d+[smh]$)"
    # Where a part of a difference stands: controllers add annotations above it, or have not yet.
    r"|(?P<line>(?<=^@@ -)\d+(?=,)|(?<= \+)\d+(?=,\d+ @@))"
    r"|(?P<gap>(?<=\S) {2,}| +$)"
)


@cache
def _pattern(line: str) -> re.Pattern[str]:
    pattern, end = "", 0
    for match in _SPECIAL.finditer(line):
        pattern += re.escape(line[end : match.start()])
        end = match.end()
        if match["temporary"]:
            pattern += rf"/\S*/{re.escape(match['temporary'].removeprefix('<tmp>/'))}-?\d+"
        elif match["klog"]:
            pattern += rf"[A-Z]\d{{4}} [\d:.]+ +\d+ {re.escape(match['klog'])}:\d+\]"
        elif match["build"]:
            pattern += re.escape(match["build"]) + r"\S+" + match["comma"]
        elif match["age"]:
            pattern += _AGE
        elif match["line"]:
            pattern += r"\d+"
        elif match["gap"]:
            pattern += " +" if end < len(line) else " *"
        else:
            pattern += f"(?:{_PLACEHOLDERS[match['placeholder']]})"
    pattern += re.escape(line[end:])
    return re.compile(pattern + " *")
