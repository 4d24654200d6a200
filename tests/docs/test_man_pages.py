"""The man pages: of every command, as the commands are, and readable by man."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import click
import pytest

from reprieve.cli.main import COMMANDS, cli
from tests.docs.man_pages import MAN, man_pages


def test_there_is_a_page_for_every_command_and_it_says_what_the_command_takes() -> None:
    written = {path.name: path.read_text("utf-8") for path in MAN.glob("*.1")}
    assert written == man_pages(), "run: .venv/bin/uv run python -m tests.docs.generated"
    assert set(written) == {"reprieve.1", *(f"reprieve-{name}.1" for name in COMMANDS)}


def test_every_option_stands_in_its_page_with_what_it_does() -> None:
    context = click.Context(cli)
    seen = 0
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        page = (MAN / f"reprieve-{name}.1").read_text("utf-8").replace(r"\-", "-")
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                seen += 1
                assert all(flag in page for flag in parameter.opts), (name, parameter.opts)
                assert parameter.help, (name, parameter.opts)
    assert seen > 80


@pytest.mark.parametrize("path", sorted(MAN.glob("*.1")), ids=lambda path: path.stem)
def test_man_reads_a_page_without_a_complaint(path: Path) -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("needs groff")
    done = subprocess.run(
        [groff, "-man", "-Tutf8", "-ww", "-P-c", "-P-b", "-P-u", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert all(section in done.stdout for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"))
