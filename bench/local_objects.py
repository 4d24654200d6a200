"""Pods as clients send them, which the server keeps as 5.6 kB once they run."""

from __future__ import annotations

from typing import Any

from bench import made_on_request

__all__ = ["namespaces", "new_pod", "path_of", "running_status"]

NAMESPACES = 10
_TIMES = {"lastProbeTime": None, "lastTransitionTime": "2026-03-04T09:00:00Z"}


def namespaces() -> list[str]:
    return [f"team-{number:02}" for number in range(NAMESPACES)]


def path_of(index: int) -> str:
    return f"/api/v1/namespaces/team-{index % NAMESPACES:02}/pods/training-{index // 10}-{index}"


def new_pod(index: int) -> dict[str, Any]:
    """Return a pod as a Job controller creates it."""
    job = f"training-{index // 10}"
    uid = f"00000000-0000-4000-9000-{index // 10:012x}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{job}-{index}",
            "generateName": f"{job}-",
            "labels": {
                "app": "training",
                "batch.kubernetes.io/job-name": job,
                "batch.kubernetes.io/controller-uid": uid,
                "batch.kubernetes.io/job-completion-index": str(index % 10),
            },
            "annotations": {"team.example/contact": "training@example.com"},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": job,
                    "uid": uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "containers": [
                {
                    "name": "training",
                    "image": "registry.example/team/training:2026.03",
                    "command": ["python", "-m", "training"],
                    "env": [
                        {"name": f"OPTION_{number}", "value": f"value-{number}"}
                        for number in range(8)
                    ],
                    "resources": {
                        "requests": {"amd.com/gpu": "1", "cpu": "8", "memory": "64Gi"},
                        "limits": {"amd.com/gpu": "1", "memory": "64Gi"},
                    },
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{index}"}}],
            "nodeName": f"node-{index % 1250:05}",
            "restartPolicy": "Never",
        },
    }


def running_status(index: int) -> dict[str, Any]:
    """Return the patch that a kubelet sends when the pod's container has started."""
    image = "registry.example/team/training"
    return {
        "status": made_on_request.running_status(
            "training",
            f"{image}:2026.03",
            f"10.2.{index // 250 % 250}.{index % 250}",
            _TIMES,
            imageID=f"{image}@sha256:0123456789abcdef",
        )
    }
