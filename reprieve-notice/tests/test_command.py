"""`reprieve-notice exec` with real programs and signals, against a stand-in of the operator."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NOTICE = {
    "id": "a1",
    "state": "Noticed",
    "deadline": "2026-03-04T10:10:00Z",
    "now": "2026-03-04T10:00:00Z",
}
COMMAND = [sys.executable, "-m", "reprieve_notice", "exec"]
_PATIENCE_S = 60
BEGIN = """
import os, signal
fd = int(os.environ["REPRIEVE_NOTICE_FD"])
signal.signal(signal.SIGTERM, lambda *_: os._exit(3))
"""
END = """
print("ready", flush=True)
while True:
    signal.pause()
"""


@contextmanager
def started(
    operator: Any,
    folder: Path,
    told: str,
    *flags: str,
    sent: str = "SIGUSR1",
    below: Path | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Start a program that does what `told` says once it is signalled; it is ready.

    `below`: a script that starts it.
    """
    token = folder / "token"
    token.write_text("secret\n")
    script = f"{BEGIN}signal.signal(signal.{sent}, lambda *_: {told})\n{END}"
    above = [] if below is None else [str(below)]
    found = subprocess.Popen(
        [*COMMAND, *flags, "--", sys.executable, *above, "-c", script],
        env={
            **os.environ,
            "REPRIEVE_NOTICE_URL": operator.url,
            "REPRIEVE_NOTICE_TOKEN": str(token),
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert found.stdout is not None
        assert found.stdout.readline() == "ready\n"
        yield found
    finally:
        found.terminate()
        found.communicate()


def saved(operator: Any) -> list[int | None]:
    return [each.get("step") for each in operator.said if each["state"] == "saved"]


def test_a_program_that_is_signalled_reports_its_save_and_goes_on(
    operator: Any, tmp_path: Path
) -> None:
    with started(operator, tmp_path, 'os.write(fd, b"saved 7\\n")') as program:
        operator.notice = dict(NOTICE)

        assert operator.saved.wait(_PATIENCE_S)
        assert saved(operator)[0] == 7
        assert program.poll() is None
        program.send_signal(signal.SIGTERM)
        assert program.wait(_PATIENCE_S) == 3


@pytest.mark.parametrize(("code", "said"), [(0, [None]), (1, [])])
def test_a_program_that_ends_well_once_it_is_told_has_saved(
    operator: Any, tmp_path: Path, code: int, said: list[int | None]
) -> None:
    told = f"os._exit({code})"
    with started(operator, tmp_path, told, "--signal", "USR2", sent="SIGUSR2") as program:
        operator.notice = dict(NOTICE)

        assert program.wait(_PATIENCE_S) == code
        assert saved(operator) == said


def test_whoever_of_a_group_has_no_handler_goes_on_where_the_signal_is_ignored(
    operator: Any, tmp_path: Path
) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, subprocess, sys\n"
        "raise SystemExit(subprocess.call([sys.executable, *sys.argv[1:]], close_fds=False))\n"
    )
    with started(operator, tmp_path, "os._exit(0)", "--ignored", below=script) as program:
        operator.notice = dict(NOTICE)

        assert program.wait(_PATIENCE_S) == 0
        assert saved(operator) == [None]


@pytest.mark.parametrize("flags", [(), ("--ignored",)])
def test_workers_in_sessions_of_their_own_are_signalled(
    operator: Any, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """torchrun starts its workers so."""
    script = tmp_path / "launcher.py"
    script.write_text(
        "import signal, subprocess, sys\n"
        "signal.signal(signal.SIGUSR1, lambda *_: None)\n"
        "worker = subprocess.Popen([sys.executable, *sys.argv[1:]], start_new_session=True,\n"
        "                          close_fds=False)\n"
        "raise SystemExit(worker.wait())\n"
    )
    with started(operator, tmp_path, "os._exit(0)", *flags, below=script) as program:
        operator.notice = dict(NOTICE)

        assert program.wait(_PATIENCE_S) == 0
        assert saved(operator) == [None]


def test_a_handler_that_is_set_after_the_notice_is_called_where_the_signal_is_ignored(
    operator: Any, tmp_path: Path
) -> None:
    """A training loads its frameworks for a minute before it has a handler."""
    operator.notice = dict(NOTICE)
    token = tmp_path / "token"
    token.write_text("secret")
    script = (
        "import os, signal, sys\n"
        "sys.stdin.readline()\n"
        "signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))\n"
        "while True: signal.pause()\n"
    )
    program = subprocess.Popen(
        [*COMMAND, "--ignored", "--", sys.executable, "-c", script],
        env={
            **os.environ,
            "REPRIEVE_NOTICE_URL": operator.url,
            "REPRIEVE_NOTICE_TOKEN": str(token),
        },
        stdin=subprocess.PIPE,
        text=True,
    )
    assert operator.heard.wait(_PATIENCE_S), "it has reported that it saves"
    program.communicate("go on\n", timeout=_PATIENCE_S)
    assert program.returncode == 0
    assert saved(operator) == [None]


def test_a_program_that_is_not_told_is_left_alone(operator: Any, tmp_path: Path) -> None:
    with started(operator, tmp_path, "os._exit(9)") as program:
        program.send_signal(signal.SIGTERM)
        assert program.wait(_PATIENCE_S) == 3
    assert operator.said == []


def test_what_cannot_be_run_is_named() -> None:
    done = subprocess.run([*COMMAND, "--", "/no/such"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        127,
        "reprieve-notice: /no/such: No such file or directory\n",
    )
    done = subprocess.run(
        [*COMMAND, "--signal", "LOUD", "--", "true"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "accepted: a name such as USR1 or TERM" in done.stderr
