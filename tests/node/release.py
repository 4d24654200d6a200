"""The chart on real nodes, and work that saves when it is told to end."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from tests import with_parent
from tests.chart.go_tools import HELM, tool
from tests.chart.helm import CHART
from tests.node.cluster import EXPORTER, GPU, SMALL, Cluster
from tests.node.machine import NAME

__all__ = ["NAMESPACE", "VALUES", "Release", "Version", "Worker", "deaf", "job", "pod_spec"]

NAMESPACE = "reprieve"
Object = dict[str, Any]


@dataclass(frozen=True)
class Version:
    """A chart, and the image that it installs, by its name on the nodes."""

    chart: Path = CHART
    image: str = NAME


@dataclass
class Release:
    """The release `reprieve`, with all planes unless its values are others."""

    cluster: Cluster
    values: Object = field(default_factory=lambda: VALUES)

    def helm(
        self, verb: str, *arguments: str, version: Version | None = None, **values: Any
    ) -> str:
        """Run Helm on the release, with the chart of a version; return what it prints.

        Raises:
            RuntimeError: Helm ended with an error.
        """
        chosen: list[str] = []
        if verb in ("install", "upgrade"):
            file = self.cluster.folder / "values.yaml"
            version = version or Version()
            repository, _, tag = version.image.rpartition(":")
            image = {"repository": repository, "tag": tag, "pullPolicy": "Never"}
            file.write_text(yaml.safe_dump({**self.values, "image": image, **values}))
            chosen = [str(version.chart), "-f", str(file)]
        place = str(self.cluster.folder / "helm")
        home = {f"HELM_{each}_HOME": place for each in ("CACHE", "CONFIG", "DATA")}
        done = subprocess.run(
            [str(tool(HELM)), verb, "reprieve", *chosen, "--namespace", NAMESPACE, *arguments],
            env={**os.environ, **home, "KUBECONFIG": str(self.cluster.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr + done.stdout)
        return done.stdout + done.stderr

    def pod(self) -> Object:
        """Return the operator's only pod."""
        selector = "app.kubernetes.io/name=reprieve"
        (found,) = self.cluster.get("pods", "-n", NAMESPACE, "-l", selector)["items"]
        return dict(found)

    def holder(self) -> str:
        """Return who holds the lease, empty for nobody."""
        lease = self.cluster.get("lease", "reprieve", "-n", NAMESPACE)
        return str(lease["spec"].get("holderIdentity") or "")

    def log(self, *arguments: str) -> str:
        """Return the operator's log."""
        return self.cluster.kubectl("logs", "deploy/reprieve", "-n", NAMESPACE, *arguments)


class Worker:
    """Follows what a pod prints, to its end, also where the pod is deleted."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self._file: Path = cluster.folder / f"{namespace}-{name}.log"
        with self._file.open("wb") as log:
            self._process = subprocess.Popen(
                with_parent.program(
                    *(str(cluster.kubectl_program), "--kubeconfig", str(cluster.kubeconfig)),
                    *("logs", "--follow", "-n", namespace, name),
                ),
                stdout=log,
                stderr=subprocess.DEVNULL,
            )

    def said(self) -> list[str]:
        """Return what it printed, once it has ended."""
        self._process.wait(timeout=240)
        # A kubelet that finds no container any more ends the log with a line of its own.
        return [line for line in self._file.read_text().splitlines() if line in SAID]


SAID: Final = ("works", "hook", "TERM", "saved")


def pod_spec(gpus: int, *, saves: int = 3, grace: int = 60, **spec: Any) -> Object:
    """Return a pod that says `TERM` when it is told to end, saves for seconds, and says so."""
    program = (
        f"end() {{ echo TERM; sleep {saves}; echo saved; exit 0; }}; trap end TERM; "
        "echo works; while true; do sleep 1; done"
    )
    container = {
        "name": "main",
        "image": SMALL,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", program],
        "resources": {"limits": {GPU: gpus}},
    }
    return {"terminationGracePeriodSeconds": grace, "containers": [container], **spec}


def deaf(spec: Object) -> Object:
    """Return such a pod that ignores what it is told, and has a hook that runs before that."""
    (container,) = spec["containers"]
    program = "trap '' TERM; echo works; while true; do sleep 1; done"
    hook = {"exec": {"command": ["sh", "-c", "echo hook > /proc/1/fd/1"]}}
    changed = {"command": ["sh", "-c", program], "lifecycle": {"preStop": hook}}
    return {**spec, "containers": [{**container, **changed}]}


def job(name: str, namespace: str, gpus: int, *, queue: str = "", **facts: Any) -> Object:
    """Return a Job of one such pod, queued where a queue is named."""
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"template": {"spec": pod_spec(gpus, restartPolicy="Never", **facts)}},
    }


VALUES: Final[Object] = {
    "controllers": ["idle", "scheduling", "quota"],
    "gpuPreemption": {
        "enabled": True,
        "metricsEndpoint": EXPORTER,
        "pollingInterval": "5s",
        "defaultGracePeriod": "10s",
    },
    "scheduling": {
        "schedulerNames": ["reprieve-scheduler"],
        "featureGates": {
            "GenericWorkload": True,
            "PodGroupPreemptionPolicy": True,
            "TopologyAwareWorkloadScheduling": True,
        },
    },
}
