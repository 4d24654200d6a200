"""The cases that the embedded cluster answers otherwise than a real API server, with reasons."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

__all__ = ["EXCEPTIONS", "exceptions_markdown"]

EXCEPTIONS: Final[Mapping[str, str]] = yaml.safe_load(
    Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
)


def exceptions_markdown() -> str:
    """Return the list for `docs/embedded-cluster.md`: reasons, with the cases that share each."""
    by_reason: dict[str, list[str]] = {}
    for case, reason in EXCEPTIONS.items():
        by_reason.setdefault(reason, []).append(f"`{case}`")
    return "".join(
        f"- {reason}: {', '.join(sorted(cases))}.\n" for reason, cases in by_reason.items()
    )
