"""The operator process: connect, lead, run the planes, and go when asked.

Order: settings, connection, operator namespace, telemetry, process lease, planes. A process that
loses its lease begins anew (`End.ANEW`: the program is executed again under the same process id),
so that whatever it still believed is gone; so does one with decisions that cannot be stopped.
SIGTERM and SIGINT stop the planes, release the lease and end the process within five seconds. A dry
run takes no lease at all. Only planes that run are loaded, since that is what a
start takes longest for. Source: the design's "Processes and time".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from reprieve.controllers.collector import freeze_records, relax_collector
from reprieve.controllers.lease_keeper import LeaseKeeper
from reprieve.controllers.lease_link import WantedLease
from reprieve.controllers.measured import CountedWire
from reprieve.controllers.metrics_access import metrics_protection
from reprieve.controllers.process_settings import (
    IDLE,
    OperatorOptions,
    OperatorSettings,
    operator_settings,
)
from reprieve.controllers.solve import DecisionLimit
from reprieve.controllers.suspects import Accused, Suspects
from reprieve.controllers.until_answered import until_answered
from reprieve.engine.plan import Plane as Decider
from reprieve.execution.fence import Deposed, Fence, Tenure
from reprieve.kube.bodies import Json
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.discovery import RestMapper
from reprieve.kube.errors import AlreadyExists, ApiError, NotFound
from reprieve.kube.events import EventRecorder
from reprieve.kube.resource import KAIWO_CONFIGS, NAMESPACES
from reprieve.kube.series_events import SeriesEvents
from reprieve.kube.transport import HttpWire
from reprieve.telemetry.faults import FaultCounter
from reprieve.telemetry.http import Check, Page, serve_telemetry
from reprieve.telemetry.log import level_of, start_logging
from reprieve.telemetry.loop_lag import LoopLag
from reprieve.telemetry.metrics import Metrics
from reprieve.units.clock import Clock
from reprieve.units.durations import SECOND
from reprieve.units.errors import UsageError
from reprieve.units.instants import Nanos

if TYPE_CHECKING:
    from reprieve.controllers.quota.live_configuration import LiveConfiguration
    from reprieve.controllers.scheduling.state import ClusterState
    from reprieve.controllers.webhook_process import ProcessWebhooks

__all__ = ["End", "OperatorOptions", "Plane", "run_operator"]

log: Final = logging.getLogger("reprieve")

LEASE_NAME: Final = "reprieve"
_FLUSH: Final = 1.0  # seconds that waiting events are given at the end
_STOP: Final = 3.0
_MOST_LAG: Final = SECOND


class End(Enum):
    """What becomes of a process whose run is over."""

    STOPPED = auto()
    ANEW = auto()  # it has to begin anew, with nothing of what it knew


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


@dataclass(frozen=True, slots=True)
class _Unled:
    """The tenure of a dry run: it holds nothing, so its fence never opens."""

    identity: str
    epoch: int = 0
    held_until: Nanos | None = None


async def run_operator(options: OperatorOptions, clock: Clock, keeper: LeaseKeeper | None) -> End:
    """Run until a signal or the loss of the lease; without a keeper it is a dry run.

    Raises:
        UsageError: a setting, the kubeconfig or the operator namespace cannot be used.
    """
    relax_collector()
    settings = operator_settings(options)
    handler = start_logging(options.log_format, clock, level_of(options.verbosity))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    metrics = Metrics()
    counter = FaultCounter(metrics.faults)
    logging.getLogger().addHandler(counter)
    connection = await load_connection(options.kubeconfig, options.context, clock)
    client = connect(connection, clock, wire=CountedWire(HttpWire(connection), metrics))
    try:
        return await _run(options, settings, client, clock, metrics, stop, keeper)
    finally:
        await client.close()
        logging.getLogger().removeHandler(handler)
        logging.getLogger().removeHandler(counter)


async def _run(
    options: OperatorOptions,
    settings: OperatorSettings,
    client: Client,
    clock: Clock,
    metrics: Metrics,
    stop: asyncio.Event,
    keeper: LeaseKeeper | None,
) -> End:
    start = settings.start
    for rejected in start.rejected:
        log.warning("%s is %r; accepted: %s", rejected.where, rejected.value, rejected.accepted)
    for notice in start.notices:
        log.warning("%s is %r: %s", notice.where, notice.value, notice.text)
    namespace = start.operator_namespace
    await _require_namespace(client, namespace)
    if settings.scheduling is not None and settings.installed is not None:
        from reprieve.controllers.scheduling.plugins import one_sided

        for notice in settings.scheduling.notices:
            log.warning("%s is %r: %s", notice.where, notice.value, notice.text)
        for profile, plugin in one_sided(settings.installed, settings.scheduling.policy):
            log.error(
                "profile %s: plugin %s has PostFilter but not PodGroupPostFilter, so that it does "
                "nothing for pod groups; for single pods only DefaultPreemption runs",
                profile,
                plugin,
            )

    def away(failure: Exception) -> None:
        log.warning("waiting for the API server: %s", failure)

    given = None
    if settings.quota is not None:
        from reprieve.controllers.quota.live_configuration import stored_settings

        stored = partial(stored_settings, client, settings.quota)
        given = await until_answered(stored, clock, stop, away)
        if given is None:
            return End.STOPPED
        for notice in given.settings.notices:
            log.warning("%s is %r: %s", notice.where, notice.value, notice.text)
    if IDLE in options.controllers and not options.dry_run:
        await _make_kaiwo_config(client)
    identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
    duration = options.lease_duration
    if keeper is not None:
        keeper.identity = identity
        keeper.changed = metrics.leader.set
        keeper.report = lambda level, text: log.log(level, "process lease: %s", text)
    tenure: Tenure = keeper or _Unled(identity)
    fence = Fence(tenure, clock, duration)
    lag = LoopLag(clock, metrics)

    broken: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def give_up(reason: str, accused: Sequence[Accused]) -> None:
        if not broken.done():
            if keeper is not None:
                keeper.accused = accused
            broken.set_result(reason)

    def count(suspect: Decider) -> None:
        metrics.decisions_stopped.labels(suspect.value, "ended").inc()

    limit = DecisionLimit(options.decision_limit, give_up, suspects=Suspects(clock, count))
    if keeper is not None:
        limit = replace(limit, noted=keeper.note)

    def lagging() -> bool:
        return lag.current > _MOST_LAG

    def report(trouble: Exception) -> None:
        log.warning("events: %s", trouble)

    planes: list[Plane] = []
    webhooks: ProcessWebhooks | None = None
    pages: Callable[[str], Page] | None = None
    nodes: ClusterState | None = None
    recorders: list[EventRecorder | SeriesEvents] = []
    runners: list[LiveConfiguration] = []
    if IDLE in options.controllers:
        from reprieve.controllers.idle.context import IdleContext
        from reprieve.controllers.idle.plane import IdlePlane
        from reprieve.controllers.idle.provable import with_provable_fit
        from reprieve.wording.kaiwo import COMPONENT

        fitting = partial(with_provable_fit, client, start)
        proven = await until_answered(fitting, clock, stop, away)
        if proven is None:
            return End.STOPPED
        events = EventRecorder(client, clock, component=COMPONENT, instance=identity, report=report)
        recorders.append(events)
        idle = IdleContext(
            client=client,
            mapper=RestMapper(client, clock),
            clock=clock,
            fence=fence,
            events=events,
            metrics=metrics,
            start=proven,
            lagging=lagging,
            decision_limit=limit,
            dry_run=options.dry_run,
        )
        planes.append(IdlePlane(idle, namespace))
    if settings.scheduling is not None:
        from reprieve.controllers.scheduling.context import SchedulingContext
        from reprieve.controllers.scheduling.plane import SchedulingPlane
        from reprieve.telemetry.scheduling import SchedulingMetrics

        series = SeriesEvents(client, clock, instance=identity, report=report)
        recorders.append(series)
        scheduling = SchedulingContext(
            client=client,
            clock=clock,
            fence=fence,
            events=series,
            metrics=metrics,
            scheduler_metrics=SchedulingMetrics(metrics.registry),
            settings=settings.scheduling,
            plugins=settings.plugins,
            scorers=settings.scorers,
            lagging=lagging,
            dry_run=options.dry_run,
            shared_nodes=options.shared_nodes,
            decision_limit=limit,
        )
        plane = SchedulingPlane(scheduling, namespace)
        planes.append(plane)
        pages, nodes = plane.gangs.page, plane.state
    if given is not None:
        from reprieve.controllers.quota.context import QuotaContext, QuotaOptions
        from reprieve.controllers.quota.live_configuration import LiveConfiguration
        from reprieve.controllers.quota.plane import QuotaPlane
        from reprieve.controllers.webhook_process import ProcessWebhooks
        from reprieve.telemetry.quota import QuotaMetrics

        told = SeriesEvents(client, clock, instance=identity, report=report)
        recorders.append(told)
        quota = QuotaContext(
            client=client,
            clock=clock,
            fence=fence,
            events=told,
            metrics=metrics,
            quota_metrics=QuotaMetrics(
                metrics.registry,
                local_queues=given.settings.configuration.local_queue_metrics,
            ),
            options=QuotaOptions.of(given.settings),
            decision_limit=limit,
            lagging=lagging,
            dry_run=options.dry_run,
        )
        quota_plane = QuotaPlane(quota, namespace, nodes)
        planes.append(quota_plane)
        if given.content is not None:
            runners.append(LiveConfiguration(quota, given, quota_plane.take))
        if keeper is not None and given.settings.serves_webhooks:
            webhooks = ProcessWebhooks(quota_plane, given.settings, namespace, keeper.wait_leading)

    def healthy() -> Iterator[Check]:
        yield Check("loop", passed=True)

    def ready() -> Iterator[Check]:
        # A standby is ready: it would lead within one lease duration.
        standing_by = keeper is not None and not keeper.leading
        for plane in planes:
            passed = plane.ready or standing_by
            detail = "" if passed else "the caches are not synced"
            yield Check(plane.name, passed=passed, detail=detail)
            for trouble in plane.troubles():
                yield Check("watch", passed=False, detail=trouble)
            if plane.notice():
                yield Check("alone", passed=False, detail=plane.notice(), required=False)
        if webhooks is not None:
            yield from webhooks.checks()

    async with serve_telemetry(
        metrics.registry,
        healthy,
        ready,
        options.metrics_port,
        options.metrics_host,
        pages,
        metrics_protection(client, clock) if options.metrics_auth else None,
    ) as port:
        log.info("operator %s, namespace %s, telemetry on port %d", identity, namespace, port)
        background = [asyncio.create_task(each.run()) for each in (*recorders, lag, *runners)]
        serving = None if webhooks is None else asyncio.create_task(webhooks.run())
        background += [] if serving is None else [serving]
        try:
            lease = WantedLease(namespace, LEASE_NAME, identity, duration, options.longest_silence)
            return await _lead(planes, keeper, lease, limit.suspects, stop, serving, broken)
        finally:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    asyncio.gather(*(recorder.flush() for recorder in recorders)), _FLUSH
                )
            await _end(background)


async def _lead(
    planes: Sequence[Plane],
    keeper: LeaseKeeper | None,
    lease: WantedLease,
    suspects: Suspects,
    stop: asyncio.Event,
    serving: asyncio.Task[None] | None,
    broken: asyncio.Future[str],
) -> End:
    aside = [] if serving is None else [serving]
    stopped = asyncio.create_task(stop.wait())
    lost: asyncio.Task[object] = asyncio.create_task(
        asyncio.Event().wait() if keeper is None else keeper.wait_lost()
    )
    tasks: list[asyncio.Task[object]] = [lost]
    try:
        if keeper is None:
            log.info("dry run: nothing is marked or evicted, no lease is taken")
        else:
            tasks.append(asyncio.create_task(keeper.run(lease)))
            leading = asyncio.create_task(keeper.wait_leading())
            tasks.append(leading)
            await _first(stopped, leading, lost, *aside)
            if not leading.done():
                return await _ended(stopped, lost, aside)
            log.info("leading, epoch %d", keeper.epoch)
            suspects.take(keeper.suspects)
        work = asyncio.create_task(_work(planes))
        tasks.insert(0, work)
        await _first(stopped, lost, work, broken, *aside)
        if stopped.done() or any(each.done() for each in aside):
            return await _ended(stopped, lost, aside)
        if broken.done():
            log.error("%s: this process begins anew", broken.result())
            return End.ANEW
        if work.done():
            work.result()
        return await _ended(stopped, lost, aside)
    finally:
        stopped.cancel()
        await _end(tasks[:1])
        if keeper is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(keeper.stop(), _STOP)
        await _end(tasks)


async def _ended(
    stopped: asyncio.Task[bool], lost: asyncio.Task[object], aside: Sequence[asyncio.Task[None]]
) -> End:
    """Return what becomes of a process that leads no more, or raise what ended it."""
    if stopped.done():
        log.info("stopping")
        return End.STOPPED
    for each in aside:
        if each.done():
            each.result()
            log.info("stopping")
            return End.STOPPED
    log.error("the process lease is lost: this process begins anew, as a candidate")
    return End.ANEW


async def _work(planes: Sequence[Plane]) -> None:
    freezer = asyncio.create_task(_freeze(planes))
    try:
        async with asyncio.TaskGroup() as group:
            for plane in planes:
                group.create_task(plane.run())
    except* Deposed as deposed:
        log.error("%s", _first_of(deposed))
    finally:
        freezer.cancel()


def _first_of(group: BaseExceptionGroup[Deposed]) -> BaseException:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


async def _freeze(planes: Sequence[Plane]) -> None:
    for plane in planes:
        await plane.synced()
    freeze_records()


async def _first(
    *tasks: asyncio.Task[object] | asyncio.Task[None] | asyncio.Task[bool] | asyncio.Future[str],
) -> None:
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


async def _end(tasks: list[asyncio.Task[object]] | list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _require_namespace(client: Client, namespace: str) -> None:
    try:
        _: Json = await client.get(NAMESPACES, "", namespace, dict)
    except NotFound:
        raise UsageError(
            f"the operator namespace {namespace!r} does not exist; create it, or name another in "
            "GPU_PREEMPTION_OPERATOR_NAMESPACE"
        ) from None
    except ApiError as failure:
        # Without the right to read namespaces the lease will tell whether it is there.
        log.warning("operator namespace %s: %s", namespace, failure)


async def _make_kaiwo_config(client: Client) -> None:
    """Create the empty KaiwoConfig that users expect to find; without it defaults are in force."""
    try:
        _: Json = await client.create(KAIWO_CONFIGS, {"metadata": {"name": "kaiwo"}}, dict)
    except AlreadyExists:
        return
    except ApiError as failure:
        log.warning("KaiwoConfig kaiwo cannot be created: %s", failure)
