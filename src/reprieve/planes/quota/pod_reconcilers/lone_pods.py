"""Pods that name a queue themselves and were made while no webhook answered: they are reclaimed.

The webhook labels what it gates, and the plane watches pods with that label alone. So once a minute
pods are listed that name a queue and have no such label. What stands below a job that is queued is
that job's matter, and in namespaces whose pods are not gated nothing is done. Like the pods of a
set that were missed (`missed_pods`) they get an event, and are ended after a grace; no controller
makes a pod without an owner again.

Source: specification of the quota plane, section 10.4; the rule is Reprieve's own.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from reprieve.jobs.pods import MANAGED, PARENT, annotations_of, is_gated
from reprieve.kube.errors import ApiError
from reprieve.kube.resource import PODS
from reprieve.planes.quota.context import QuotaContext
from reprieve.planes.quota.job_reconciler.job_lookup import QUEUE_NAME, job_key
from reprieve.planes.quota.pod_reconcilers.missed_pods import GRACE
from reprieve.planes.quota.pod_reconcilers.pod_lookup import PodLookup
from reprieve.planes.quota.pod_reconcilers.pod_steps import PodSteps

__all__ = ["LonePods"]

log: Final = logging.getLogger("reprieve.quota")

_SELECTOR: Final = f"{QUEUE_NAME},!{MANAGED}"


class LonePods:
    """Looks for them, where pods are queued and their webhook is registered."""

    def __init__(self, context: QuotaContext, pods: PodLookup, steps: PodSteps) -> None:
        self._context = context
        self._pods = pods
        self._steps = steps

    async def run(self) -> None:
        """Look once in a while, until cancelled.

        Raises:
            Deposed: the fence is closed.
        """
        while True:
            try:
                await self.reclaim()
            except ApiError as failure:
                log.warning("pods that name a queue themselves are not listed: %s", failure)
            await self._context.clock.sleep(GRACE)

    async def reclaim(self) -> None:
        """Report and end what runs without quota.

        Raises:
            ApiError: the pods cannot be listed, or one not ended.
            Deposed: the fence is closed.
        """
        context, kind = self._context, self._pods.kind
        if kind is None or kind.children_only or not context.gates_pods:
            return
        page = await context.client.list(PODS, dict[str, Any], label_selector=_SELECTOR)
        for pod in page.items:
            namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
            if is_gated(pod, kind.gate) or PARENT in annotations_of(pod):
                continue
            if context.gates(pod):
                await self._steps.reclaim(kind, pod, job_key(kind, namespace, name))
