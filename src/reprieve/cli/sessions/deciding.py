"""Which planes decide a what-if, and how the cluster is read for it: shared by the commands."""

from __future__ import annotations

import os
from typing import Any, Final

from reprieve.cli.run import operator_options, run
from reprieve.kube.resource import GPU_WORKLOADS
from reprieve.planes.common.process_settings import IDLE, QUOTA, SCHEDULING
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.snapshots.snapshot import Snapshot

__all__ = ["deciders_of", "installed_deciders"]

_PASSED_ON: Final = (
    "config_file",
    "scheduler_config",
    "quota_config",
    "feature_gates",
    "scheduling_profile",
    "quota_profile",
    "idle_profile",
)


def deciders_of(
    controllers: str | None, scheduler_names: tuple[str, ...], passed: dict[str, Any]
) -> Deciders:
    """Return the planes that are requested; where none is, all that can decide here.

    Raises:
        UsageError: a plane cannot decide here, or a setting is not accepted.
    """
    wanted = controllers or "idle,scheduling,quota"
    flags = run.make_context("run", ["--controllers", wanted]).params
    flags |= {name: passed[name] for name in _PASSED_ON if name in passed}
    flags["scheduler_names"] = scheduler_names
    return Deciders.of(operator_options(os.environ, **flags))


def installed_deciders(
    snapshot: Snapshot, scheduler_names: tuple[str, ...], passed: dict[str, Any]
) -> Deciders:
    """Return the planes at work: quota with Kueue's kinds, idle with a GpuWorkload, scheduling."""
    planes = [SCHEDULING]
    if snapshot.count(GPU_WORKLOADS.plural, GPU_WORKLOADS.group):
        planes.insert(0, IDLE)
    if snapshot.serves("kueue.x-k8s.io", "clusterqueues"):
        planes.append(QUOTA)
    return deciders_of(",".join(planes), scheduler_names, passed)
