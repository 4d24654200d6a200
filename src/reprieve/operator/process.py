"""The operator process: connect, lead, run the planes of its table, and end on request.

Order: settings, connection, operator namespace, planes, telemetry, process lease. A process that
loses its lease begins anew (`End.ANEW`: the program is executed again under the same process id),
so that all it still believed is dropped; so does one with decisions that cannot be stopped.
SIGTERM and SIGINT stop the planes, release the lease and end the process within five seconds. A dry
run acquires no lease at all. Only planes that run are loaded, since that is the slowest part of a
start. Source: the design's "Processes and time".
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.plan import Plane as Decider
from reprieve.execution.accounts.disruptions import Disruptions
from reprieve.execution.accounts.harm_ledger import HarmLedger
from reprieve.execution.accounts.harm_refusals import HarmRefusals
from reprieve.execution.accounts.harm_store import HarmSite
from reprieve.execution.accounts.notice_files import NoticeFiles
from reprieve.execution.accounts.notice_objects import PreemptionNotices
from reprieve.execution.fence import Fence
from reprieve.execution.notices import Notices
from reprieve.kube.bodies import Json
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import ApiError, NotFound
from reprieve.kube.recording.events import EventRecorder
from reprieve.kube.resource import NAMESPACES
from reprieve.kube.transport import HttpWire
from reprieve.operator.collector import await_records
from reprieve.operator.counted_wire import CountedWire
from reprieve.operator.dated_wire import DatedWire
from reprieve.operator.leading import End, end, lead
from reprieve.operator.lease_keeper import LeaseKeeper
from reprieve.operator.lease_link import WantedLease
from reprieve.operator.metrics_access import metrics_protection
from reprieve.operator.notice_desk import notice_desk
from reprieve.operator.planes import PLANES
from reprieve.planes.common.assembly import (
    Assembled,
    Plane,
    Runner,
    Stopped,
    Surroundings,
    report_of_events,
    warn,
)
from reprieve.planes.common.disruptions.harm_budgets import HarmBudgets
from reprieve.planes.common.disruptions.harm_statuses import HarmStatuses
from reprieve.planes.common.disruptions.loop_notices import LoopNotices
from reprieve.planes.common.joint import Joint
from reprieve.planes.common.mirrors.mirror import Mirror
from reprieve.planes.common.other_processes import OtherProcesses
from reprieve.planes.common.process_settings import (
    QUOTA,
    OperatorOptions,
    OperatorSettings,
    operator_settings,
)
from reprieve.planes.common.solve import DecisionLimit
from reprieve.planes.common.suspects import Accused, Suspects
from reprieve.telemetry.decision_log import DecisionLog, decision_log
from reprieve.telemetry.faults import FaultCounter
from reprieve.telemetry.http import serve_telemetry
from reprieve.telemetry.log import level_of, start_logging
from reprieve.telemetry.loop_lag import LoopLag
from reprieve.telemetry.metrics import Metrics, Remembered
from reprieve.telemetry.probes import Check
from reprieve.units.errors import UsageError
from reprieve.units.steady_clock import SteadyClock

if TYPE_CHECKING:
    from reprieve.notifications.notifier import Notifier
    from reprieve.planes.common.disruptions.other_actors import OtherActors

__all__ = ["End", "OperatorOptions", "run_operator"]

log: Final = logging.getLogger("reprieve")

LEASE_NAME: Final = "reprieve"
_FLUSH: Final = 1.0  # seconds that waiting events are given at the end
_MOST_LAG: Final = SECOND


@dataclass(frozen=True, slots=True)
class _Unled:
    """The tenure of a dry run: it holds nothing, so its fence never opens."""

    identity: str
    epoch: int = 0
    held_until: Nanos | None = None


async def run_operator(options: OperatorOptions, clock: Clock, keeper: LeaseKeeper | None) -> End:
    """Run until a signal or the loss of the lease; without a keeper it is a dry run.

    Raises:
        UsageError: a setting, the kubeconfig or the operator namespace cannot be used, or the
            decision log cannot be written.
    """
    await_records()
    settings = operator_settings(options)
    metrics = Metrics(options.named_series)
    steady = SteadyClock(clock)
    with decision_log(options.decision_log, steady, metrics) as reported:
        return await _connected(options, settings, steady, metrics, keeper, reported)


async def _connected(
    options: OperatorOptions,
    settings: OperatorSettings,
    clock: SteadyClock,
    metrics: Metrics,
    keeper: LeaseKeeper | None,
    reported: DecisionLog | None,
) -> End:
    handler = start_logging(options.log_format, clock, level_of(options.verbosity))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    counter = FaultCounter(metrics.faults)
    logging.getLogger().addHandler(counter)
    connection = await load_connection(options.kubeconfig, options.context, clock)
    wire = DatedWire(CountedWire(HttpWire(connection), metrics), clock, clock.server_at)
    client = connect(connection, clock, wire=wire)
    try:
        return await _run(options, settings, client, clock, metrics, stop, keeper, reported)
    except Stopped:
        return End.STOPPED
    finally:
        await client.close()
        logging.getLogger().removeHandler(handler)
        logging.getLogger().removeHandler(counter)


async def _run(
    options: OperatorOptions,
    settings: OperatorSettings,
    client: Client,
    clock: SteadyClock,
    metrics: Metrics,
    stop: asyncio.Event,
    keeper: LeaseKeeper | None,
    reported: DecisionLog | None,
) -> End:
    for rejected in settings.start.rejected:
        log.warning("%s is %r; accepted: %s", rejected.where, rejected.value, rejected.accepted)
    warn(settings.start.notices)
    namespace = settings.start.operator_namespace
    await _require_namespace(client, namespace)
    lag = LoopLag(clock, metrics)
    broken: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    limit = _decision_limit(options, clock, metrics, keeper, broken)
    identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
    if keeper is not None:
        keeper.identity = identity
        keeper.changed = metrics.leader.set
        keeper.report = lambda level, text: log.log(level, "process lease: %s", text)
    fence = Fence(keeper or _Unled(identity), clock, options.lease_duration)
    events = EventRecorder(client, clock, instance=identity, report=report_of_events)
    governor = Governor(settings.governor, threading.RLock())
    notifier = _notifier(settings, client, clock, metrics, events)
    notify = None if notifier is None else notifier.offer
    disruptions = Disruptions(
        client, namespace, fence, clock, metrics, events, settings.governor, notify
    )
    _show_remembered(metrics, governor, events)
    mirror = Mirror(client, clock)
    others = _others(options, client, mirror, clock, governor, disruptions)
    given = Surroundings(
        options=options,
        settings=settings,
        client=client,
        clock=clock,
        metrics=metrics,
        events=events,
        fence=fence,
        disruptions=disruptions,
        governor=governor,
        loops=LoopNotices(governor, metrics, events, disruptions, lambda: fence.open),
        others=others,
        notifier=notifier,
        decision_log=reported,
        identity=identity,
        decision_limit=limit,
        lagging=lambda: lag.current > _MOST_LAG,
        stepped=lambda: clock.stepped,
        stop=stop,
        mirror=mirror,
        wait_leading=None if keeper is None else keeper.wait_leading,
        joint=Joint(elsewhere=_elsewhere(options, mirror, namespace, metrics)),
        notices=Notices(clock, metrics),
    )
    return await _served(given, await _assembled(given), keeper, lag, broken)


async def _served(
    given: Surroundings,
    made: Sequence[Assembled],
    keeper: LeaseKeeper | None,
    lag: LoopLag,
    broken: asyncio.Future[str],
) -> End:
    """Answer, lead, and run the planes until the end."""
    options, client, clock, events = given.options, given.client, given.clock, given.events
    namespace, identity = given.settings.start.operator_namespace, given.identity
    serving = next((each.serving for each in made if each.serving is not None), None)
    harm = HarmBudgets(given.governor, client, given.mirror, clock)
    async with (
        serve_telemetry(
            given.metrics.registry,
            lambda: iter((Check("loop", passed=True),)),
            lambda: _ready(made, keeper, harm),
            options.metrics_port,
            options.metrics_host,
            next((each.page for each in made if each.page is not None), None),
            metrics_protection(client, clock) if options.metrics_auth else None,
        ) as port,
        notice_desk(given, LEASE_NAME) as noted,
    ):
        log.info("operator %s, namespace %s, telemetry on port %d", identity, namespace, port)
        runners = [runner for each in made for runner in each.runners]
        if given.others is not None:
            given.others.decides = lambda: any(_decides_about_quota(each.plane) for each in made)
            runners.append(given.others)
        if given.joint.elsewhere is not None:
            runners.append(given.joint.elsewhere)
        if given.disruptions is not None:
            runners.insert(0, given.disruptions)
        if given.notifier is not None:
            runners.append(given.notifier)
        if given.notices is not None and given.disruptions is not None and _reports(given):
            reported = given.disruptions.preemptor_of
            runners.append(
                PreemptionNotices(given.notices, client, given.fence, clock, events, reported)
            )
            if options.notice_files and not options.dry_run:
                runners.append(NoticeFiles(given.notices, client, given.fence, clock))
            runners += _responder(given, given.notices)
        beside: list[Runner] = [events, lag, harm, *_keepers_of_harm(given, harm), *runners]
        background = [asyncio.create_task(each.run()) for each in beside]
        answering = None if serving is None else asyncio.create_task(serving.run())
        background += [] if answering is None else [answering]
        try:
            times = options.lease_duration, options.longest_silence
            lease = WantedLease(namespace, LEASE_NAME, identity, *times, noted)
            planes = [each.plane for each in made]
            suspects = given.decision_limit.suspects
            return await lead(planes, keeper, lease, suspects, given.stop, answering, broken)
        finally:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(events.flush(), _FLUSH)
            await end(background)


def _keepers_of_harm(given: Surroundings, harm: HarmBudgets) -> list[Runner]:
    """Return who stores what was displaced, what is refused, and the status of budgets."""
    client, clock, fence, governor = given.client, given.clock, given.fence, given.governor
    namespace = given.settings.start.operator_namespace
    site = HarmSite(client, namespace, fence, clock, governor, given.wait_leading)
    ledger, refusals = HarmLedger(site), HarmRefusals(site)
    governor.harm.known = lambda: harm.known and ledger.loaded and refusals.loaded
    if given.disruptions is not None:
        given.disruptions.returns.returned = ledger.returned
    statuses = HarmStatuses(harm, governor, client, fence, clock, given.metrics)
    return [ledger, refusals, statuses]


def _reports(given: Surroundings) -> bool:
    """Whether victims get notice in any plane of the process."""
    settings = given.settings
    of_quota = {} if settings.quota is None else settings.quota.section or {}
    of_scheduling = settings.scheduling is not None and settings.scheduling.notice.most
    in_planes = settings.start.notice.most or of_scheduling or of_quota.get("notice")
    return bool(in_planes or given.options.eviction_notice)


def _responder(given: Surroundings, notices: Notices) -> list[Runner]:
    """Return who answers evictions that others request, where that is wanted."""
    options = given.options
    if not options.eviction_notice or options.dry_run:
        return []
    # Here, since most operators answer none.
    from reprieve.execution.evictions.responder import EvictionResponder

    most = options.eviction_notice
    return [EvictionResponder(notices, given.client, given.fence, given.clock, most)]


def _others(
    options: OperatorOptions,
    client: Client,
    mirror: Mirror,
    clock: Clock,
    governor: Governor,
    disruptions: Disruptions,
) -> OtherActors | None:
    """Return who follows what other actors evict; None where that is not wanted."""
    if not options.watch_others:
        return None
    # Here, since it brings what is known of Kueue, which most operators do not request.
    from reprieve.planes.common.disruptions.other_actors import OtherActors

    return OtherActors(client, mirror, clock, governor, disruptions.note)


def _elsewhere(
    options: OperatorOptions, mirror: Mirror, namespace: str, metrics: Metrics
) -> OtherProcesses | None:
    """Return who follows the records of other processes; None where all planes run in this one."""
    if PLANES.keys() <= set(options.controllers):
        return None

    def restarted(kind: str, why: str) -> None:
        metrics.watch_restarts.labels(kind, why).inc()

    return OtherProcesses(mirror, namespace, options.controllers, restarted)


def _notifier(
    settings: OperatorSettings,
    client: Client,
    clock: Clock,
    metrics: Metrics,
    events: EventRecorder,
) -> Notifier | None:
    """Return who sends messages to webhooks; None where none may be called."""
    if settings.notify is None:
        return None
    # Here, since most operators call none.
    from reprieve.notifications.notifier import Notifier

    source = f"/reprieve/{settings.start.operator_namespace}"
    return Notifier(client, settings.notify, clock, metrics, events, source=source)


def _show_remembered(metrics: Metrics, governor: Governor, events: EventRecorder) -> None:
    """Show what is remembered for all planes together."""
    metrics.remembers(Remembered.DISPLACEMENTS, lambda: governor.remembers[0])
    metrics.remembers(Remembered.LINES_DISPLACED, lambda: governor.remembers[1])
    metrics.remembers(Remembered.WAITING_EVENTS, lambda: events.remembers[0])
    metrics.remembers(Remembered.EVENT_SERIES, lambda: events.remembers[1])


async def _assembled(given: Surroundings) -> list[Assembled]:
    """Return the planes that are wanted, in the order of the table."""
    made = []
    for name, module in PLANES.items():
        if name in given.options.controllers:
            made.append(await importlib.import_module(module).assemble(given))
            given = replace(given, view=made[-1].view or given.view)
    return made


def _ready(
    made: Sequence[Assembled], keeper: LeaseKeeper | None, harm: HarmBudgets
) -> Iterator[Check]:
    """Yield what the readiness probe shows; a standby is ready: it would lead within one lease."""
    standing_by = keeper is not None and not keeper.leading
    for plane in (each.plane for each in made):
        passed = plane.ready or standing_by
        detail = "" if passed else "the caches are not synced"
        yield Check(plane.name, passed=passed, detail=detail)
        for trouble in plane.troubles():
            yield Check("watch", passed=False, detail=trouble)
        if plane.notice():
            yield Check("alone", passed=False, detail=plane.notice(), required=False)
    for trouble in harm.troubles():
        yield Check("watch", passed=False, detail=trouble)
    for each in made:
        if each.serving is not None:
            yield from each.serving.checks()


def _decides_about_quota(plane: Plane) -> bool:
    return plane.name == QUOTA and not plane.notice()


def _decision_limit(
    options: OperatorOptions,
    clock: Clock,
    metrics: Metrics,
    keeper: LeaseKeeper | None,
    broken: asyncio.Future[str],
) -> DecisionLimit:
    """Return the limit of the process' one solver; `broken` states why it cannot continue."""

    def give_up(reason: str, accused: Sequence[Accused]) -> None:
        if not broken.done():
            if keeper is not None:
                keeper.accused = accused
            broken.set_result(reason)

    def count(suspect: Decider) -> None:
        metrics.decisions_stopped.labels(suspect.value, "ended").inc()

    limit = DecisionLimit(options.decision_limit, give_up, suspects=Suspects(clock, count))
    return limit if keeper is None else replace(limit, noted=keeper.note)


async def _require_namespace(client: Client, namespace: str) -> None:
    try:
        _: Json = await client.get(NAMESPACES, "", namespace, dict)
    except NotFound:
        raise UsageError(
            f"the operator namespace {namespace!r} does not exist; create it, or name another in "
            "GPU_PREEMPTION_OPERATOR_NAMESPACE"
        ) from None
    except ApiError as failure:
        # Without the right to read namespaces the lease will show whether it is there.
        log.warning("operator namespace %s: %s", namespace, failure)
