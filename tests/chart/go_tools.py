"""Finds or builds the Go programs that judge the chart and the release, such as Helm and krew.

A variable names a binary; else one is built once through the Go module proxy and kept in the user's
cache folder. Where neither is possible `tool` says why, and the tests skip with that text. So does
`definitions`, which finds what the Go modules of other projects say of their kinds.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

__all__ = [
    "ACTIONLINT",
    "HELM",
    "KREW",
    "PROMTOOL",
    "Tool",
    "ToolMissing",
    "definitions",
    "go",
    "tool",
]

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
_KREW: Final = "sigs.k8s.io/krew"
KREW: Final = Tool("krew", "KREW", f"{_KREW}/cmd/krew", _KREW, "v0.4.3")


#: Module and version -> its files that define kinds which the chart can render objects of.
_DEFINITIONS: Final = {
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": tuple(
        f"example/prometheus-operator-crd/monitoring.coreos.com_{kind}.yaml"
        for kind in ("podmonitors", "prometheusrules", "servicemonitors")
    ),
    "github.com/cert-manager/cert-manager@v1.18.2": (
        "deploy/crds/crd-certificates.yaml",
        "deploy/crds/crd-issuers.yaml",
    ),
}


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
    compiler = go()
    if compiler is None:
        raise ToolMissing(f"needs {wanted.name}: set ${wanted.variable}, or install Go to build it")
    return _build(compiler, wanted, binary)


@cache
def definitions() -> tuple[Path, ...]:
    """Return files with the CustomResourceDefinitions of the Prometheus Operator and cert-manager.

    Raises:
        ToolMissing: Go is absent, or cannot fetch the modules.
    """
    compiler = go()
    if compiler is None:
        raise ToolMissing("needs the definitions of others: install Go to fetch their modules")
    found: list[Path] = []
    for module, files in _DEFINITIONS.items():
        done = subprocess.run(
            [compiler, "mod", "download", "-json", module],
            capture_output=True,
            text=True,
            timeout=_BUILD_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise ToolMissing(f"needs the definitions of {module}, which Go cannot fetch")
        folder = Path(json.loads(done.stdout)["Dir"])
        found += [folder / each for each in files]
    return tuple(found)


def go() -> str | None:
    """Return the Go compiler, None where there is none."""
    found = shutil.which("go") or "/usr/local/go/bin/go"
    return found if Path(found).exists() else None


def _build(compiler: str, wanted: Tool, binary: Path) -> Path:
    missing = f"needs {wanted.name}: set ${wanted.variable}"
    scratch = binary.parent / f"build-{os.getpid()}"
    scratch.mkdir(parents=True)
    # A module of its own: `go install` refuses programs whose module excludes or replaces others.
    (scratch / "go.mod").write_text(
        f"module scratch\ngo 1.24.0\nrequire {wanted.module} {wanted.version}\n"
    )
    try:
        built = subprocess.run(
            [compiler, "build", "-ldflags", "-s -w", "-o", wanted.name, wanted.package],
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
