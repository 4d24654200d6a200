"""Texts use the terms of `docs/words.md`, and not the words that its second table lists.

Log lines, the help of the command line, options, metrics, reference pages, conditions of our own
and first lines of docstrings have none of them; names in code have none of those that meant many
things at once.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import yaml

from reprieve.cli.main import COMMANDS, cli
from reprieve.settings import options
from reprieve.telemetry import metrics

ROOT = Path(__file__).parents[2]
SOURCES = ("src/reprieve", "kubelocal/src", "kubeworld/src", "reprieve-notice/src")
_LOG = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
_LOGS = re.compile(rf"\.(?:{'|'.join(sorted(_LOG))})\(")
_DOCSTRING = re.compile(r'^\s*r?"""([^"\n]+)', re.MULTILINE)
# The name of what the product does (`README.md`).
_MOTTO = "Make room on Kubernetes GPU clusters"
# Names of Kubernetes, HTTP, a language and our own command line that are spelled like such a word.
_NAMES = re.compile(r"`[^`]*`|\bPUT\b|\bGONE\b|\bGo(?:'s)? (?=duration|form|reads|prints|long|`)")


#: Words that stood for many things in names of functions, classes, parameters and fields.
_UNNAMED = frozenset(("told", "untold", "tell", "tells", "telling", "say", "says", "saying")) | {
    "party",
    "parties",
    "heirs",
    "take",
    "takes",
    "taken",
    "put",
    "puts",
}
_WAY: Final = re.compile(r"(?:make|makes|making|made)_?way")
_NAMED_BY_OTHERS = frozenset(
    {
        "untold",  # the former name of a field of `Preemption`
        "put",  # PUT of an API server
        "TOLD",  # a value of a field of `Disruption`
        "NOTICE_TOLD",  # the annotation `reprieve.dev/notice-told`
    }
)
#: Prose of `explain` and `plan` for users, who are addressed; texts of kube-scheduler and Kueue.
_PROSE = frozenset(
    {"causes.py", "diagnosis.py", "node_refusals.py", "kube_scheduler.py", "kueue.py"}
)

#: Texts of kube-scheduler, Kueue and Kaiwo, which stay to the letter, and of a language.
_TEXTS_OF_OTHERS: Final = frozenset(
    {"kube_scheduler.py", "kueue.py", "kueue_queues.py", "kueue_checks.py", "kueue_jobs.py"}
    | {"koordinator.py", "kaiwo.py", "device_selectors.py", "literal.py", "report_page.py"}
)
_KEPT: Final = frozenset(
    {
        "its pods were refused: {said}",  # a field of a template
        " is gone",  # before when an object was deleted, where that is not known
        '</select></label><label>Job <input id="asked" size="16" autocomplete="off"></label>',
    }
)


def _forbidden() -> re.Pattern[str]:
    """Return the pattern of all words in the first column of the second table."""
    table = (ROOT / "docs/words.md").read_text(encoding="utf-8").split("## Words that are not used")
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", table[1], re.MULTILINE)[1:]
    words = [word.strip() for row in rows for word in row.split(",")]
    assert len(words) > 40
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})\b", re.IGNORECASE)


FORBIDDEN = _forbidden()


def found(text: str) -> list[str]:
    """Return the forbidden words of a text, names in code apart."""
    return FORBIDDEN.findall(_NAMES.sub("", text.replace(_MOTTO, "")))


def _sources() -> Iterator[tuple[Path, str]]:
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            yield path.relative_to(ROOT), path.read_text(encoding="utf-8")


def _log_texts() -> Iterator[tuple[str, str]]:
    for path, text in _sources():
        if not _LOGS.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr in _LOG and node.args and isinstance(node.args[0], ast.Constant):
                yield f"{path}:{node.lineno}", str(node.args[0].value)


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    yield path, command.help or ""
    for parameter in command.params:
        yield f"{path} {parameter.name}", getattr(parameter, "help", None) or ""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _commands(inner, f"{path} {name}")


def test_no_log_line_has_a_word_that_is_not_a_term() -> None:
    texts = list(_log_texts())
    assert len(texts) > 200
    assert [(where, text, found(text)) for where, text in texts if found(text)] == []


def test_no_help_of_the_command_line_has_a_word_that_is_not_a_term() -> None:
    texts = [*_commands(cli, "reprieve"), *((name, row[2]) for name, row in COMMANDS.items())]
    assert len(texts) > 100
    assert [(where, text, found(text)) for where, text in texts if found(text)] == []


def test_no_option_or_metric_is_described_in_a_word_that_is_not_a_term() -> None:
    texts = []
    for module in (options, metrics):
        tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
        texts += [
            (f"{module.__name__}:{node.lineno}", node.value)
            for call in ast.walk(tree)
            if isinstance(call, ast.Call)
            for node in ast.walk(call)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and len(node.value.split()) > 2
        ]
    assert len(texts) > 80
    assert [(where, text, found(text)) for where, text in texts if found(text)] == []


def _sentences() -> Iterator[tuple[str, str]]:
    """Yield the texts of several words in the sources of the product, docstrings apart."""
    for path, text in _sources():
        if path.parts[0] != "src" or path.name in _TEXTS_OF_OTHERS:
            continue
        tree = ast.parse(text)
        documented = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in documented
                and len(node.value.split()) > 1
            ):
                yield f"{path}:{node.lineno}", node.value


def test_no_sentence_of_the_product_has_a_word_that_is_not_a_term() -> None:
    texts = [(where, text) for where, text in _sentences() if text not in _KEPT]
    assert len(texts) > 3000
    assert [(where, text, found(text)) for where, text in texts if found(text)] == []


def test_no_docstring_begins_with_a_word_that_is_not_a_term() -> None:
    lines = [
        (str(path), line.split(". ")[0])
        for path, text in _sources()
        for line in _DOCSTRING.findall(text)
    ]
    assert len(lines) > 8000
    assert [(where, line, found(line)) for where, line in lines if found(line)] == []


def _defined(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def _prose(page: Path) -> Iterator[str]:
    """Yield the lines of a page without code, comments and targets of links."""
    text = re.sub(r"```.*?```|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for line in re.sub(r"\]\([^)]*\)", "]", text).splitlines():
        if not line.startswith("    "):
            yield line


def test_no_page_has_a_word_that_is_not_a_term() -> None:
    """`docs/words.md` alone names them. `Go` is a language there, `Gone` a state of a victim."""
    names = re.compile(r"\b(?:Go|Gone)\b")
    motto = re.compile(r"makes room on Kubernetes GPU clusters")
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "charts").rglob("*.md")]
    lines = [
        (str(page.relative_to(ROOT)), line)
        for page in pages
        if page.name != "words.md"
        for line in _prose(page)
    ]
    assert len(lines) > 5_000
    plain = ((where, line, found(names.sub("", motto.sub("", line)))) for where, line in lines)
    assert [each for each in plain if each[2]] == []


def _described(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("description"), str):
            yield schema["description"]
        for value in schema.values():
            yield from _described(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _described(value)


def test_no_text_of_the_chart_and_of_kubectl_explain_has_a_word_that_is_not_a_term() -> None:
    chart, texts = ROOT / "charts/reprieve", []
    for path in [chart / "values.yaml", *(chart / "templates").rglob("*")]:
        for line in path.read_text(encoding="utf-8").splitlines():
            if "#" in line or path.suffix == ".txt":
                texts.append((path.name, line.split("#", 1)[-1]))
    for path in (ROOT / "src/reprieve/api/crds").glob("*.yaml"):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        texts += [(path.name, re.sub(r"\bGone\b", "", each)) for each in _described(document)]
    fields = ROOT / "kubelocal/src/kubelocal/server/types/layouts/descriptions.txt"
    for line in fields.read_text(encoding="utf-8").splitlines():
        texts.append((fields.name, line.partition(": ")[2]))
    assert len(texts) > 1_300
    assert [(where, text, found(text)) for where, text in texts if found(text)] == []


def test_no_name_in_code_has_a_word_that_stood_for_many_things() -> None:
    names = [
        (str(path), name)
        for path, text in _sources()
        if "tests" not in path.parts
        for name in _defined(ast.parse(text))
    ]
    assert len(names) > 20_000
    parts = re.compile(r"_+|(?<=[a-z])(?=[A-Z])")
    assert [
        (path, name)
        for path, name in names
        if name not in _NAMED_BY_OTHERS
        and (not _UNNAMED.isdisjoint(parts.split(name.lower())) or _WAY.search(name.lower()))
    ] == []


def test_no_heading_of_a_page_and_no_title_of_the_site_has_a_word_that_is_not_a_term() -> None:
    pages = [*(ROOT / "docs").rglob("*.md")]
    headings = [
        (page.name, line)
        for page in pages
        for line in re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL).splitlines()
        if line.startswith("#")
    ]
    titles = [
        ("mkdocs.yml", line.rpartition(": ")[0])
        for line in (ROOT / "mkdocs.yml").read_text().splitlines()
        if line.endswith(".md")
    ]
    assert len(headings) > 500 and len(titles) > 150
    texts = [*headings, *titles]
    assert [(where, text) for where, text in texts if found(text)] == []


def test_no_reference_page_has_a_word_that_is_not_a_term() -> None:
    pages = [*(ROOT / "docs/reference").glob("*.md"), *(ROOT / "docs").glob("*-reference.md")]
    assert len(pages) > 15
    lines = [(page.name, line) for page in pages for line in page.read_text().splitlines()]
    assert [(page, line) for page, line in lines if found(_without_values(line))] == []


def _without_values(line: str) -> str:
    """Return a line without the values and choices that it lists."""
    values = re.findall(r"`(\w+)`", line.partition("(one of ")[2])
    return re.sub("|".join([r"\{[\w|]+\}", *(rf"\b{each}\b" for each in values)]), "", line)


def test_no_condition_or_event_of_ours_has_a_word_that_is_not_a_term() -> None:
    files = (ROOT / "src/reprieve/wording").glob("*.py")
    texts = []
    for file in files:
        if file.name in _PROSE:
            continue
        with file.open("rb") as source:
            texts += [
                (f"{file.name}:{token.start[0]}", re.sub(r"\{[^}]*\}", "", token.string))
                for token in tokenize.tokenize(source.readline)
                if token.type == tokenize.STRING
                and not token.string.startswith('"""')
                and " " in token.string
            ]
    assert len(texts) > 300
    assert [(where, text, found(text)) for where, text in texts if found(text)] == []
