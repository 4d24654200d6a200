"""A folder has few modules, a module few lines, and none imports itself by way of others."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: The trees of sources whose modules are looked at.
TREES = (ROOT / "src", ROOT / "kubelocal" / "src", ROOT / "kubeworld" / "src")

MOST = 25
MOST_LINES = 500


def test_no_folder_has_more_than_25_modules_beside_each_other() -> None:
    folders = Counter(path.parent for path in _sources())
    assert len(folders) > 30
    assert {str(folder.relative_to(ROOT)): n for folder, n in folders.items() if n > MOST} == {}


def test_no_module_has_more_than_500_lines() -> None:
    own_tests = ROOT / "kubelocal" / "src" / "kubelocal" / "tests"
    lengths = {
        path: _lines(path.read_text("utf-8")) for path in (*_sources(), *own_tests.rglob("*.py"))
    }
    assert len(lengths) > 1000
    long = {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > MOST_LINES}
    assert long == {}


def test_the_lines_of_a_module_are_counted() -> None:
    assert [_lines("pass\n" * n) for n in (0, MOST_LINES, MOST_LINES + 1)] == [0, 500, 501]


def test_no_module_imports_itself_by_way_of_others() -> None:
    imports = _imports()
    assert sum(map(len, imports.values())) > 3000
    assert _circle(imports) == []


def test_a_circle_is_found() -> None:
    assert set(_circle({"a": {"b"}, "b": {"c"}, "c": {"b"}})) == {"b", "c"}


def _sources() -> Iterator[Path]:
    for tree in TREES:
        yield from (path for path in tree.rglob("*.py") if "tests" not in path.parts)


def _lines(text: str) -> int:
    return len(text.splitlines())


def _circle(imports: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return []


def _imports() -> dict[str, set[str]]:
    """Return which modules each module imports, for its types alone or inside a function, too."""
    names = {_name(path): path for path in _sources()}
    return {name: _imported(path, names) - {name} for name, path in names.items()}


def _imported(path: Path, names: Mapping[str, Path]) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inner & names.keys()) or ({node.module} & names.keys())
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & names.keys()
    return found


def _name(path: Path) -> str:
    tree = next(tree for tree in TREES if tree in path.parents)
    parts = path.relative_to(tree).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
