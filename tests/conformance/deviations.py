"""Cases whose outcome differs on purpose, with what is asserted instead. See DEVIATIONS.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

EXPECTED: dict[str, Any] = {
    "decision_reconcile.json::multi-pod-total": {
        "gpuResources": {"amd.com/gpu": 2},
        "status": {"phase": "Active", "idleSince": None, "aggregatedUtilization": None},
    },
}


def documented() -> set[str]:
    """Return the cases that DEVIATIONS.md names."""
    text = Path(__file__).with_name("DEVIATIONS.md").read_text(encoding="utf-8")
    return set(re.findall(r"`(\S+\.json::\S+)`", text))
