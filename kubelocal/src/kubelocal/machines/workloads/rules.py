"""The controllers that need nothing but their owner, what it controls, and the time."""

from __future__ import annotations

from typing import Final

from kubelocal.machines.workloads import cronjobs
from kubelocal.machines.workloads.driver import Rule
from kubeworld.controllers import deployments, replica_sets, stateful_sets

__all__ = ["RULES"]

_REPLICA_SETS: Final = "replicasets.apps"

RULES: Final = (
    Rule("replicasets", _REPLICA_SETS, "ReplicaSet", "pods", replica_sets.step),
    Rule("deployments", "deployments.apps", "Deployment", _REPLICA_SETS, deployments.step),
    Rule("statefulsets", "statefulsets.apps", "StatefulSet", "pods", stateful_sets.step),
    Rule("cronjobs", "cronjobs.batch", "CronJob", "jobs.batch", cronjobs.step),
)
