"""Admission: what the quota plane's own webhooks make of the objects that a what-if creates.

The overlay calls the mutating webhooks of the plane that decides, at each creation, as an API
server does: Jobs are suspended, pods gated, and templates of Deployments, StatefulSets and
LeaderWorkerSets state who gates their pods. They are called where the cluster calls them: where the
settings state that they are served, or where what the API server answered to the dry run was judged
by them; and where no server could be queried, since documents are used as they stand.

What they would refuse the API server refuses in the dry run already. Source: specification of the
quota plane, sections 10.4 and 12.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubeworld.objects.paths import Json, first
from reprieve.api import kueue
from reprieve.intake.quota import label_selector
from reprieve.jobs.pods import PARENT, ROLE
from reprieve.kube.resource import NAMESPACES, Resource
from reprieve.planes.quota.live_configuration import stored_settings
from reprieve.planes.quota.plane import QuotaPlane
from reprieve.planes.quota.webhooks.hooks import plane_hooks
from reprieve.planes.quota.webhooks.reviews import Asked, Hook
from reprieve.settings.quota import QuotaSource
from reprieve.whatif.copy.overlay import Overlay
from reprieve.whatif.submitting.submission import Submitted

__all__ = ["Admission", "admit_by"]

_CREATE: Final = "CREATE"
_NAME: Final = "kubernetes.io/metadata.name"


class Admission:
    """The mutating webhooks over one overlay, called in their order."""

    def __init__(self, overlay: Overlay, hooks: Sequence[Hook]) -> None:
        self._overlay = overlay
        self._hooks: dict[tuple[str, str], list[Hook]] = {}
        for hook in hooks:
            if hook.mutating and _CREATE in hook.operations:
                for plural in hook.resources:
                    self._hooks.setdefault((hook.group, plural), []).append(hook)

    def __call__(self, resource: Resource, obj: Json) -> Json:
        """Return the object as it is stored."""
        namespace = obj["metadata"].get("namespace", "")
        for hook in self._hooks.get((resource.group, resource.plural), ()):
            if namespace and not self._selects(hook.namespace_selector, namespace):
                continue
            verdict = hook.judge(Asked(_CREATE, namespace, obj))
            obj = verdict.changed or obj
        return obj

    def _selects(self, selector: Mapping[str, Any] | None, namespace: str) -> bool:
        wanted = label_selector(msgspec.convert(selector or {}, kueue.LabelSelector))
        found = self._overlay.get(NAMESPACES, "", namespace)
        labels = first(found, "metadata.labels") or {}
        return wanted is None or wanted.matches({_NAME: namespace, **labels})


async def admit_by(
    overlay: Overlay,
    plane: QuotaPlane,
    source: QuotaSource,
    submitted: Iterable[Submitted],
) -> None:
    """Have the overlay call the plane's webhooks, if the cluster does."""
    settings = (await stored_settings(plane.context.client, source)).settings
    judged = [each.object for each in submitted if each.judged]
    alone = [each for each in submitted if not each.judged]
    if settings.serves_webhooks or alone or any(map(_was_gated, judged)):
        overlay.admission = Admission(overlay, plane_hooks(plane, settings))


def _was_gated(obj: Any) -> bool:
    """Return whether a webhook gated a pod, or has one gated by its template."""
    if isinstance(obj, list):
        return any(map(_was_gated, obj))
    if not isinstance(obj, dict):
        return False
    notes = first(obj, "metadata.annotations")
    if isinstance(notes, dict) and (PARENT in notes or ROLE in notes):
        return True
    return any(map(_was_gated, obj.values()))
