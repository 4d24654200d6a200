"""Plays the steps of one scenario in order, and stops at the first that fails.

Every scenario has a fresh namespace of its own; the operator is started before the first step
unless that step stops it, and stopped at the end whatever happens. Source: the format of the idle
plane's scenario files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kubelocal.machines.objects import StoreError
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import format_instant
from reprieve.scenarios import actions, expectations, quota_expectations
from reprieve.scenarios.model import Scenario
from reprieve.scenarios.observer import GPUWORKLOADS, Observer, phase_of, root_of
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.scenarios.play import Play, StepFailed, StepSkipped
from reprieve.scenarios.result import Outcome, ScenarioResult, Seen, StepResult
from reprieve.scenarios.stage import Stage
from reprieve.scenarios.steps import (
    AnnotateNamespace,
    Apply,
    CountStays,
    CreateGpuWorkload,
    Delete,
    ExpectNoGpuWorkload,
    ExpectPresent,
    ExpectStatus,
    Exporter,
    Grant,
    KueueClusterQueue,
    NeverPhase,
    Remember,
    Requires,
    RestartOperator,
    Revoke,
    SetUtilization,
    Sleep,
    StartOperator,
    Step,
    StopOperator,
    WaitAbsent,
    WaitAdmitted,
    WaitBound,
    WaitCount,
    WaitEvent,
    WaitGpuWorkload,
    WaitGpuWorkloadAbsent,
    WaitPreempted,
    WaitShare,
    keyword_of,
)
from reprieve.units.errors import ClusterError

__all__ = ["play_scenario"]


async def play_scenario(
    scenario: Scenario,
    stage: Stage,
    *,
    on_step: Callable[[StepResult], None] | None = None,
    on_operator: Callable[[OperatorProcesses], None] | None = None,
    keep_operator: bool = False,
) -> ScenarioResult:
    """Play a scenario and return what came of it; never raises for what the scenario finds.

    `on_step` is called after each step, `on_operator` once with the processes. `keep_operator`
    leaves the operator running afterwards; the caller stops it.
    """
    operator = stage.launch(scenario.operator_env, scenario.operator_replicas)
    if scenario.operator_config:
        operator.configure(scenario.operator_config)
    if on_operator is not None:
        on_operator(operator)
    namespace = scenario.namespace or f"scenario-{scenario.name}"
    play = Play(stage, namespace, operator)
    steps: list[StepResult] = []
    try:
        await actions.annotate_namespace(play, AnnotateNamespace({}))
        leases = scenario.operator_env.get("GPU_PREEMPTION_OPERATOR_NAMESPACE")
        if leases:
            await play.write(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": leases}}
            )
        if not _starts_without(scenario):
            await operator.start()
        for number, step in enumerate(scenario.steps, start=1):
            outcome = await _play(play, number, step)
            steps.append(outcome)
            if on_step is not None:
                on_step(outcome)
            if outcome.outcome is Outcome.SKIPPED:
                return ScenarioResult(scenario.name, Outcome.SKIPPED, steps, outcome.detail)
            if outcome.outcome is Outcome.FAILED:
                where = f"step {number} ({outcome.keyword} {outcome.subject}): {outcome.detail}"
                seen = _seen(stage.observer, namespace, operator)
                return ScenarioResult(scenario.name, Outcome.FAILED, steps, where, seen)
        ended = await operator.ended_so_far()
        if ended:
            seen = _seen(stage.observer, namespace, operator)
            return ScenarioResult(scenario.name, Outcome.FAILED, steps, ended, seen)
        return ScenarioResult(scenario.name, Outcome.PASSED, steps)
    except (StepFailed, StoreError, ClusterError) as failure:
        seen = _seen(stage.observer, namespace, operator)
        return ScenarioResult(
            scenario.name, Outcome.FAILED, steps, f"before the first step: {failure}", seen
        )
    finally:
        if not keep_operator:
            await operator.stop()


async def _play(play: Play, number: int, step: Step) -> StepResult:
    clock = play.stage.clock
    started = clock.monotonic()
    outcome, detail = Outcome.PASSED, ""
    try:
        await _or_operator_stopped(play, step)
    except StepSkipped as skipped:
        outcome, detail = Outcome.SKIPPED, str(skipped)
    except (StepFailed, StoreError, ClusterError) as failure:
        outcome, detail = Outcome.FAILED, str(failure)
    seconds = (clock.monotonic() - started) / SECOND
    return StepResult(number, keyword_of(step), _subject(step), outcome, seconds, detail)


async def _or_operator_stopped(play: Play, step: Step) -> None:
    """Do a step, but end it at once when the operator ends without a request to."""
    doing = asyncio.ensure_future(_play_step(play, step))
    stopped = asyncio.ensure_future(play.operator.stopped_by_itself())
    try:
        await asyncio.wait({doing, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise StepFailed(stopped.result())
        await doing
    finally:
        for task in (doing, stopped):
            task.cancel()
        await asyncio.gather(doing, stopped, return_exceptions=True)


async def _play_step(play: Play, step: Step) -> None:
    match step:
        case Apply():
            await actions.apply(play, step)
        case AnnotateNamespace():
            await actions.annotate_namespace(play, step)
        case SetUtilization():
            await actions.set_utilization(play, step)
        case Exporter():
            await actions.switch_exporter(play, step)
        case Delete():
            await actions.delete(play, step)
        case CreateGpuWorkload():
            await actions.create_gpuworkload(play, step)
        case Remember():
            await actions.remember(play, step)
        case Revoke() | Grant():
            await actions.change_rights(play, step)
        case Requires():
            await actions.require(play, step)
            await play.operator.start()
        case KueueClusterQueue():
            await actions.kueue_cluster_queue(play, step)
        case StopOperator():
            await play.operator.stop()
        case StartOperator():
            await play.operator.start()
        case RestartOperator():
            await play.operator.restart()
        case Sleep():
            await play.stage.clock.sleep(round(step.seconds * SECOND))
        case _:
            await _check(play, step)


async def _check(play: Play, step: Step) -> None:
    match step:
        case WaitGpuWorkload():
            await expectations.wait_gpuworkload(play, step)
        case WaitGpuWorkloadAbsent():
            await expectations.wait_gpuworkload_absent(play, step)
        case ExpectNoGpuWorkload():
            await expectations.expect_no_gpuworkload(play, step)
        case NeverPhase():
            await expectations.never_phase(play, step)
        case WaitCount():
            await expectations.wait_count(play, step)
        case CountStays():
            await expectations.count_stays(play, step)
        case WaitAbsent():
            await expectations.wait_absent(play, step)
        case WaitBound():
            await expectations.wait_bound(play, step)
        case WaitAdmitted():
            await quota_expectations.wait_admitted(play, step)
        case WaitPreempted():
            await quota_expectations.wait_preempted(play, step)
        case WaitShare():
            await quota_expectations.wait_share(play, step)
        case ExpectPresent():
            await expectations.expect_present(play, step)
        case WaitEvent():
            await expectations.wait_event(play, step)
        case ExpectStatus():
            await expectations.expect_status(play, step)
        case _:
            raise AssertionError(f"no way to play {keyword_of(step)}")


def _starts_without(scenario: Scenario) -> bool:
    return bool(scenario.steps) and isinstance(scenario.steps[0], StopOperator | Requires)


def _subject(step: Step) -> str:
    """Return what a step is about, in as few words as separate it from its neighbours."""
    match step:
        case Apply():
            return f"{step.object['kind']}/{step.object['metadata']['name']}"
        case SetUtilization():
            return f"{step.pods_of} {step.value:g} %"
        case WaitGpuWorkload():
            wanted = (
                step.phase
                or (f"not {step.phase_not}" if step.phase_not else "")
                or " or ".join(step.phase_in or ())
            )
            return f"{step.root} {wanted}".rstrip()
        case NeverPhase():
            return f"{step.root} {', '.join(step.phases)}"
        case WaitEvent():
            return f"{step.root} {step.reason}"
        case WaitAbsent() | ExpectPresent() | Delete():
            return f"{step.kind}/{step.name}"
        case WaitCount():
            return f"{step.count} {step.phase}"
        case WaitAdmitted():
            return f"{step.count} of {step.queue}"
        case WaitPreempted():
            return f"Job/{step.job} {step.reason}"
        case WaitShare():
            return f"{step.cluster_queue} {step.share}"
        case CountStays():
            return f"{step.count} {' or '.join(step.phase_in)}"
        case Revoke() | Grant():
            return f"{step.verb} {step.resource}"
        case Exporter():
            return step.state
        case Sleep():
            return f"{step.seconds:g} s"
        case Requires():
            return step.what
        case KueueClusterQueue():
            return step.name
        case (
            WaitGpuWorkloadAbsent()
            | ExpectNoGpuWorkload()
            | Remember()
            | ExpectStatus()
            | CreateGpuWorkload()
        ):
            return step.root
        case _:
            return ""


def _seen(observer: Observer, namespace: str, operator: OperatorProcesses) -> Seen:
    workloads = [
        f"{item['metadata']['name']} {phase_of(item) or '(no phase)'} root={root_of(item)} "
        f"spec={dict(item.get('spec', {}))} status={dict(item.get('status', {}))}"
        for item in observer.all(GPUWORKLOADS, namespace)
    ]
    transitions = [
        f"{format_instant(t.at)} {t.name} {t.old or '(none)'} -> {t.new or '(none)'} {t.reason}"
        for t in observer.transitions
        if t.namespace == namespace
    ]
    pods = [
        f"{pod['metadata']['name']} {pod.get('status', {}).get('phase')} "
        f"node={pod.get('spec', {}).get('nodeName')} "
        + "; ".join(
            f"{c.get('type')}={c.get('status')} {c.get('message', '')}".rstrip()
            for c in pod.get("status", {}).get("conditions", ())
        )
        for pod in observer.all("pods", namespace)
    ]
    events = [
        f"{event.get('type')} {event.get('reason')} {about.get('kind')}/{about.get('name')}: "
        f"{event.get('message')}"
        for event in observer.all("events", namespace)
        for about in [event.get("involvedObject", {})]
    ]
    return Seen(workloads, transitions, pods, events, operator.tail())
