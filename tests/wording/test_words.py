"""Texts use the terms of `docs/words.md`, and not the words that its second table lists.

Log lines, the help of the command line, options, metrics and first lines of docstrings have none
of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

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
_NAMES = re.compile(
    r"get waiters|`[^`]*`|\bPUT\b|\bGONE\b|\bGo(?:'s)? (?=duration|form|reads|prints|long|`)"
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


def test_no_docstring_begins_with_a_word_that_is_not_a_term() -> None:
    lines = [
        (str(path), line.split(". ")[0])
        for path, text in _sources()
        for line in _DOCSTRING.findall(text)
    ]
    assert len(lines) > 8000
    assert [(where, line, found(line)) for where, line in lines if found(line)] == []
