"""The keeper of the lease is forked while the process has one thread."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_COUNTING = """
import os

forked = os.fork


def fork():
    print("threads:", len(os.listdir("/proc/self/task")), flush=True)
    return forked()


os.fork = fork
"""


def test_a_process_forks_its_keeper_before_it_has_a_second_thread(tmp_path: Path) -> None:
    # Every interpreter imports a module of this name when it starts.
    (tmp_path / "sitecustomize.py").write_text(_COUNTING)
    for plane in ("idle", "scheduling", "quota"):
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "reprieve", "run"),
                *("--controllers", plane, "--kubeconfig", str(tmp_path / "none")),
            ],
            env={"PATH": os.defpath, "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert "threads: 1\n" in ran.stdout, (plane, ran.stdout, ran.stderr)
        assert ran.returncode == 2, "there is no such kubeconfig"
