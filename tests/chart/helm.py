"""Renders the chart with Helm."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.chart.go_tools import HELM, tool

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "charts" / "reprieve"
KUBERNETES: Final = "1.37.1"


class RenderingFailed(Exception):
    """Helm refused the chart or the values; the text is Helm's."""


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
    if arguments[0] == "template" and "--kube-version" not in arguments:
        # A Helm that was built here takes the cluster for one of 1.20 else.
        arguments += ("--kube-version", KUBERNETES)
    done = subprocess.run(
        [str(tool(HELM)), *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        raise RenderingFailed(done.stderr + done.stdout)
    return done.stdout


def render(
    folder: Path, values: dict[str, Any] | None = None, *files: Path, namespace: str = "ops"
) -> Rendered:
    """Render the chart as release `r` in a namespace; `folder` takes the values file."""
    return installed(render_text(folder, values, *files, namespace=namespace))


def installed(text: str) -> Rendered:
    """Return what a release consists of while it is installed: not what its removal makes."""
    return Rendered(tuple(one for one in yaml.safe_load_all(text) if one and not _of_removal(one)))


def removal(text: str) -> Rendered:
    """Return what exists during the removal of a release alone."""
    return Rendered(tuple(one for one in yaml.safe_load_all(text) if one and _of_removal(one)))


def _of_removal(one: dict[str, Any]) -> bool:
    return (one["metadata"].get("annotations") or {}).get("helm.sh/hook") == "pre-delete"


def render_text(
    folder: Path, values: dict[str, Any] | None = None, *files: Path, namespace: str = "ops"
) -> str:
    """Return what `render` reads, as Helm prints it."""
    written = folder / "values.yaml"
    written.write_text(yaml.safe_dump(values or {}))
    chosen = [argument for file in (*files, written) for argument in ("-f", str(file))]
    return run_helm("template", "r", str(CHART), "--namespace", namespace, *chosen)
