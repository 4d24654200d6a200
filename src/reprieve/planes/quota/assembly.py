"""The quota plane as the process runs it, with its webhooks and its live configuration."""

from __future__ import annotations

from functools import partial

from reprieve.planes.common.assembly import Assembled, Surroundings, warn
from reprieve.planes.quota.context import QuotaContext, QuotaOptions
from reprieve.planes.quota.live_configuration import LiveConfiguration, stored_settings
from reprieve.planes.quota.plane import QuotaPlane
from reprieve.telemetry.quota import QuotaMetrics

__all__ = ["assemble"]


async def assemble(given: Surroundings) -> Assembled:
    """Return the plane under the settings that are stored now.

    Raises:
        Stopped: the process is to stop before the API server gave the settings.
        UsageError: the ConfigMap cannot be read, or what it has is not accepted.
    """
    source = given.settings.quota
    assert source is not None, "read for every process that runs the plane"
    stored = await given.answered(partial(stored_settings, given.client, source))
    warn(stored.settings.notices)
    context = QuotaContext(
        **given.common(given.settings.orders.quota),
        quota_metrics=QuotaMetrics(
            given.metrics.registry,
            local_queues=stored.settings.configuration.local_queue_metrics,
        ),
        options=QuotaOptions.of(stored.settings),
    )
    plane = QuotaPlane(context, given.namespace, given.view)
    given.joint.quota = plane.side
    given.joint.demands.workload_of = plane.side.workload_of
    runners = []
    if stored.content is not None:
        runners.append(LiveConfiguration(context, stored, plane.reconfigure))
    serving = None
    if given.wait_leading is not None and stored.settings.serves_webhooks:
        # The server and its certificates are of a process that serves, not of a plan.
        from reprieve.planes.quota.webhooks.process import ProcessWebhooks

        serving = ProcessWebhooks(plane, stored.settings, given.namespace, given.wait_leading)
    return Assembled(plane, runners, serving)
