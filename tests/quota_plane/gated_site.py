"""A quota plane with all webhooks of ours: of Kueue's kinds, of jobs and of pods.

Every write of the plane passes through them. One that crosses another, such as an update that meets
an admission, may be refused and is not written again; at the end none may have been refused over
and over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from reprieve.engine.quota.model import LabelSelector
from reprieve.jobs.model import JobKind
from reprieve.planes.quota.context import QuotaOptions
from reprieve.planes.quota.webhooks.jobs import JobRules, job_hooks
from reprieve.planes.quota.webhooks.reviews import Asked, Hook, Verdict, kueue_hooks
from reprieve.planes.quota.webhooks.tenancy import PlaneTenancy
from reprieve.scenarios.embedded import OPERATOR_USER
from tests.kueue.webhooks import webhooks
from tests.quota_plane.site import Object, Site, site

#: So often the same write may be refused because it crossed another one.
_CROSSING = 3
QUEUE, CLASS = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"


@asynccontextmanager
async def gated_site(
    folder: Path,
    *objects: Object,
    kinds: tuple[JobKind, ...],
    prepare: Callable[[Site], Awaitable[None]] | None = None,
    options: dict[str, Any] | None = None,
    others: tuple[Hook, ...] = (),
    away: Callable[[], bool] = lambda: False,
    **rest: Any,
) -> AsyncIterator[Site]:
    """Start a cluster, `prepare` it, then the plane for these kinds, and the webhooks.

    `others`: webhooks of somebody else, which may refuse what they like. `away`: whether nobody
    asks ours just now.
    """
    async with site(folder, *objects, start=False, **rest) as cluster:
        if prepare is not None:
            await prepare(cluster)
        plane = await cluster.start(QuotaOptions(kinds=kinds, **(options or {})))
        refused: Counter[str] = Counter()
        tenancy: Any = _Tenancy(cluster)
        ours = (*kueue_hooks(), *job_hooks(kinds, tenancy, JobRules()))
        hooks = (*(_recorded(each, refused, away) for each in ours), *others)
        async with webhooks(cluster.client, hooks=hooks):
            await cluster.until("the plane has seen all", _ready(cluster))
            plane.context.gates_pods = True
            plane.context.gates = tenancy.gates
            yield cluster
        assert [each for each, times in refused.items() if times > _CROSSING] == []


class _Tenancy:
    """What the webhooks ask: the plane that runs now, also after another one was started."""

    def __init__(self, cluster: Site) -> None:
        self._cluster = cluster

    def __getattr__(self, question: str) -> Any:
        plane = self._cluster.plane
        assert plane is not None
        external = plane.context.options.external
        tenancy = PlaneTenancy(
            plane.watches, plane.state, plane.lookup, LabelSelector(), external, plane.settle
        )
        return getattr(tenancy, question)


def _recorded(hook: Hook, refused: Counter[str], away: Callable[[], bool]) -> Hook:
    """Return a webhook that counts which writes of the operator it refuses."""

    def judge(asked: Asked) -> Verdict:
        if away():
            return Verdict()
        verdict = hook.judge(asked)
        if verdict.errors and asked.user == OPERATOR_USER:
            metadata = asked.obj.get("metadata") or {}
            refused[f"{hook.name}: {metadata.get('name')}: {verdict.errors}"] += 1
        return verdict

    return replace(hook, judge=judge)


def _ready(cluster: Site) -> Callable[[], Awaitable[object]]:
    async def holds() -> bool:
        assert cluster.plane is not None
        return cluster.plane.ready

    return holds
