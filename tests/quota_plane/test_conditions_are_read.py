"""Each condition that the quota plane writes decides about something, or is for people alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import reprieve

SOURCE: Final = Path(reprieve.__file__).parent
#: Conditions of a Workload that are written for people, and why nothing decides by them.
FOR_PEOPLE: Final = {
    "BlockedOnPreemptionGates": "the gates themselves decide: `spec.preemptionGates`",
}
_READERS: Final = ("condition_of", "is_condition_true", "get")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def calls(folder: str, *names: str) -> Iterator[ast.Call]:
    for path in sorted((SOURCE / folder).rglob("*.py")):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call):
                called = node.func
                name = called.attr if isinstance(called, ast.Attribute) else ""
                name = called.id if isinstance(called, ast.Name) else name
                if name in names:
                    yield node


@cache
def constants() -> dict[str, str]:
    """Return the texts of constants, by their names."""
    found: dict[str, str] = {}
    for folder in ("planes/quota", "intake"):
        for path in (SOURCE / folder).rglob("*.py"):
            for node in parsed(path).body:
                if (
                    isinstance(node, ast.AnnAssign)
                    and isinstance(node.target, ast.Name)
                    and isinstance(node.value, ast.Constant)
                    and isinstance(node.value.value, str)
                ):
                    found[node.target.id] = node.value.value
    return found


def texts(node: ast.Call) -> Iterator[str]:
    known = constants()
    for each in node.args[:2]:
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value
        elif isinstance(each, ast.Name) and each.id in known:
            yield known[each.id]


def test_each_condition_that_is_written_is_read_or_is_for_people() -> None:
    written = {
        text
        for call in calls("planes/quota", "with_condition")
        for text in list(texts(call))[:1]
        if text[:1].isupper()
    }
    assert {"QuotaReserved", "Evicted", "WaitingForReplacementPods", "PodsReady"} <= written
    read = {
        text
        for folder in ("planes/quota", "intake", "engine/quota")
        for call in calls(folder, *_READERS)
        for text in texts(call)
    }
    assert written - read - FOR_PEOPLE.keys() == set()
    assert FOR_PEOPLE.keys() <= written
