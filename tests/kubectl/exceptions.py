"""The cases of the golden table that are answered otherwise than recorded, with reasons."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from tests.integration.control_plane import Binaries

__all__ = ["EMBEDDED", "embedded_markdown", "of_real_server"]

_ALL: Final[Mapping[str, Mapping[str, str]]] = yaml.safe_load(
    Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
)
EMBEDDED: Final = _ALL["embedded"]


def of_real_server(binaries: Binaries) -> Mapping[str, str]:
    """Return the exceptions of this API server."""
    major, minor = binaries.release
    return {**_ALL["kube-apiserver"], **_ALL.get(f"kube-apiserver v{major}.{minor}", {})}


def embedded_markdown() -> str:
    """Return the list for `kubelocal/docs/cluster.md`: reasons, with the cases that share each."""
    by_reason: dict[str, list[str]] = {}
    for case, reason in EMBEDDED.items():
        by_reason.setdefault(reason, []).append(f"`{case}`")
    return "".join(
        f"- {reason[0].upper()}{reason[1:]}: {', '.join(sorted(cases))}.\n"
        for reason, cases in by_reason.items()
    )
