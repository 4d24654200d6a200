"""No definition stands in the sources that nobody uses, a test or a bench included."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).parents[2]
SOURCES = ("src", "kubelocal/src", "kubeworld/src", "reprieve-notice/src")
USERS = ("tests", "bench", "examples", "reprieve-notice/tests", "kubeworld/tests")

#: Cells of printed tables are named in a text.
COLUMNS = ROOT / "kubelocal/src/kubelocal/server/types/layouts/columns.txt"

#: Who calls it by a name that stands in no code of ours.
_BY_OTHERS = {
    "NoticeCallback.on_train_batch_end": "lightning",
    "NoticeCallback.on_save": "transformers",
    "NoticeCallback.on_step_end": "transformers",
    "LazyGroup.format_commands": "click",
    "LazyGroup.get_command": "click",
    "LazyGroup.list_commands": "click",
    "FaultCounter.emit": "logging",
    "_NotElsewhere.redirect_request": "urllib",
    "Quiet.emit": "logging",
    "__getattr__": "Python, of a module",
    "pytest_configure": "pytest",
}


def test_every_definition_is_used_by_somebody() -> None:
    used = {name for path in _files((*SOURCES, *USERS)) for name in _used(_tree(path))}
    used.update(re.findall(r"\w+", COLUMNS.read_text("utf-8")))
    found = {
        f"{path.relative_to(ROOT).as_posix()}: {name}"
        for path in _files(SOURCES)
        if "tests" not in path.parts
        for name in _defined(_tree(path))
        if name.rpartition(".")[2] not in used and name not in _BY_OTHERS
    }
    assert len(used) > 5_000
    assert sorted(found) == []


def test_an_unused_definition_is_found() -> None:
    tree = ast.parse("def lonely(): ...\nclass Kind:\n    def alone(self): ...\nKind()")
    assert set(_defined(tree)) - _used(tree) == {"lonely", "Kind.alone"}


def _files(folders: tuple[str, ...]) -> Iterator[Path]:
    for folder in folders:
        yield from (ROOT / folder).rglob("*.py")


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _used(tree: ast.Module) -> set[str]:
    """Return all names that are read, as words of their own or as attributes; texts count, too."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.arg):
            found.add(node.arg)  # a fixture of pytest
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update(re.findall(r"\w+", node.value) if len(node.value) < 80 else ())
    for listed in _lists_of_names(tree):
        found -= listed - _read_otherwise(tree, listed)
    return found


def _lists_of_names(tree: ast.Module) -> Iterator[set[str]]:
    """Yield `__all__`, which uses nothing."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            value = ast.literal_eval(node.value)
            yield set(value)


def _read_otherwise(tree: ast.Module, names: set[str]) -> set[str]:
    return {
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names)
        or (isinstance(node, ast.Attribute) and node.attr in names)
    }


def _defined(tree: ast.Module) -> Iterator[str]:
    """Yield functions, classes, methods and constants; what is decorated is used by that."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
            for each in node.body:
                if _is_plain(each):
                    yield f"{node.name}.{each.name}"
        elif _is_plain(node):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (each.id for each in targets if isinstance(each, ast.Name))


def _is_plain(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (
        isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and not node.decorator_list
        and not (node.name.startswith("__") and node.name.endswith("__"))
    )
