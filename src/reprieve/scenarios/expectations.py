"""The steps that check something: waits end at the change that fulfils them, or fail in time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubeworld.units.durations import SECOND
from reprieve.api.gangs import DOORS
from reprieve.scenarios.observer import GPUWORKLOADS, Object, phase_of, root_of
from reprieve.scenarios.play import Play, StepFailed
from reprieve.scenarios.steps import (
    CountStays,
    ExpectNoGpuWorkload,
    ExpectPresent,
    ExpectStatus,
    NeverPhase,
    Reference,
    WaitAbsent,
    WaitBound,
    WaitCount,
    WaitEvent,
    WaitGpuWorkload,
    WaitGpuWorkloadAbsent,
)
from reprieve.units.counts import counted

__all__ = [
    "count_stays",
    "expect_no_gpuworkload",
    "expect_present",
    "expect_status",
    "never_phase",
    "wait_absent",
    "wait_bound",
    "wait_count",
    "wait_event",
    "wait_gpuworkload",
    "wait_gpuworkload_absent",
]

# Between two looks at objects that are not watched.
_LOOK: Final = SECOND // 5


async def wait_gpuworkload(play: Play, step: WaitGpuWorkload) -> None:
    """Until the GpuWorkload exists and matches."""

    def matching() -> bool | None:
        item = play.stage.observer.gpuworkload(play.namespace, step.root)
        return True if item is not None and _matches(step, item) else None

    if await play.stage.observer.until(matching, step.timeout) is None:
        item = play.stage.observer.gpuworkload(play.namespace, step.root)
        raise StepFailed(
            f"not seen within {step.timeout:g} s; "
            + ("there is no GpuWorkload" if item is None else f"last seen: {_short(item)}")
        )


async def wait_gpuworkload_absent(play: Play, step: WaitGpuWorkloadAbsent) -> None:
    """Until no GpuWorkload refers to the root."""
    observer = play.stage.observer
    gone = await observer.until(
        lambda: True if observer.gpuworkload(play.namespace, step.root) is None else None,
        step.timeout,
    )
    if gone is None:
        raise StepFailed(f"still there after {step.timeout:g} s")


async def expect_no_gpuworkload(play: Play, step: ExpectNoGpuWorkload) -> None:
    """None refers to the root now."""
    item = play.stage.observer.gpuworkload(play.namespace, step.root)
    if item is not None:
        raise StepFailed(f"there is one: {_short(item)}")


async def never_phase(play: Play, step: NeverPhase) -> None:
    """None of the phases is there at the start or entered until the end."""
    observer = play.stage.observer
    mark = len(observer.transitions)
    item = observer.gpuworkload(play.namespace, step.root)
    present = [phase_of(item)] if item is not None else []

    def forbidden() -> str | None:
        entered = [*present, *observer.phases_since(mark, play.namespace, step.root)]
        return next((phase for phase in entered if phase in step.phases), None)

    seen = await observer.until(forbidden, step.during)
    if seen is not None:
        raise StepFailed(f"phase {seen} was seen")


async def wait_count(play: Play, step: WaitCount) -> None:
    """Until that many GpuWorkloads are in a phase."""

    def reached() -> bool | None:
        return True if _count(play, [step.phase]) == step.count else None

    if await play.stage.observer.until(reached, step.timeout) is None:
        raise StepFailed(f"after {step.timeout:g} s there are {_count(play, [step.phase])}")


async def count_stays(play: Play, step: CountStays) -> None:
    """The number stays the same all the time."""

    def other() -> int | None:
        count = _count(play, step.phase_in)
        return count if count != step.count else None

    count = await play.stage.observer.until(other, step.during)
    if count is not None:
        raise StepFailed(f"there were {count}")


async def wait_absent(play: Play, step: WaitAbsent) -> None:
    """Until the object is deleted."""
    clock = play.stage.clock
    deadline = clock.monotonic() + round(step.timeout * SECOND)
    while await play.find(step.kind, step.name) is not None:
        if clock.monotonic() >= deadline:
            raise StepFailed(f"still there after {step.timeout:g} s")
        await clock.sleep(_LOOK)


async def wait_bound(play: Play, step: WaitBound) -> None:
    """Until that many pods of the group, or of none, have a node and are not being deleted."""
    observer = play.stage.observer
    bound = 0

    def enough() -> bool | None:
        nonlocal bound
        bound = sum(
            bool(pod["spec"].get("nodeName")) and not pod["metadata"].get("deletionTimestamp")
            for pod in observer.all("pods", play.namespace)
            if (step.group in groups if (groups := _groups_of(pod)) else not step.group)
        )
        return True if bound == step.count else None

    if await observer.until(enough, step.timeout) is None:
        raise StepFailed(
            f"{counted(bound, 'pod')} instead of {step.count} after {step.timeout:g} s"
        )


def _groups_of(pod: Object) -> set[str]:
    """Return the names of the pod's groups, under whatever API."""
    labels = pod["metadata"].get("labels") or {}
    native = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    return {name for name in (native, *(labels.get(door.label) for door in DOORS)) if name}


async def expect_present(play: Play, step: ExpectPresent) -> None:
    """The object exists and is not being deleted."""
    item = await play.find(step.kind, step.name)
    if item is None:
        raise StepFailed("it does not exist")
    if item["metadata"].get("deletionTimestamp"):
        raise StepFailed("it is being deleted")


async def wait_event(play: Play, step: WaitEvent) -> None:
    """Until the GpuWorkload has such an event."""
    observer = play.stage.observer

    def sent() -> bool | None:
        names = {
            item["metadata"]["name"]
            for item in observer.all(GPUWORKLOADS, play.namespace)
            if root_of(item) == step.root
        }
        for event in observer.all("events", play.namespace):
            about = event.get("involvedObject", {})
            if (
                about.get("kind") == "GpuWorkload"
                and about.get("name") in names
                and event.get("reason") == step.reason
                and event.get("type") == step.type
            ):
                return True
        return None

    if await observer.until(sent, step.timeout) is None:
        raise StepFailed(f"no such event within {step.timeout:g} s")


async def expect_status(play: Play, step: ExpectStatus) -> None:
    """Fields of the status are these now; null means absent or empty."""
    status = (await play.gpuworkload(step.root)).get("status", {})
    for name, wanted in step.fields.items():
        if isinstance(wanted, Reference):
            value = await _resolve(play, wanted)
        else:
            value = wanted
        found = status.get(name)
        if (found or None) != value if value is None else found != value:
            raise StepFailed(f"status.{name} is {found!r}, expected {value!r}")


async def _resolve(play: Play, reference: Reference) -> Any:
    if reference.gpuworkload_of is not None:
        return (await play.gpuworkload(reference.gpuworkload_of))["metadata"]["name"]
    if reference.remembered not in play.remembered:
        raise StepFailed(f"nothing was remembered as {reference.remembered!r}")
    return play.remembered[reference.remembered]


def _matches(step: WaitGpuWorkload, item: Object) -> bool:
    phase = phase_of(item)
    return (
        (step.phase is None or phase == step.phase)
        and (step.phase_not is None or phase not in ("", step.phase_not))
        and (step.phase_in is None or phase in step.phase_in)
        and (step.spec is None or _contains(item.get("spec", {}), step.spec))
    )


def _contains(whole: Any, part: Any) -> bool:
    """Whether every key of `part` is in `whole` with such a value."""
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(
            key in whole and _contains(whole[key], value) for key, value in part.items()
        )
    return bool(whole == part)


def _count(play: Play, phases: list[Any]) -> int:
    items = play.stage.observer.all(GPUWORKLOADS, play.namespace)
    return sum(phase_of(item) in phases for item in items)


def _short(item: Object) -> str:
    resources = dict(item.get("spec", {}).get("gpuResources", {}))
    return f"{item['metadata']['name']} in phase {phase_of(item) or 'none'} with {resources}"
