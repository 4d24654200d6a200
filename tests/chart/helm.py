"""Finds or builds Helm, and renders the chart with it.

`$HELM` names a binary; else one is built once through the Go module proxy and kept in the user's
cache folder. Where neither is possible `helm_binary` says why, and the tests skip with that text.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

VERSION: Final = "v3.18.6"
ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "charts" / "reprieve"
_BUILD_TIMEOUT_S: Final = 900


class HelmMissing(Exception):
    """There is no Helm, and it cannot be built here."""


class RenderingFailed(Exception):
    """Helm refused the chart or the values; the text is Helm's."""


@cache
def helm_binary() -> Path:
    """Return the path of Helm.

    Raises:
        HelmMissing: `$HELM` is not set, and Go is absent or the build fails.
    """
    named = os.environ.get("HELM")
    if named:
        return Path(named)
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "reprieve" / f"helm-{VERSION}"
    binary = folder / "helm"
    if binary.exists():
        return binary
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not Path(go).exists():
        raise HelmMissing("needs Helm: set $HELM, or install Go to build it")
    return _build(go, binary)


def _build(go: str, binary: Path) -> Path:
    scratch = binary.parent / f"build-{os.getpid()}"
    try:
        built = subprocess.run(
            [go, "install", f"helm.sh/helm/v3/cmd/helm@{VERSION}"],
            env={**os.environ, "GOBIN": str(scratch), "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
            timeout=_BUILD_TIMEOUT_S,
            check=False,
        )
        if built.returncode != 0:
            raise HelmMissing("needs Helm: set $HELM; building it through the Go proxy failed")
        (scratch / "helm").replace(binary)
    except subprocess.TimeoutExpired:
        raise HelmMissing("needs Helm: set $HELM; building it took too long") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return binary


@dataclass(frozen=True, slots=True)
class Rendered:
    """The objects of one rendering."""

    objects: tuple[dict[str, Any], ...]

    def all(self, kind: str) -> list[dict[str, Any]]:
        """Return the objects of `kind`, in order."""
        return [one for one in self.objects if one["kind"] == kind]

    def one(self, kind: str) -> dict[str, Any]:
        """Return the only object of `kind`."""
        (found,) = self.all(kind)
        return found

    @property
    def container(self) -> dict[str, Any]:
        """Return the operator's container."""
        (found,) = self.one("Deployment")["spec"]["template"]["spec"]["containers"]
        return dict(found)

    @property
    def environment(self) -> dict[str, str]:
        """Return the container's variables that have a literal value."""
        return {v["name"]: v["value"] for v in self.container.get("env", []) if "value" in v}

    @property
    def configuration(self) -> Any:
        """Return the configuration file."""
        return yaml.safe_load(self.one("ConfigMap")["data"]["config.yaml"])


def run_helm(*arguments: str) -> str:
    """Return what Helm prints.

    Raises:
        RenderingFailed: Helm ended with an error.
    """
    done = subprocess.run(
        [str(helm_binary()), *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        raise RenderingFailed(done.stderr + done.stdout)
    return done.stdout


def render(folder: Path, values: dict[str, Any] | None = None, *files: Path) -> Rendered:
    """Render the chart as release `r` in namespace `ops`; `folder` takes the values file."""
    written = folder / "values.yaml"
    written.write_text(yaml.safe_dump(values or {}))
    chosen = [argument for file in (*files, written) for argument in ("-f", str(file))]
    text = run_helm("template", "r", str(CHART), "--namespace", "ops", *chosen)
    return Rendered(tuple(one for one in yaml.safe_load_all(text) if one))
