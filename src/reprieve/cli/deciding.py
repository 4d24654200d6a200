"""Which planes decide a what-if, and how the cluster is read for it: shared by the commands."""

from __future__ import annotations

import os
from typing import Any

from reprieve.cli.run import operator_options, run
from reprieve.kube.client import Client
from reprieve.kube.credentials import Connection
from reprieve.kube.transport import HttpWire, Transport
from reprieve.units.clock import Clock
from reprieve.units.errors import UsageError
from reprieve.whatif.run import Deciders
from reprieve.whatif.snapshot import Snapshot
from reprieve.whatif.wire import ReadingWire

__all__ = ["deciders_of", "installed_deciders", "reading_client"]

_PASSED_ON = ("config_file", "scheduler_config", "quota_config", "feature_gates")


def reading_client(connection: Connection, clock: Clock) -> Client:
    """Return a client that cannot write."""
    return Client(Transport(ReadingWire(HttpWire(connection)), clock))


def deciders_of(
    controllers: str | None, scheduler_names: tuple[str, ...], passed: dict[str, Any]
) -> Deciders:
    """Return the planes that are asked for; where none is, all that can decide here.

    Raises:
        UsageError: a plane cannot decide here, or a setting is not accepted.
    """
    wanted = controllers or "scheduling,quota"
    if "idle" in wanted.split(","):
        raise UsageError(
            "--controllers: idle decides by measurements, which are not read here; accepted: "
            "scheduling, quota"
        )
    flags = run.make_context("run", ["--controllers", wanted]).params
    flags |= {name: passed[name] for name in _PASSED_ON if name in passed}
    flags["scheduler_names"] = scheduler_names
    return Deciders.of(operator_options(os.environ, **flags))


def installed_deciders(
    snapshot: Snapshot, scheduler_names: tuple[str, ...], passed: dict[str, Any]
) -> Deciders:
    """Return the planes whose kinds are served: quota with Kueue's, scheduling always."""
    quota = snapshot.serves("kueue.x-k8s.io", "clusterqueues")
    return deciders_of("scheduling,quota" if quota else "scheduling", scheduler_names, passed)
