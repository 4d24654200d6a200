"""Makes the man pages of `docs/man/` from the commands.

`python -m tests.docs.generated` writes them: a page for `reprieve` and one for each command, in the
macros of man(7). They carry the version and no date, so that a wheel made twice is the same, and
the wheel brings them to `share/man/man1`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click

import reprieve
from reprieve.cli.main import COMMANDS, cli

__all__ = ["MAN", "man_pages", "write_man_pages"]

MAN: Final = Path(__file__).parents[2] / "docs" / "man"
_PROGRAM: Final = "reprieve"
_OTHERS_CODES: Final[Mapping[str, str]] = {
    "0": "done",
    "2": "it cannot be done as asked; one line says what is wrong, where, and what is accepted",
}
#: What ends with other codes than these.
_CODES: Final[Mapping[str, Mapping[str, str]]] = {
    "explain": {
        "0": "answered",
        "1": "a decision made again is not the recorded one, or cannot be made again",
        "2": "what was asked cannot be answered",
    },
    "plan": {
        "0": "answered; with --detailed-exitcode: starts, and nothing is preempted",
        "2": "what was asked cannot be answered",
        "10": "with --detailed-exitcode: starts, and others are preempted",
        "20": "with --detailed-exitcode: waits",
        "30": "with --detailed-exitcode: never fits",
    },
    "simulate": {
        "0": "all runs came to an end",
        "1": "some failed, and are named",
        "2": "the study cannot be used",
        "130": "interrupted; what was done is written",
    },
    "up": {
        "0": "ended as asked, and the scenario's assertions held",
        "1": "an assertion of the scenario did not hold",
        "2": "it cannot be started as asked",
    },
}
_KUBECONFIG: Final = ("KUBECONFIG", "files that say which cluster, where --kubeconfig is not given")


def man_pages() -> dict[str, str]:
    """Return the text of each page by the name of its file."""
    root = click.Context(cli, info_name=_PROGRAM, **cli.context_settings)
    pages = {f"{_PROGRAM}.1": "\n".join(_overview(root)) + "\n"}
    for name, (_, _, line) in COMMANDS.items():
        command = cli.get_command(root, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=root)
        pages[f"{_PROGRAM}-{name}.1"] = "\n".join(_page(context, name, line)) + "\n"
    return pages


def write_man_pages() -> None:
    """Write all pages, and remove those of commands that are gone."""
    MAN.mkdir(exist_ok=True)
    wanted = man_pages()
    for path in MAN.glob("*.1"):
        if path.name not in wanted:
            path.unlink()
    for name, page in wanted.items():
        (MAN / name).write_text(page, encoding="utf-8")


def _overview(context: click.Context) -> Iterator[str]:
    yield from _head(_PROGRAM, _first_sentence(cli.help or ""))
    yield from (".SH SYNOPSIS", rf"\fB{_PROGRAM}\fR \fICOMMAND\fR [\fIOPTIONS\fR]")
    yield from _description(cli)
    yield ".SH COMMANDS"
    for name, (_, _, line) in COMMANDS.items():
        yield from (".TP", rf"\fB{_PROGRAM}\-{name}\fR(1)", _text(line))
    yield from _options(context)
    yield ".PP"
    yield rf"kubectl finds the same commands as \fBkubectl {_PROGRAM}\fR."


def _page(context: click.Context, name: str, line: str) -> Iterator[str]:
    yield from _head(f"{_PROGRAM}-{name}", line)
    usage = " ".join(context.command.collect_usage_pieces(context))
    yield from (".SH SYNOPSIS", rf"\fB{_PROGRAM} {name}\fR {_text(usage)}")
    yield from _description(context.command)
    yield from _options(context)
    yield ".SH EXIT STATUS"
    for code, meaning in _CODES.get(name, _OTHERS_CODES).items():
        yield from (".TP", rf"\fB{code}\fR", _text(meaning))
    if any(each.name == "kubeconfig" for each in context.command.params) and name != "up":
        variable, meaning = _KUBECONFIG
        yield from (".SH ENVIRONMENT", ".TP", rf"\fB{variable}\fR", _text(meaning))
    yield from (".SH SEE ALSO", rf"\fB{_PROGRAM}\fR(1), \fBkubectl\fR(1)")


def _head(title: str, line: str) -> Iterator[str]:
    yield '.\\" Made by python -m tests.docs.generated.'
    version = f"{_PROGRAM} {reprieve.__version__}"
    yield f'.TH "{title.upper()}" "1" "" "{version}" "Reprieve"'
    yield from (".SH NAME", rf"{_text(title)} \- {_text(line.rstrip('.'))}")


def _description(command: click.Command) -> Iterator[str]:
    yield ".SH DESCRIPTION"
    for number, paragraph in enumerate(inspect.cleandoc(command.help or "").split("\n\n")):
        if number:
            yield ".PP"
        # Marks a paragraph whose lines stay as they are.
        if paragraph.startswith("\b\n"):
            yield ".nf"
            yield from (_text(each) for each in paragraph.split("\n")[1:])
            yield ".fi"
        else:
            yield _text(" ".join(paragraph.split()))


def _options(context: click.Context) -> Iterator[str]:
    yield ".SH OPTIONS"
    for parameter in context.command.params:
        record = parameter.get_help_record(context)
        if record is not None:
            written, meaning = record
            yield from (".TP", rf"\fB{_text(written)}\fR", _text(" ".join(meaning.split())))
    # Not from the command, which keeps this option as whoever first asked for it named it.
    yield from (".TP", rf"\fB{_text('-h, --help')}\fR", "Show this message and exit.")


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0]


def _text(plain: str) -> str:
    """Return a line in which nothing is a macro or an escape."""
    escaped = plain.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq")
    return rf"\&{escaped}" if escaped.startswith(".") else escaped
