"""No column of a table, and no name in an answer, has a word that `docs/words.md` does not use.

Tables are those of the command line, the page and `kubectl get`; answers those of `explain`, `plan`
and `shadow` with `-o json`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from reprieve.cli.get import get
from reprieve.shadow.document import Document
from tests.wording.test_words import ROOT, found

_SCHEMAS: Final = ("docs/plan.schema.json", "docs/schemas/explain.json")
_WORDS: Final = re.compile(r"_+|(?<=[a-z])(?=[A-Z])")
#: A table's column in the page, its title, and what heads a table that is no list.
_IN_PAGE: Final = re.compile(r'(?:title|caption|label): "([^"]+)"|<th[^>]*>([^<{]+)</th>')
#: Words of a row that stand in capitals above the columns of a text.
_HEADER: Final = re.compile(r"[A-Z][A-Z -]+")


def _words(name: str) -> str:
    return " ".join(_WORDS.split(name)).lower()


def _columns() -> Iterator[tuple[str, str]]:
    """Yield the names of columns of the page, which heads those of `reprieve get`, too."""
    for path in sorted((ROOT / "src/reprieve").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "Column(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "Column"
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                yield path.name, _words(str(node.args[0].value))


def _headers() -> Iterator[tuple[str, str]]:
    """Yield the rows of headers of the command line's other tables."""
    for path in sorted((ROOT / "src/reprieve").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not re.search(r'"[A-Z][A-Z -]{2,}"', text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Tuple) and len(node.elts) > 1:
                cells = [e.value for e in node.elts if isinstance(e, ast.Constant)]
                if cells and all(isinstance(c, str) and _HEADER.fullmatch(c) for c in cells):
                    yield path.name, " ".join(map(str, cells)).lower()


def _printed() -> Iterator[tuple[str, str]]:
    """Yield the columns of `kubectl get` with what `kubectl explain` states of them."""
    for path in sorted((ROOT / "src/reprieve/api/crds").glob("*.yaml")):
        for version in yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]["versions"]:
            for column in version.get("additionalPrinterColumns", ()):
                yield path.name, f"{column['name']}: {column.get('description', '')}"


def _in_page() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "web/frontend/src").rglob("*.tsx")):
        for match in _IN_PAGE.finditer(path.read_text(encoding="utf-8")):
            yield path.name, (match.group(1) or match.group(2)).strip()


def _named(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
        for value in schema.values():
            yield from _named(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _named(value)


def _in_answers() -> Iterator[tuple[str, str]]:
    for path in _SCHEMAS:
        schema = json.loads((ROOT / path).read_text(encoding="utf-8"))
        yield from ((path, _words(name)) for name in sorted(set(_named(schema))))
    yield from (("shadow", _words(n)) for n in sorted(set(_named(msgspec.json.schema(Document)))))


@pytest.mark.parametrize(
    ("texts", "least"),
    [(_columns, 200), (_headers, 3), (_printed, 60), (_in_page, 60), (_in_answers, 120)],
    ids=["page and reprieve get", "other tables", "kubectl get", "titles", "answers"],
)
def test_no_column_and_no_name_of_an_answer_has_a_word_that_is_not_a_term(
    texts: Any, least: int
) -> None:
    known = list(texts())
    assert len(known) > least, len(known)
    assert [(where, text, found(text)) for where, text in known if found(text)] == []


def test_the_former_name_of_a_table_is_read_and_not_offered() -> None:
    refused = CliRunner().invoke(get, ["nothing"])
    assert "pending" in refused.output and "waiters" not in refused.output
    former = CliRunner().invoke(get, ["waiters", "-o", "nothing"])
    assert "accepted: text" in str(former.exception)
