"""What the process gives to every plane, and what each gives back: the operator's table of planes.

A plane's own `assembly` makes it from its surroundings; the process knows nothing else of a plane.
Source: the design's "Processes and time".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from kubeworld.units.clock import Clock
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.governor import Governor
from reprieve.execution.accounts.disruptions import Disruptions
from reprieve.execution.fence import Fence
from reprieve.execution.notices import Notices
from reprieve.intake.exposition import Exposition
from reprieve.kube.client import Client
from reprieve.kube.recording.events import EventRecorder
from reprieve.planes.common.disruptions.loop_notices import LoopNotices
from reprieve.planes.common.joint import Joint
from reprieve.planes.common.mirrors.mirror import Mirror
from reprieve.planes.common.process_settings import OperatorOptions, OperatorSettings
from reprieve.planes.common.solve import DecisionLimit
from reprieve.planes.common.until_answered import until_answered
from reprieve.planes.common.victim_orders import NO_ORDER, Ranking
from reprieve.settings.idle import Notice
from reprieve.telemetry.decision_log import DecisionLog
from reprieve.telemetry.metrics import Metrics
from reprieve.telemetry.probes import Check, Page

if TYPE_CHECKING:
    # It brings numpy, whose threads a process must not have before it forks.
    # Only with `--watch-others`.
    from reprieve.planes.common.disruptions.other_actors import OtherActors
    from reprieve.planes.common.mirrors.cluster_view import ClusterView

__all__ = [
    "Assembled",
    "Plane",
    "Runner",
    "Serving",
    "Stopped",
    "Surroundings",
    "report_of_events",
    "warn",
]

T = TypeVar("T")

log: Final = logging.getLogger("reprieve")


class Stopped(Exception):
    """The process was stopped before a plane knew what it has to know."""


class Plane(Protocol):
    """One plane of the operator."""

    name: str

    @property
    def ready(self) -> bool:
        """Whether everything that it needs was read."""
        ...

    def troubles(self) -> Sequence[str]:
        """Return one line for each kind that cannot be read."""
        ...

    def notice(self) -> str:
        """Return why the plane writes nothing; empty when it does."""
        ...

    async def synced(self) -> None:
        """Wait until everything that it needs was read."""
        ...

    async def run(self) -> None:
        """Work until cancelled."""
        ...


class Runner(Protocol):
    """What works beside the planes, whether the process leads or not."""

    async def run(self) -> None:
        """Work until cancelled."""
        ...


class Serving(Runner, Protocol):
    """What answers others, and ends the process when it cannot."""

    def checks(self) -> Iterator[Check]:
        """Yield what a probe shows."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a plane is made of. `wait_leading`: None where the process never leads.

    `mirror`: what all planes read of the API server.

    `view`: the cluster as a plane that was made before keeps it. `disruptions` notifies tenants of
    what became of their work, None where no tenant is notified; `notifier` sends it to their
    webhooks. `governor`: queried by all planes, which report to it. `loops`: names the members of
    loops. `others`: follows what other actors evict, where that is wanted. `decision_log`: None
    where none is written. `stepped`: when the wall clock was stepped last, monotonic. `measured`:
    what stands for the exporters of metrics, None where they are queried. `joint`: where planes
    register, and query each other. `notices`: units that are notified before they are evicted.
    """

    options: OperatorOptions
    settings: OperatorSettings
    client: Client
    clock: Clock
    metrics: Metrics
    events: EventRecorder
    fence: Fence
    identity: str
    decision_limit: DecisionLimit
    lagging: Callable[[], bool]
    stop: asyncio.Event
    mirror: Mirror
    wait_leading: Callable[[], Awaitable[None]] | None
    view: ClusterView | None = None
    disruptions: Disruptions | None = None
    notifier: Runner | None = None
    governor: Governor = field(default_factory=Governor)
    loops: LoopNotices | None = None
    others: OtherActors | None = None
    decision_log: DecisionLog | None = None
    measured: Callable[[], Exposition] | None = None
    stepped: Callable[[], Nanos | None] = lambda: None
    joint: Joint = field(default_factory=Joint)
    notices: Notices | None = None

    @property
    def namespace(self) -> str:
        """Where records and the lease are."""
        return self.settings.start.operator_namespace

    def common(self, ranking: Ranking = NO_ORDER) -> dict[str, Any]:
        """Return what every plane's context has (`PlaneContext`)."""
        return {
            "full_client": self.client,
            "clock": self.clock,
            "fence": self.fence,
            "events": self.events,
            "metrics": self.metrics,
            "lagging": self.lagging,
            "dry_run": self.options.dry_run,
            "decision_limit": self.decision_limit,
            "disruptions": self.disruptions,
            "governor": self.governor,
            "loops": self.loops,
            "decision_log": self.decision_log,
            "joint": self.joint,
            "notices": self.notices,
            "ranking": ranking,
            "shared": self.mirror,
        }

    async def answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the API server's answer, once there is one.

        Raises:
            Stopped: the process is to stop, and there was none.
        """

        def away(failure: Exception) -> None:
            log.warning("waiting for the API server: %s", failure)

        answer = await until_answered(ask, self.clock, self.stop, away)
        if answer is None:
            raise Stopped
        return answer


@dataclass(frozen=True, slots=True)
class Assembled:
    """A plane with what runs beside it. `view`: the cluster, which others may read."""

    plane: Plane
    runners: Sequence[Runner] = ()
    serving: Serving | None = None
    page: Callable[[str], Page] | None = None
    view: ClusterView | None = None


def report_of_events(trouble: Exception) -> None:
    """Report that events could not be written."""
    log.warning("events: %s", trouble)


def warn(notices: Iterable[Notice]) -> None:
    """Report what was set and is not as it seems."""
    for notice in notices:
        log.warning("%s is %r: %s", notice.where, notice.value, notice.text)
