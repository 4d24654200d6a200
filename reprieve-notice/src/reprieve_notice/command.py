"""`reprieve-notice exec -- COMMAND`: run a program that knows signals, but no notices.

The program runs in a process group of its own. Once the pod is notified, the group and all
processes that the program has started are sent a signal, once for each notice, and the operator is
notified that the pod saves. With `--ignored` each process is sent it once it has a handler for it,
which a training sets some time after its start. The operator is notified that the pod has saved

1. when the program writes the line `saved`, or `saved STEP`, to the file descriptor whose number
   is in the variable REPRIEVE_NOTICE_FD
2. or when the program ends by itself with exit code 0 after it was notified

Signals that end a container (TERM, INT, HUP) are passed on to the group. The exit code is that of
the program, or 128 and the number of the signal that ended it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

from reprieve_notice.notices import Notice, Notices
from reprieve_notice.processes import handles, tree

__all__ = ["main", "run"]

_LOOK_S = 0.2  # between checks whether the pod was notified
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_NOT_FOUND = 127


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code."""
    parser = argparse.ArgumentParser(prog="reprieve-notice", description="Notice of preemption.")
    commands = parser.add_subparsers(dest="command", required=True)
    execute = commands.add_parser("exec", help="run a program, and signal it on a notice")
    execute.add_argument(
        "--signal",
        type=_signal,
        default=signal.SIGUSR1,
        metavar="NAME",
        help="signal for the program on a notice, such as USR1 (the default) or TERM",
    )
    execute.add_argument(
        "--ignored",
        action="store_true",
        help="start with the signal ignored, so that processes without a handler continue "
        "(torchrun); those that set one are sent the signal from then on",
    )
    commands.add_parser("ray", help="drain this pod's Ray node on a notice")
    execute.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM")
    given = parser.parse_args(arguments)
    if given.command == "ray":
        return _drain_ray()
    program = given.program[1:] if given.program[:1] == ["--"] else given.program
    if not program:
        parser.error("accepted: reprieve-notice exec [--signal NAME] -- PROGRAM [ARGUMENT ...]")
    return run(program, given.signal, ignored=given.ignored)


def _drain_ray() -> int:
    """Join the Ray of this pod, and drain its node each time that the pod gets notice."""
    try:
        from reprieve_notice.ray import drain_on_notice, join
    except ImportError as missing:
        print(f"reprieve-notice: ray: {missing}; install ray in this image", file=sys.stderr)
        return 1
    join()
    notices, last = Notices(), ""
    while True:
        notified = drain_on_notice(notices, last)
        print(
            f"reprieve-notice: the node is drained, since the pod was told ({notified})", flush=True
        )
        last = notified


def run(program: Sequence[str], sent: signal.Signals, *, ignored: bool = False) -> int:
    """Run a program until it ends, and return its exit code.

    `sent`: what it is sent once the pod is notified; `ignored`: it starts with that signal ignored.
    """
    notices = Notices()
    if ignored:
        signal.signal(sent, signal.SIG_IGN)  # which the program inherits
    reading, writing = os.pipe()
    environment = {**os.environ, "REPRIEVE_NOTICE_FD": str(writing)}
    try:
        child = subprocess.Popen(
            program, env=environment, pass_fds=(writing,), start_new_session=True
        )
    except OSError as failure:
        print(f"reprieve-notice: {program[0]}: {failure.strerror}", file=sys.stderr)
        os.close(reading)
        os.close(writing)
        return _NOT_FOUND
    os.close(writing)
    for each in _PASSED_ON:
        signal.signal(each, lambda number, _: _send(child, number))
    threading.Thread(target=_hear, args=(reading, notices), daemon=True).start()
    notified = _follow(child, _Sent(child, sent, patient=ignored), notices)
    if notified and child.returncode == 0:
        notices.report("saved")
    notices.close()
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


class _Sent:
    """The signal of notices, and which processes of the program were sent it for the last one."""

    def __init__(
        self, child: subprocess.Popen[bytes], number: signal.Signals, *, patient: bool
    ) -> None:
        """`patient`: each process is sent it once it has a handler, however late that is."""
        self._child = child
        self._number = number
        self._patient = patient
        self._notice = ""
        self._processes: set[int] = set()

    def send(self, notice: str) -> None:
        """Send the signal to all that have not been sent it for this notice."""
        if notice == self._notice and not self._patient:
            return
        if notice != self._notice:
            self._notice, self._processes = notice, set()
        if self._child.poll() is not None:
            return
        for each in tree(self._child.pid) - self._processes:
            if not self._patient or handles(each, self._number):
                self._processes.add(each)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(each, self._number)


def _follow(child: subprocess.Popen[bytes], sent: _Sent, notices: Notices) -> str:
    """Signal the program as often as the pod gets notice; return the last one when it has ended."""
    last = ""
    while True:
        try:
            child.wait(_LOOK_S)
        except subprocess.TimeoutExpired:
            notice = notices.due()
            if notice is not None:
                last = notice.id
                sent.send(last)
        else:
            return last


def _hear(reading: int, notices: Notices) -> None:
    """Report what the program writes to its file descriptor."""
    with os.fdopen(reading, errors="replace") as lines:
        for line in lines:
            word, _, step = line.strip().partition(" ")
            if word == "saved":
                Notice(notices).saved(int(step) if step.isdecimal() else None)


def _send(child: subprocess.Popen[bytes], number: int) -> None:
    if child.poll() is None:
        os.killpg(child.pid, number)


def _signal(name: str) -> signal.Signals:
    known = {each.name: each for each in signal.Signals}
    found = known.get(name) or known.get(f"SIG{name}")
    if found is None:
        raise argparse.ArgumentTypeError(f"{name!r}; accepted: a name such as USR1 or TERM")
    return found
