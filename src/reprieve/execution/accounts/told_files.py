"""Tells pods in a file: writes a notice into the annotation that a downwardAPI volume shows them.

1. A pod that asks by `reprieve.dev/notice-file: "true"` is told in `reprieve.dev/notice-told`, once
   the record of the plan is written. It is told again when its deadline has moved or when it stays.
2. Only the pod that was told is patched: the patch names its uid. A pod that is gone needs none.
3. No eviction waits for that; what cannot be written is tried again with a growing pause. A new
   leader writes what its predecessor may not have written.

A pod that is told in this way alone is released when it ends. Source: the contract of notices in
`docs/notice-reference.md`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Final

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.core import ObjectMeta
from reprieve.api.reprieve import NOTICE_FILE, NOTICE_TOLD
from reprieve.engine.notice.states import State
from reprieve.execution.fence import Deposed, Fence
from reprieve.execution.notices import Notices, Told
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError, Conflict, Forbidden, NotFound
from reprieve.kube.resource import PODS
from reprieve.kube.writes import Priority
from reprieve.wording.displacements import NOTICE_REASON

__all__ = ["ToldFiles"]

log: Final = logging.getLogger("reprieve.execution")

_LONGEST_PAUSE: Final = MINUTE


class _Head(msgspec.Struct, frozen=True):
    """A pod without its content."""

    metadata: ObjectMeta


class ToldFiles:
    """Writes them. `run` works beside the planes."""

    def __init__(self, notices: Notices, client: Client, fence: Fence, clock: Clock) -> None:
        self._client = client
        self._writer = client.at(Priority.STATUS, fence.check, timeout=fence.request_timeout)
        self._fence = fence
        self._clock = clock
        self._due: dict[str, Told] = {}
        self._changed = asyncio.Event()
        # By notice and pod: what was written last, empty where the pod asks for no file.
        self._written: dict[str, dict[str, str]] = {}
        notices.observers.append(self._told)

    def _told(self, told: Told) -> None:
        if told.notice.state is State.RELEASED:
            self._written.pop(told.id, None)
            self._due.pop(told.id, None)
            return
        self._due[told.id] = told
        self._changed.set()

    async def run(self) -> None:
        """Write what is due, until cancelled."""
        pause = SECOND
        while True:
            await self._changed.wait()
            self._changed.clear()
            failed = not self._fence.open or not await self._write_once()
            if failed:
                await self._clock.sleep(pause)
                self._changed.set()
            pause = min(2 * pause, _LONGEST_PAUSE) if failed else SECOND

    async def _write_once(self) -> bool:
        """Write what is due; return whether all could be written."""
        due, self._due = self._due, {}
        failed: dict[str, Told] = {}
        for told in due.values():
            try:
                await self._write(told)
            except (Deposed, ApiError) as failure:
                root = told.victims[0].root
                log.warning(
                    "the notice of %s/%s is not written to the annotations of its pods, it is "
                    "retried: %s",
                    root.namespace,
                    root.name,
                    failure,
                )
                failed[told.id] = told
            except Exception:
                log.exception(
                    "the notice of %s is not written to the annotations of its pods",
                    told.victims[0].root.name,
                )
        self._due = {**failed, **self._due}
        return not failed

    async def _write(self, told: Told) -> None:
        stays = told.notice.state is State.PARDONED
        text = _text(told)
        written = self._written.setdefault(told.id, {})
        for uid, name in list(told.names.items()):
            before = written.get(uid)
            if before in ("", text) or (before is None and stays):
                continue
            written[uid] = await self._annotate(told.victims[0].root.namespace, name, uid, text)
        if stays:
            self._written.pop(told.id, None)

    async def _annotate(self, namespace: str, name: str, uid: str, text: str) -> str:
        """Return what the pod was told, empty where it wants no file."""
        try:
            head = await self._client.get(PODS, namespace, name, _Head)
            asks = (head.metadata.annotations or {}).get(NOTICE_FILE) == "true"
            if head.metadata.uid != uid or not asks:
                return ""
            patch = {"metadata": {"uid": uid, "annotations": {NOTICE_TOLD: text}}}
            await self._writer.patch(PODS, namespace, name, patch, _Head)
        except (NotFound, Conflict):
            return ""  # it is gone, or another pod has its name
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


def _text(told: Told) -> str:
    """Return the content of the file, which is the same for a state and deadline."""
    stays = told.notice.state is State.PARDONED
    return json.dumps(
        {
            "id": told.id,
            "state": str(State.PARDONED if stays else State.NOTICED),
            "deadline": format_instant(Nanos(told.notice.due)),
            "reason": NOTICE_REASON,
        }
    )
