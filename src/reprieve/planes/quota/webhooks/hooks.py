"""The webhooks of a quota plane as functions of reviews, without the server that answers them.

Beside a Kueue that decides nothing is changed and nothing refused: its own webhooks do that.

Source: specification of the quota plane, section 12; the design's "Promises", 8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from reprieve.planes.quota.plane import QuotaPlane
from reprieve.planes.quota.webhooks.defaults import Tenancy
from reprieve.planes.quota.webhooks.jobs import JobRules, job_hooks, selector_of
from reprieve.planes.quota.webhooks.reviews import Hook, Judge, Verdict, kueue_hooks
from reprieve.planes.quota.webhooks.tenancy import PlaneTenancy, TenancyOnTheLoop
from reprieve.settings.quota import QuotaSettings

__all__ = ["plane_hooks", "tenancy_of"]

_DEFAULT_CLASSES: Final = "WorkloadPriorityClassDefaulting"
_SLICE_SIZES: Final = "TASValidateWorkloadSliceSize"
_LAYERED_SLICES: Final = "TASMultiLayerTopology"


def tenancy_of(plane: QuotaPlane, settings: QuotaSettings) -> PlaneTenancy:
    """Return what the webhooks look up in the caches of a plane."""
    said = settings.configuration
    return PlaneTenancy(
        plane.watches,
        plane.state,
        plane.lookup,
        said.selector,
        said.external_frameworks,
        plane.settle,
    )


def plane_hooks(
    plane: QuotaPlane,
    settings: QuotaSettings,
    loop: asyncio.AbstractEventLoop | None = None,
) -> tuple[Hook, ...]:
    """Return the webhooks of a running plane: Kueue's own kinds, then the kinds of jobs.

    Args:
        plane: whose caches answer.
        settings: of the plane.
        loop: on which the plane runs, for judges in other threads.
    """
    said = settings.configuration
    tenancy: Tenancy = tenancy_of(plane, settings)
    if loop is not None:
        tenancy = TenancyOnTheLoop(tenancy, loop)
    rules = JobRules(
        without_queue_name=said.manage_jobs_without_queue_name,
        layered_slices=said.gates.get(_LAYERED_SLICES, True),
        default_classes=said.gates.get(_DEFAULT_CLASSES, True),
        failure_policy=settings.job_failure_policy,
        selector=settings.webhook_selector or selector_of(said.selector),
    )
    own = kueue_hooks(
        partial_admission=said.settings.gates.partial_admission,
        slice_sizes=said.gates.get(_SLICE_SIZES, True),
    )
    hooks = (*own, *job_hooks(plane.context.options.kinds, tenancy, rules))
    quiet = [replace(hook, judge=_when_alone(plane, hook.judge)) for hook in hooks]
    return tuple(_named_apart(quiet))


def _when_alone(plane: QuotaPlane, judge: Judge) -> Judge:
    return lambda asked: Verdict() if plane.notice() else judge(asked)


def _named_apart(hooks: Iterable[Hook]) -> Iterator[Hook]:
    """Yield the hooks, with their group in the name of what has that of another one."""
    names: set[str] = set()
    for hook in hooks:
        name = hook.name
        if name in names:
            kind, _, rest = name.partition(".")
            name = f"{kind}.{hook.group}.{rest}"
        names.add(name)
        yield replace(hook, name=name)
