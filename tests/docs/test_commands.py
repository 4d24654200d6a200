"""Commands that documents show are ones that the programs accept.

Tutorials are played word for word (`tests/tutorials`). Here each command of ours, in a block or
within a line, is looked up: its subcommands, and each of its options, are there.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from reprieve.cli.main import COMMANDS, cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_SHELLS = frozenset({"", "sh", "console"})
_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_MODULE = re.compile(r"python3? -m ((?:bench|tests)[\w.]*)((?: (?:--?[\w-]+|[^\s;-][^\s;]*))*)")
_OPTION = re.compile(r"(?<=\s)--[a-z][\w-]*")


def _lines(text: str) -> Iterator[str]:
    """Yield commands of blocks, continued lines joined, and what stands in code within lines."""
    language: str | None = None
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        fence = re.match(r" *```(\w*)", line)
        if fence is not None:
            language = fence[1] if language is None else None
        elif language is None:
            yield from _CODE.findall(line)
        elif language in _SHELLS:
            yield re.split(r"\s{2,}| #", line.strip().removeprefix("$ "))[0]


def _ours(line: str) -> list[str]:
    """Return the words of a command of ours, none where the line is something else."""
    line = re.sub(r"^(?:\.venv/bin/)?(?:uv run )?|^kubectl (?=reprieve )", "", line)
    if not line.startswith("reprieve "):
        return []
    try:
        return shlex.split(re.split(r" [|>&;]| \d>", line)[0])
    except ValueError:  # a quote that ends on another line
        return line.split()


def _refused(words: list[str]) -> str:
    """Return what a command does not have, empty if it has all."""
    command: click.Command = cli
    context = click.Context(cli)
    for word in words[1:]:
        if isinstance(command, click.Group) and not word.startswith("-"):
            inner = command.get_command(context, word)
            if inner is None:
                return "" if re.search(r"[A-Z.…{<\[]", word) else f"no command {word}"
            command, context = inner, click.Context(inner, parent=context)
            continue
        if word.startswith("--"):
            known = {each for one in command.params for each in [*one.opts, *one.secondary_opts]}
            if word.partition("=")[0].rstrip(".,") not in known | {"--help", "--version"}:
                return f"{command.name} has no {word}"
    return ""


def _pages_with(find: re.Pattern[str]) -> list[Path]:
    return [page for page in PAGES if find.search(page.read_text(encoding="utf-8"))]


def test_commands_are_found_in_documents() -> None:
    found = [each for page in PAGES for line in _lines(page.read_text()) if (each := _ours(line))]
    assert len(found) > 200
    assert {words[1] for words in found} >= set(COMMANDS) - {"operator"}


@pytest.mark.parametrize(
    "page", _pages_with(re.compile(r"\breprieve [a-z]")), ids=lambda page: str(page.name)
)
def test_a_page_shows_commands_and_options_that_are_there(page: Path) -> None:
    lines = [(line, _ours(line)) for line in _lines(page.read_text(encoding="utf-8"))]
    assert [(line, why) for line, words in lines if words and (why := _refused(words))] == []


@pytest.mark.parametrize("page", _pages_with(_MODULE), ids=lambda page: str(page.name))
def test_a_page_names_benches_and_programs_with_options_that_are_there(page: Path) -> None:
    wrong = []
    for name, rest in _MODULE.findall(page.read_text(encoding="utf-8")):
        if name.endswith(".NAME"):
            continue
        there = ROOT.joinpath(*name.rstrip(".").split("."))
        files = list(there.glob("*.py")) if there.is_dir() else list(there.parent.glob("*.py"))
        if not there.is_dir() and not there.with_suffix(".py").is_file():
            wrong.append(f"{name}: no such module")
        text = "".join(each.read_text(encoding="utf-8") for each in files)
        wrong += [f"{name}: no {each}" for each in _OPTION.findall(rest) if f'"{each}"' not in text]
    assert wrong == []
