"""How long a function may be: 60 lines, but for the tables that are named here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "reprieve"
MOST = 60

#: One row after the other, or one field after the other: nothing to follow.
TABLES = {
    "telemetry/metrics.py:__init__",
    "telemetry/scheduling.py:__init__",
    "planes/idle/plane.py:__init__",
    "planes/scheduling/plane.py:__init__",
    "planes/quota/plane.py:__init__",
    "settings/quota.py:quota_settings",
    "settings/quota_configuration.py:_read",
    "intake/quota_workloads.py:workload_row",
    "records/scheduling/record.py:encode_scheduling",
    "jobs/suspendable_rows.py:_ray_kinds",
}


def _lengths(text: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


@cache
def _long() -> dict[str, int]:
    found = {}
    for path in sorted(SOURCES.rglob("*.py")):
        at = path.relative_to(SOURCES).as_posix()
        for name, length in _lengths(path.read_text()):
            if length > MOST:
                found[f"{at}:{name}"] = length
    return found


def test_functions_have_at_most_60_lines_but_for_the_tables_named_here() -> None:
    found = {name: length for name, length in _long().items() if name not in TABLES}
    assert found == {}


def test_no_table_is_named_here_that_is_short_or_gone() -> None:
    assert TABLES - _long().keys() == set()


@pytest.mark.parametrize(("lines", "found"), [(MOST - 1, MOST), (MOST, MOST + 1)])
def test_the_lines_of_a_function_are_counted(lines: int, found: int) -> None:
    text = "async def one() -> None:\n" + "    pass\n" * lines
    assert list(_lengths(text)) == [("one", found)]
