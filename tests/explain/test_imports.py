"""What `reprieve explain` imports before it knows what is asked."""

from __future__ import annotations

import subprocess
import sys

_HEAVY = (
    "reprieve.planes.quota.plane",
    "reprieve.planes.scheduling.plane",
    "reprieve.operator.process",
    "reprieve.whatif.run",
    "reprieve.answers.preemptions.recorded",
)


def test_no_plane_is_imported_before_one_has_to_decide() -> None:
    code = f"import sys, reprieve.cli.explain; print([e for e in {_HEAVY!r} if e in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
