"""A plan has the same id in every process, whatever the hash seed."""

from __future__ import annotations

import os
import subprocess
import sys

_PROGRAM = """
from reprieve.engine.placement.profile import Policy, Profile, policy_text
ignored = frozenset(f"example.com/{name}" for name in "abcdefgh")
print(policy_text(Policy(profiles=(Profile(ignored_resources=ignored),))))
"""


def test_equal_policies_have_one_text_in_every_process() -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(4)
    }
    assert len(texts) == 1
    assert "example.com/a" in texts.pop()
