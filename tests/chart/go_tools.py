"""Finds or builds the Go programs that judge the chart and the release: Helm, promtool, actionlint.

A variable names a binary; else one is built once through the Go module proxy and kept in the user's
cache folder. Where neither is possible `tool` says why, and the tests skip with that text.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["ACTIONLINT", "HELM", "PROMTOOL", "Tool", "ToolMissing", "tool"]

_BUILD_TIMEOUT_S: Final = 900


@dataclass(frozen=True, slots=True)
class Tool:
    """A program: the variable that names it, its package, and the module and version of that."""

    name: str
    variable: str
    package: str
    module: str
    version: str


HELM: Final = Tool("helm", "HELM", "helm.sh/helm/v3/cmd/helm", "helm.sh/helm/v3", "v3.18.6")
_PROMETHEUS: Final = "github.com/prometheus/prometheus"
PROMTOOL: Final = Tool(
    "promtool", "PROMTOOL", f"{_PROMETHEUS}/cmd/promtool", _PROMETHEUS, "v0.307.3"
)
_ACTIONLINT: Final = "github.com/rhysd/actionlint"
ACTIONLINT: Final = Tool(
    "actionlint", "ACTIONLINT", f"{_ACTIONLINT}/cmd/actionlint", _ACTIONLINT, "v1.7.8"
)


class ToolMissing(Exception):
    """There is no such program, and it cannot be built here."""


@cache
def tool(wanted: Tool) -> Path:
    """Return the path of a program.

    Raises:
        ToolMissing: its variable is not set, and Go is absent or the build fails.
    """
    named = os.environ.get(wanted.variable)
    if named:
        return Path(named)
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    binary = home / "reprieve" / f"{wanted.name}-{wanted.version}" / wanted.name
    if binary.exists():
        return binary
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not Path(go).exists():
        raise ToolMissing(f"needs {wanted.name}: set ${wanted.variable}, or install Go to build it")
    return _build(go, wanted, binary)


def _build(go: str, wanted: Tool, binary: Path) -> Path:
    missing = f"needs {wanted.name}: set ${wanted.variable}"
    scratch = binary.parent / f"build-{os.getpid()}"
    scratch.mkdir(parents=True)
    # A module of its own: `go install` refuses programs whose module excludes or replaces others.
    (scratch / "go.mod").write_text(
        f"module scratch\ngo 1.24.0\nrequire {wanted.module} {wanted.version}\n"
    )
    try:
        built = subprocess.run(
            [go, "build", "-ldflags", "-s -w", "-o", wanted.name, wanted.package],
            cwd=scratch,
            env={**os.environ, "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
            timeout=_BUILD_TIMEOUT_S,
            check=False,
        )
        if built.returncode != 0:
            raise ToolMissing(f"{missing}; building it through the Go proxy failed")
        (scratch / wanted.name).replace(binary)
    except subprocess.TimeoutExpired:
        raise ToolMissing(f"{missing}; building it took too long") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return binary
