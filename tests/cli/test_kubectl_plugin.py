"""`kubectl reprieve`, found by the real kubectl, and what a shell is offered."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubelocal.tests.kubectl_binary import find_kubectl
from reprieve.cli.kubectl_plugin import completions
from reprieve.cli.main import COMMANDS

SCRIPTS = Path(sys.executable).parent


def kubectl(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the real kubectl with our scripts on its PATH."""
    binary = find_kubectl()
    if binary is None:
        pytest.skip("no kubectl: set $KUBECTL, or put one on PATH")
    environment = {**os.environ, "PATH": f"{SCRIPTS}:{os.environ['PATH']}"}
    return subprocess.run(
        [str(binary), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_kubectl_runs_the_commands_and_errors_name_the_plugin() -> None:
    crds = kubectl("reprieve", "crds")
    assert crds.returncode == 0 and "preemptions.reprieve.dev" in crds.stdout
    refused = kubectl("reprieve", "up", "--nodes", "none")
    assert refused.returncode == 2
    assert "Usage: kubectl reprieve up" in refused.stderr


def test_kubectl_completes_commands_and_options_of_the_plugin() -> None:
    said = kubectl("__complete", "reprieve", "ex").stdout.splitlines()
    assert said[0] == f"explain\t{COMMANDS['explain'][2]}"
    assert said[-1] == ":4"
    options = kubectl("__complete", "reprieve", "up", "--no").stdout.splitlines()
    assert options[0].startswith("--nodes\t")


def test_completions_are_those_that_begin_so_and_files_where_a_file_is_wanted() -> None:
    assert [line.partition("\t")[0] for line in completions([""])] == [*COMMANDS, ":4"]
    assert completions(["nothing-begins-so"]) == [":4"]
    assert completions(["up", "--data", ""])[-1] == ":0"
    assert completions([]) == completions([""])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_that_asks_the_command_itself(shell: str) -> None:
    script = subprocess.run(
        [SCRIPTS / "reprieve", "completion", shell],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    assert f"_REPRIEVE_COMPLETE={shell}_complete" in script
    asked = subprocess.run(
        [SCRIPTS / "reprieve"],
        env={
            **os.environ,
            "_REPRIEVE_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": "reprieve cr",
            "COMP_CWORD": "1" if shell != "fish" else "cr",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "crds" in asked.stdout, asked.stderr


def test_a_shell_that_is_not_known_is_refused() -> None:
    refused = subprocess.run(
        [SCRIPTS / "reprieve", "completion", "tcsh"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert refused.returncode == 2
    assert "'bash', 'zsh', 'fish'" in refused.stderr
