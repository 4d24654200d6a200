"""A replica ends with the process that plays it, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reprieve.scenarios.with_parent import command

PLAYER = """
import subprocess, signal, sys
from reprieve.scenarios.with_parent import command
subprocess.Popen(command("replica", "run", *sys.argv[1:]))
signal.pause()
"""
# Begins anew once, as an operator does that has lost its lease: the process goes on to be the same.
REPLICA = """
import os, signal, sys
if os.environ.setdefault("REPLICA_BEGUN", str(os.getpid())) and sys.argv[-1] != "anew":
    sys.orig_argv.append("anew")
    os.execv(sys.executable, sys.orig_argv)
print(os.getpid(), os.environ["REPLICA_BEGUN"], *sys.argv[1:], flush=True)
signal.pause()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends such processes on Linux alone")
def test_a_replica_is_killed_with_its_player_also_after_it_began_anew(tmp_path: Path) -> None:
    (tmp_path / "replica.py").write_text(REPLICA)
    path = os.pathsep.join((str(tmp_path), *filter(None, sys.path)))
    with subprocess.Popen(
        [sys.executable, "-c", PLAYER, "--config"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as player:
        assert player.stdout is not None
        try:
            first = player.stdout.readline()
        finally:
            player.send_signal(signal.SIGKILL)
        replica = int(first.split()[0])
        assert first == f"{replica} {replica} run --config anew\n"
        try:
            # Both hold the pipe: it ends once the replica has ended, too.
            assert player.communicate(timeout=60)[0] == ""
        except subprocess.TimeoutExpired:
            os.kill(replica, signal.SIGKILL)
            raise


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends such processes on Linux alone")
def test_a_replica_whose_player_has_ended_already_does_not_begin() -> None:
    python, *rest = command("this", "run")
    another = [str(os.getppid()) if each == str(os.getpid()) else each for each in rest]
    gone = subprocess.run([python, *another], capture_output=True, check=False)
    assert (gone.returncode, gone.stderr) == (-signal.SIGKILL, b"")


PLAYER_OF_A_CONTROL_PLANE = """
import signal, sys, threading
from pathlib import Path
from tests.integration.control_plane import Binaries, ControlPlane
folder = Path(sys.argv[1])
plane = ControlPlane(Binaries(folder / "program", folder / "program", None), folder, {})
plane.ports.update(etcd=1, peer=2)
def start():
    plane._start_etcd()
    sys.stdin.readline()
starting = threading.Thread(target=start)
starting.start()
starting.join()
(folder / "joined").touch()
signal.pause()
"""


# What it says last is said only by one that nobody has ended.
PROGRAM = """#!{python}
import os, sys, time
said = open({pipe!r}, "w", buffering=1)
print(os.getpid(), sys.argv[1], file=said)
while not os.path.exists({joined!r}):
    time.sleep(0.01)
print("goes on", file=said)
time.sleep(60)
print("outlived", file=said)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends such processes on Linux alone")
def test_a_control_plane_ends_with_its_tests_and_not_with_the_thread_that_asked_for_it(
    tmp_path: Path,
) -> None:
    program, pipe = tmp_path / "program", tmp_path / "pipe"
    os.mkfifo(pipe)
    program.write_text(
        PROGRAM.format(python=sys.executable, pipe=str(pipe), joined=str(tmp_path / "joined"))
    )
    program.chmod(0o700)
    with subprocess.Popen(
        [sys.executable, "-c", PLAYER_OF_A_CONTROL_PLANE, str(tmp_path)],
        stdin=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as player:
        assert player.stdin is not None
        try:
            with pipe.open() as said:
                pid, data = said.readline().split()
                assert data == f"--data-dir={tmp_path / 'etcd'}"
                player.stdin.write("the thread may end\n")
                player.stdin.flush()
                assert said.readline() == "goes on\n"
                player.kill()
                assert said.read() == ""
        finally:
            player.kill()
        assert int(pid) != player.pid
