"""One `reprieve up`, from its first line to the exit code: what is started, shown, and stopped.

The operator and the page run as child processes, the operator as it does in production. What is
shown is a live view, or one line per transition. It is over at a signal, after a time, or when
continuing makes no sense.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import click
import yaml

from kubelocal.machines.objects import StoreError
from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import format_instant
from reprieve.api.preemption_notice import NOTICE_AUDIENCE
from reprieve.cli.sessions.opening import has_display, open_page
from reprieve.cli.sessions.page_process import PageProcess
from reprieve.cli.sessions.published_settings import PublishedSettings
from reprieve.cli.texts.narrator import Narrator
from reprieve.scenarios.creating import create_or_update
from reprieve.scenarios.demo.cast import Pace
from reprieve.scenarios.demo.director import Director
from reprieve.scenarios.demo.expiry import expire
from reprieve.scenarios.demo.stories import play_demo
from reprieve.scenarios.demo.trainings import Trainings
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE, EmbeddedStage, embedded_stage
from reprieve.scenarios.model import Scenario
from reprieve.scenarios.observer import CLUSTER_QUEUES
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.scenarios.result import Outcome, ScenarioResult, StepResult
from reprieve.scenarios.runner import play_scenario
from reprieve.scenarios.stage import Stage
from reprieve.settings.gates import gates_of_text, resolve_gates
from reprieve.units.errors import ReprieveError, UsageError

__all__ = ["Demo", "UpOptions", "UpSession"]

_METRICS: Final = "GPU_PREEMPTION_METRICS_ENDPOINT"
_REFRESH: Final = SECOND // 4
#: How much of the past watches of the demo can continue from.
_HISTORY: Final = 5 * MINUTE
#: A line of the operator's log that states what a GpuWorkload has become.
_TRANSITION: Final = re.compile(r" INFO [\w.]+: \S+/\S+: \w+ -> \w+ \(")
#: Where its operator answers pods that request notice.
_NOTICES: Final = re.compile(r"notice server listens on port (\d+)")
_TROUBLE: Final = re.compile(r" (ERROR|CRITICAL) |^Error: ")
_TO_SEE: Final = (
    "What to see there: who holds GPUs and who waits (Now), why each of them waits and what helps",
    "(Waiting), and who was preempted for whom (Preemptions). Four teams share 12 nodes of 8 GPUs:",
    "what happens is listed below. Ctrl-C ends it; reprieve up --speed 10 is ten times as fast.",
)
_CONTROLLERS: Final = ("idle", "scheduling")
#: Ours is the only scheduler of the cluster.
_OPERATOR: Final = (
    "--scheduler-name",
    "default-scheduler",
    "--scheduler-name",
    "reprieve-scheduler",
    "--scheduler-name",
    "koord-scheduler",
)


@dataclass(frozen=True, slots=True)
class Demo:
    """How fast the demo runs, and what decides its order."""

    speed: float
    seed: int


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What was typed."""

    scenario: str | None
    headless: bool
    duration: int | None
    data: Path | None
    port: int
    kubeconfig: Path | None
    faults: str | None
    tls: bool
    rbac: bool
    feature_gates: str
    scheduling_profile: str
    quota_profile: str
    idle_profile: str
    strict_disruption_mode: bool
    hosts: tuple[str, ...]
    nodes: int | None
    gpus: int | None
    web: bool
    web_port: int
    demo: Demo | None = None
    opened: bool = False


class UpSession:
    """The cluster, the operator on it, and its viewers."""

    def __init__(
        self,
        options: UpOptions,
        scenario: Scenario,
        stop: asyncio.Event,
        faults: dict[str, Any] | None,
    ) -> None:
        self._options, self._faults = options, faults
        self._scenario = scenario
        self._stop = stop
        self._operator: OperatorProcesses | None = None
        self._notices = ""  # address where pods request notice
        self._printed = 0  # transitions that have been printed
        self._queues: dict[str, str] = {}  # the last line that was printed, by ClusterQueue
        self._last_step = "starting"

    async def run(self, directory: Path) -> int:
        """Bring everything up, show it until it is over, and stop it again."""
        nodes = len(self._scenario.nodes)
        if self._options.demo is not None:
            self._emit(f"starting a cluster of {nodes} nodes and its web page ...", error=True)
        async with contextlib.AsyncExitStack() as stack:
            embedded = await self._start(stack, directory)
            self._emit(f"export KUBECONFIG={shlex.quote(str(embedded.kubeconfig.absolute()))}")
            if self._options.web:
                await self._start_page(stack, embedded.kubeconfig, directory)
            stage = embedded.stage
            await self._publish_settings(stage, embedded.metrics_endpoint)
            if self._faults is not None:
                embedded.cluster.faults.configure(**self._faults)
            if self._options.headless and self._options.demo is None:
                stage.observer.listen(
                    lambda resource, item: self._print_change(stage, resource, item)
                )
            stack.push_async_callback(self._stop_operator)
            if self._options.demo is not None:
                keeping = asyncio.create_task(embedded.cluster.keep_history(_HISTORY))
                stack.push_async_callback(_cancel, keeping)
            playing = asyncio.create_task(self._play(embedded))
            stack.push_async_callback(_cancel, playing)
            await self._until_over(stage, playing)
            return self._verdict(playing)

    async def _publish_settings(self, stage: Stage, metrics_endpoint: str) -> None:
        """Have users who query why work waits decide as the operator of this cluster does."""
        scenario = self._scenario
        config = dict(scenario.operator_config)
        settings = PublishedSettings(
            OPERATOR_NAMESPACE,
            self._operator_arguments(),
            {_METRICS: metrics_endpoint, **scenario.operator_env},
            yaml.safe_dump(config) if config else "",
        )
        await create_or_update(stage.objects, settings.config_map())

    def _operator_arguments(self) -> tuple[str, ...]:
        """Return the flags of the operator."""
        return (
            "--controllers",
            ",".join(self._scenario.controllers or _CONTROLLERS),
            *_scheduler_names(self._scenario),
            "--feature-gates",
            self._options.feature_gates,
            "--scheduling-profile",
            self._options.scheduling_profile,
            "--quota-profile",
            self._options.quota_profile,
            "--idle-profile",
            self._options.idle_profile,
        )

    async def _play(self, embedded: EmbeddedStage) -> ScenarioResult:
        """Play the scenario, or the demo until cancelled."""
        demo = self._options.demo
        if demo is not None:
            return await self._play_demo(embedded, demo)
        return await play_scenario(
            self._scenario,
            embedded.stage,
            on_step=self._note_step,
            on_operator=self._note_operator,
            keep_operator=True,
        )

    async def _play_demo(self, embedded: EmbeddedStage, demo: Demo) -> NoReturn:
        stage, pace = embedded.stage, Pace(demo.speed)
        operator = stage.launch(self._scenario.operator_env, 1)
        operator.configure(self._scenario.operator_config)
        self._note_operator(operator)
        for line in _TO_SEE:
            self._emit(line)
        await operator.start()
        narrator = Narrator(stage.clock, self._emit)
        director = Director(stage, pace, demo.seed, narrator.report)
        trainings = Trainings(
            stage,
            pace,
            lambda: self._notices,
            lambda account, uid: embedded.cluster.token(account, (NOTICE_AUDIENCE,), uid),
            narrator.report,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(narrator.keep_company(director.status))
            tasks.create_task(play_demo(director))
            tasks.create_task(expire(stage))
            tasks.create_task(trainings.run())
        raise AssertionError("the demo continues until it is cancelled")

    async def _start_page(
        self, stack: contextlib.AsyncExitStack, kubeconfig: Path, directory: Path
    ) -> None:
        page = PageProcess(kubeconfig, self._options.web_port, self._sampling())
        stack.push_async_callback(page.stop)
        address, why = await page.start()
        if address:
            self._emit(f"Open this page: {address}")
            if self._options.opened and has_display():
                await asyncio.to_thread(open_page, address, directory)
        else:
            self._emit(f"there is no web page: {why}", error=True)

    def _sampling(self) -> Sequence[str]:
        """Return how often the page makes samples, and where it keeps them."""
        demo, data = self._options.demo, self._options.data
        # The demo is to have something to show within its first minutes.
        quick = () if demo is None else ("--sample-every", f"{max(1, round(5 / demo.speed))}s")
        kept = () if data is None else ("--history", str(data / "history"))
        return (*quick, *kept)

    async def _start(self, stack: contextlib.AsyncExitStack, directory: Path) -> EmbeddedStage:
        options = self._options
        gates = gates_of_text(options.feature_gates)
        resolve_gates(gates)
        controllers = self._scenario.controllers or _CONTROLLERS
        kubeconfig = options.kubeconfig or (options.data or directory) / "kubeconfig"
        try:
            if options.data is not None:
                options.data.mkdir(parents=True, exist_ok=True, mode=0o700)
            kubeconfig.parent.mkdir(parents=True, exist_ok=True)
            return await stack.enter_async_context(
                embedded_stage(
                    self._scenario.nodes,
                    directory,
                    port=options.port,
                    data=options.data,
                    kubeconfig=kubeconfig,
                    tls=options.tls,
                    rbac=options.rbac,
                    operator_arguments=(*self._operator_arguments(), "--notice-port", "0"),
                    on_operator_line=self._note_operator_line,
                    scheduler=False,
                    feature_gates={name: wish.on for name, wish in gates.items()},
                    strict_disruption_mode=options.strict_disruption_mode,
                    kueue="quota" in controllers,
                    hosts=options.hosts,
                )
            )
        except StoreError as error:
            raise ReprieveError(f"the embedded cluster cannot be set up: {error}") from error
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise UsageError(
                    f"--port {options.port}: already in use; accepted: a free port, or 0 for any"
                ) from error
            where = error.filename or options.data or kubeconfig
            raise UsageError(
                f"{where}: {error.strerror or error}; accepted for --data and --kubeconfig-out: "
                "places that can be written"
            ) from error

    async def _until_over(self, stage: Stage, playing: asyncio.Task[ScenarioResult]) -> None:
        """Return at a signal, at the end of `--for`, or when continuing makes no sense."""
        stopped = asyncio.create_task(self._stop.wait())
        ends: set[asyncio.Task[Any]] = {stopped, asyncio.create_task(self._broken(playing))}
        if self._options.duration is not None:
            ends.add(asyncio.create_task(stage.clock.sleep(self._options.duration)))
        if self._is_shown_live:
            ends.add(asyncio.create_task(self._live(stage)))
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in ends:
                await _cancel(task)

    async def _broken(self, playing: asyncio.Task[ScenarioResult]) -> None:
        """Return when the scenario failed and no user stays to look, or the operator ended."""
        result = await asyncio.shield(playing)
        if result.outcome is Outcome.FAILED:
            if self._options.duration is not None:
                return
            self._emit(result.text(), error=True)
        else:
            self._last_step = f"{self._scenario.name} {result.outcome}"
            if self._options.headless:
                self._emit(f"scenario {self._scenario.name}: {result.outcome}")
        assert self._operator is not None
        raise ReprieveError(await self._operator.stopped_by_itself())

    async def _live(self, stage: Stage) -> None:
        """Draw the view again four times a second, until cancelled."""
        from rich.live import Live

        from reprieve.cli.texts.view import render

        with Live(auto_refresh=False) as live:
            while True:
                log = self._operator.tail() if self._operator is not None else []
                live.update(
                    render(
                        stage.observer,
                        stage.clock.wall(),
                        log,
                        self._last_step,
                        self._scenario.controllers or _CONTROLLERS,
                    ),
                    refresh=True,
                )
                await stage.clock.sleep(_REFRESH)

    def _verdict(self, playing: asyncio.Task[ScenarioResult]) -> int:
        """Return the exit code; 0 only if nothing that was asserted failed."""
        if playing.done():
            result = playing.result()
            if result.outcome is Outcome.FAILED:
                self._emit(result.text(), error=True)
                return 1
            return 0
        if self._options.duration is None or self._options.demo is not None:
            return 0
        self._emit(
            f"scenario {self._scenario.name} was not finished in time; last: {self._last_step}",
            error=True,
        )
        return 1

    async def _stop_operator(self) -> None:
        if self._operator is not None:
            await self._operator.stop()

    def _note_operator(self, operator: OperatorProcesses) -> None:
        self._operator = operator

    def _note_operator_line(self, line: str) -> None:
        asked = _NOTICES.search(line)
        if asked is not None:
            self._notices = f"http://127.0.0.1:{asked[1]}"
            if self._options.nodes is not None or self._options.gpus is not None:
                self._emit(f"export REPRIEVE_NOTICE_URL={self._notices}")
        if self._is_shown_live:
            return
        if self._options.demo is not None and not _TROUBLE.search(line):
            return  # its terminal is kept calm
        if not _TRANSITION.search(line):  # reported on standard output already
            self._emit(f"operator: {line}", error=True)

    def _note_step(self, step: StepResult) -> None:
        self._last_step = (
            f"{self._scenario.name}: step {step.number} of {len(self._scenario.steps)} "
            f"{step.outcome}: {step.keyword} {step.subject}"
        )

    @property
    def _is_shown_live(self) -> bool:
        return not self._options.headless and self._options.demo is None

    def _print_change(self, stage: Stage, resource: str, item: Mapping[str, Any] | None) -> None:
        from reprieve.cli.texts.view import event_line, headline, queue_line

        for transition in stage.observer.transitions[self._printed :]:
            self._emit(headline(transition))
        self._printed = len(stage.observer.transitions)
        if resource == "events" and item is not None:
            line = event_line(item)
            if line:
                self._emit(line)
        if resource == CLUSTER_QUEUES and item is not None:
            line = queue_line(item)
            if line and line != self._queues.get(item["metadata"]["name"]):
                self._queues[item["metadata"]["name"]] = line
                self._emit(f"{format_instant(stage.clock.wall())} {line}")

    def _emit(self, text: str, *, error: bool = False) -> None:
        """Print at once; a closed output means that it is over."""
        try:
            click.echo(text, err=error)
            (sys.stderr if error else sys.stdout).flush()
        except OSError:
            self._stop.set()


def _scheduler_names(scenario: Scenario) -> Sequence[str]:
    """Return flags that name our schedulers, none where a scheduler configuration does."""
    scheduling = scenario.operator_config.get("scheduling")
    configured = isinstance(scheduling, Mapping) and scheduling.get("configuration") is not None
    return () if configured else _OPERATOR


async def _cancel(task: asyncio.Task[Any]) -> None:
    """End a task and wait for its end, whatever it was."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
