"""What the parts of the quota plane share: connections, settings and the way to people."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kubeworld.objects.paths import Json
from kubeworld.units.durations import HOUR
from reprieve.api.kueue import API_VERSION, Workload
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.notice.granting import NoticePolicy
from reprieve.engine.quota.assigning.request_rules import NO_RULES, RequestRules
from reprieve.engine.quota.holdings.usage_based import UsageBased
from reprieve.engine.quota.model import LabelSelector, Settings
from reprieve.engine.quota.waiting.requeuing import Backoff
from reprieve.jobs.model import JobKind
from reprieve.jobs.table import BUILT_IN, gated_off, queued_kinds
from reprieve.planes.common.context import PlaneContext
from reprieve.settings.quota import QuotaSettings
from reprieve.settings.quota_configuration import quota_configuration
from reprieve.settings.quota_configuration_parts import PodsReady
from reprieve.telemetry.quota import QuotaMetrics
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from reprieve.wording.events import EventText

__all__ = ["ADMISSION", "QuotaContext", "QuotaOptions", "log", "reference_of"]

log: Final = logging.getLogger("reprieve.quota")

#: Who reports events about Workloads.
ADMISSION: Final = "kueue-admission"


@dataclass(frozen=True, slots=True)
class QuotaOptions:
    """What an operator chooses.

    `usage_based`: how the use of LocalQueues fades, None where it does not count. `pods_ready`: by
    when the pods of an admitted workload must be ready, None for no limit. Finished Workloads, and
    jobs of Workloads that were deactivated for it, are deleted after so many seconds, None is
    never. `without_queue_name`: jobs without a queue name are held back as well. `selector`:
    namespaces whose jobs are queued. `queue_metrics`: quotas and shares of queues are shown as
    metrics. Two workloads that preempted each other `loop_limit` times within `loop_window`
    nanoseconds are held; 0 holds none. `prove_nodes`: no work is preempted for what would still not
    fit on nodes. `external`: kinds that others queue, as `Kind.version.group`. `notice`: for how
    long victims may save; `delay`: how long preemptors wait, in nanoseconds.
    """

    settings: Settings = field(default_factory=Settings)
    rules: RequestRules = NO_RULES
    kinds: tuple[JobKind, ...] = BUILT_IN
    backoff: Backoff = field(default_factory=Backoff)
    usage_based: UsageBased | None = None
    pods_ready: PodsReady | None = field(default_factory=lambda: quota_configuration().pods_ready)
    after_finished_s: float | None = None
    after_deactivated_s: float | None = None
    without_queue_name: bool = False
    copied_labels: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    external: tuple[str, ...] = ()
    loop_window: int = HOUR
    loop_limit: int = 0
    prove_nodes: bool = False
    queue_metrics: bool = False
    notice: NoticePolicy = field(default_factory=NoticePolicy)
    delay: int = 0
    gated_off: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, settings: QuotaSettings) -> QuotaOptions:
        """Return what settings state; kinds of configuration are queued without being listed.

        Raises:
            UsageError: a row for the table of kinds cannot be read.
        """
        said = settings.configuration
        kinds = queued_kinds(said.frameworks, said.gates, settings.job_kinds)
        return cls(
            settings=said.settings,
            rules=said.rules,
            kinds=kinds,
            backoff=said.backoff,
            usage_based=said.usage_based,
            pods_ready=said.pods_ready,
            after_finished_s=said.after_finished_s,
            after_deactivated_s=said.after_deactivated_s,
            without_queue_name=said.manage_jobs_without_queue_name,
            copied_labels=said.label_keys_to_copy,
            selector=said.selector,
            external=said.external_frameworks,
            loop_window=settings.loop_window,
            loop_limit=settings.loop_limit,
            prove_nodes=settings.prove_nodes,
            queue_metrics=said.queue_metrics,
            notice=settings.notice,
            delay=settings.delay,
            gated_off=gated_off(said.frameworks, said.gates),
        )


def _already() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(slots=True, kw_only=True)
class QuotaContext(PlaneContext):
    """One running quota plane. `read_only` states why nothing is written; empty when it is.

    `registered` is set as soon as the API server knows the webhooks that judge what is written, or
    has refused to; at once where there are none. `gates_pods`: the webhook of pods is registered;
    `gates`: whether it gates a pod that names a queue itself. `governor`: that of all planes;
    without it the plane has one of its own.
    """

    quota_metrics: QuotaMetrics
    governor: Governor | None = None
    options: QuotaOptions = field(default_factory=QuotaOptions)
    read_only: str = ""
    registered: asyncio.Event = field(default_factory=_already)
    gates_pods: bool = False
    gates: Callable[[Json], bool] = lambda pod: False

    @property
    def writes(self) -> bool:
        """Whether anything is written."""
        return not self.dry_run and not self.read_only

    def announce(
        self,
        regarding: Reference,
        event: EventText,
        controller: str = ADMISSION,
        related: Reference | None = None,
        action: str = "",
    ) -> None:
        """Send an event; it never fails the caller. `action`: what was done, else its reason."""
        if self.writes:
            self.events.event(
                regarding,
                event.type,
                event.reason,
                action or event.reason,
                event.message,
                controller=controller,
                related=related,
            )


def reference_of(workload: Workload) -> Reference:
    """Return the reference to a Workload in events."""
    metadata = workload.metadata
    return Reference(API_VERSION, "Workload", metadata.namespace, metadata.name, Uid(metadata.uid))
