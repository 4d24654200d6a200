"""The command itself: what is not installed is named."""

from __future__ import annotations

import subprocess
import sys


def test_without_the_extra_local_up_says_what_to_install() -> None:
    # None in sys.modules is Python's own way to say that there is no such module.
    code = (
        "import sys; sys.modules['kubelocal'] = None\n"
        "sys.argv = ['reprieve', 'up', '--headless', '--for', '1s']\n"
        "from reprieve.cli.main import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "Error: reprieve up: kubelocal is not installed; accepted: the command of an installation "
        "with the embedded cluster, pip install 'reprieve[local]'\n"
    )


def test_help_and_run_need_no_embedded_cluster() -> None:
    code = (
        "import sys; sys.modules['kubelocal'] = None\n"
        "sys.argv = ['reprieve', 'run', '--help']\n"
        "from reprieve.cli.main import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_up_tells_the_scenarios_that_come_with_it() -> None:
    from reprieve.scenarios.catalogue import names, packaged

    said = subprocess.run(
        [sys.executable, "-m", "reprieve", "up", "--list"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    words = " ".join(said.split())
    assert names()
    for name in names():
        note = packaged(name).note
        assert note, f"{name} does not say what it shows"
        assert f"{name} {' '.join(note.split())}" in words
