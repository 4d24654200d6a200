"""Notifies pods in a file: an annotation that a downwardAPI volume shows them.

1. A pod that requests it with `reprieve.dev/notice-file: "true"` is notified in
   `reprieve.dev/notice-told`, once the record of the plan is written. It is notified again when its
   deadline has moved or when it stays.
2. Only the notified pod is patched: the patch names its uid. A deleted pod needs no notice.
3. No eviction waits for that (`due_notices`). A new leader writes the notices that its predecessor
   may not have written, and that a pod stays which its predecessor notified of its eviction.

A pod that is notified in this way alone is released when it ends. Source: the contract of notices
in `docs/notice-reference.md`.
"""

from __future__ import annotations

import json
import logging
from typing import Final

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.core import ObjectMeta
from reprieve.api.reprieve import NOTICE_FILE, NOTICE_TOLD
from reprieve.engine.notice.states import State
from reprieve.execution.accounts.due_notices import DueNotices
from reprieve.execution.fence import Fence
from reprieve.execution.notices import Notices, Notified
from reprieve.kube.client import Client
from reprieve.kube.errors import Conflict, Forbidden, Invalid, NotFound
from reprieve.kube.resource import PODS
from reprieve.kube.writes import Priority
from reprieve.wording.displacements import notice_reason

__all__ = ["NoticeFiles"]

log: Final = logging.getLogger("reprieve.execution")


class _Head(msgspec.Struct, frozen=True):
    """A pod without its content."""

    metadata: ObjectMeta


class NoticeFiles:
    """Writes them. `run` works beside the planes."""

    def __init__(self, notices: Notices, client: Client, fence: Fence, clock: Clock) -> None:
        self._client = client
        self._writer = client.at(Priority.STATUS, fence.check, timeout=fence.request_timeout)
        self._due = DueNotices(self._write, "the file", fence, clock)
        # By notice and pod: what was written last, empty where the pod requests no file.
        self._written: dict[str, dict[str, str]] = {}
        notices.observers.append(self._notified)

    def _notified(self, notified: Notified) -> None:
        if notified.notice.state is State.RELEASED:
            self._written.pop(notified.id, None)
            self._due.drop(notified)
        else:
            self._due.add(notified)

    async def run(self) -> None:
        """Write what is due, until cancelled."""
        await self._due.run()

    async def _write(self, notified: Notified) -> None:
        if notified.notice.state is State.RELEASED:
            return
        stays = notified.notice.state is State.PARDONED
        text = _text(notified)
        written = self._written.setdefault(notified.id, {})
        for uid, name in list(notified.names.items()):
            if written.get(uid) not in ("", text):
                namespace = notified.victims[0].root.namespace
                written[uid] = await self._annotate(namespace, name, uid, text, stays=stays)
        if stays:
            self._written.pop(notified.id, None)

    async def _annotate(
        self, namespace: str, name: str, uid: str, text: str, *, stays: bool
    ) -> str:
        """Return the notice of the pod's file, empty where it wants no file.

        A notice that the pod stays is for a pod that this or a former process notified of its
        eviction.
        """
        try:
            head = await self._client.get(PODS, namespace, name, _Head)
            annotations = head.metadata.annotations or {}
            asks = annotations.get(NOTICE_FILE) == "true"
            if head.metadata.uid != uid or not asks or (stays and NOTICE_TOLD not in annotations):
                return ""
            patch = {"metadata": {"uid": uid, "annotations": {NOTICE_TOLD: text}}}
            await self._writer.patch(PODS, namespace, name, patch, _Head)
        except (NotFound, Conflict, Invalid):
            return ""  # deleted, or another pod has its name: a uid is immutable
        except Forbidden as refusal:
            log.warning(
                "pod %s/%s requests notice in a file, but the operator may not patch pods "
                "(chart value notice.files): %s",
                namespace,
                name,
                refusal,
            )
            return ""
        return text


def _text(notified: Notified) -> str:
    """Return the content of the file, which is the same for a state and deadline."""
    stays = notified.notice.state is State.PARDONED
    return json.dumps(
        {
            "id": notified.id,
            "state": str(State.PARDONED if stays else State.NOTICED),
            "deadline": format_instant(Nanos(notified.notice.due)),
            "reason": notice_reason(notified.intent.spec.plane),
        }
    )
