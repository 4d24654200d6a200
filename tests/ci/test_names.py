"""Names of functions say what is done: a word that fits every function is none."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = (
    ROOT / "src" / "reprieve",
    ROOT / "kubelocal" / "src" / "kubelocal",
    ROOT / "kubeworld" / "src" / "kubeworld",
    ROOT / "reprieve-notice" / "src" / "reprieve_notice",
)

#: With an underscore before them, too.
WITHOUT_MEANING = {"data", "do", "handle", "info", "look", "process", "tell"}

#: Who is called so all the same, and why.
_REASONS = {
    "planes/quota/webhooks/requests.py handle": "the web framework's word for what it calls",
    "server/wire/http.py handle": "the web framework's word for what it calls",
    "simulation/replaying/idle_decider.py look": "an evaluation at the end of a grace period",
}


def _functions(text: str) -> set[str]:
    tree = ast.walk(ast.parse(text))
    return {each.name for each in tree if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}


def _without_meaning(text: str) -> set[str]:
    return {name for name in _functions(text) if name.removeprefix("_") in WITHOUT_MEANING}


def test_no_function_has_a_name_without_meaning_but_for_those_with_a_reason() -> None:
    found = set()
    for folder in SOURCES:
        for path in sorted(folder.rglob("*.py")):
            at = path.relative_to(folder)
            if "tests" not in at.parts:
                names = _without_meaning(path.read_text())
                found |= {f"{at.as_posix()} {name}" for name in names}
    assert found == set(_REASONS)


def test_such_names_are_found_wherever_they_stand() -> None:
    text = "class A:\n async def _look(self): pass\ndef outer():\n def do(): pass\n"
    assert _without_meaning(text) == {"_look", "do"}
