"""Writes PreemptionNotices: one object for each unit with notice, in the work's namespace.

1. An object is created once its unit is notified, and patched when the unit's state changes
   (`due_notices`).
2. Ten minutes after its end an object is removed. Objects of a former process that this one does
   not know are removed once all planes have adopted their records.
3. A notified unit that stated nothing until the deadline is named in an event, `NoticeUnheard`.

Source: the contract of notices in `docs/notice-reference.md`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.preemption_notice import (
    PreemptionNotice,
    PreemptionNoticeSpec,
    PreemptionNoticeStatus,
)
from reprieve.api.reprieve import Metadata, Preemption
from reprieve.execution.accounts.displaced_units import subject_of, unit_name
from reprieve.execution.accounts.due_notices import DueNotices
from reprieve.execution.fence import Deposed, Fence
from reprieve.execution.notices import Notices, Notified
from reprieve.kube.client import Client
from reprieve.kube.errors import AlreadyExists, ApiError, Forbidden, NotFound
from reprieve.kube.recording.events import EventRecorder
from reprieve.kube.resource import PREEMPTION_NOTICES
from reprieve.kube.writes import Priority
from reprieve.wording.displacements import rule_text

__all__ = ["NOTICE_UNHEARD", "PreemptionNotices"]

log: Final = logging.getLogger("reprieve.execution")

NOTICE_UNHEARD: Final = "NoticeUnheard"
_CONTROLLER: Final = "reprieve"
_KEPT: Final = 10 * MINUTE
_MOST: Final = 5_000  # objects that this process wrote and has not removed yet

#: Gives for whom a plan is, as people of a namespace may know it.
NameOf = Callable[[Preemption, str], Awaitable[str]]


class _Head(msgspec.Struct, frozen=True):
    """A PreemptionNotice without its content."""

    metadata: Metadata


class PreemptionNotices:
    """Shows tenants which units have notice. `run` works beside the planes."""

    def __init__(
        self,
        notices: Notices,
        client: Client,
        fence: Fence,
        clock: Clock,
        events: EventRecorder,
        preemptor_of: NameOf,
    ) -> None:
        self._notices = notices
        self._client = client
        self._writer = client.at(Priority.STATUS, fence.check, timeout=fence.request_timeout)
        self._fence = fence
        self._clock = clock
        self._events = events
        self._preemptor_of = preemptor_of
        self._due = DueNotices(self._write, "the PreemptionNotice", fence, clock)
        # Written objects, with their status; when the ended ones are removed (monotonic).
        self._written: dict[tuple[str, str], PreemptionNoticeStatus] = {}
        self._going: dict[tuple[str, str], int] = {}
        self._swept = False
        notices.observers.append(self._reported)

    def _reported(self, reported: Notified) -> None:
        if reported.unheard:
            self._report_unheard(reported)
        self._due.add(reported)

    async def run(self) -> None:
        """Write what is due and remove what is old, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._due.run())
            group.create_task(self._remove_old())

    async def _write(self, reported: Notified) -> None:
        intent, first = reported.intent, reported.victims[0]
        subject = subject_of(first)
        name = unit_name(intent, subject, first.unit or first.root.uid)
        key, status = (subject.namespace, name), self._status(reported)
        if self._written.get(key) == status:
            return
        if key in self._written:
            await self._patch(key, status)
        else:
            spec = PreemptionNoticeSpec(
                subject=subject,
                plan_id=intent.spec.plan_id,
                plane=intent.spec.plane,
                rule=rule_text(intent.spec.plane, first.rule),
                preemptor=await self._preemptor_of(intent, subject.namespace),
                deadline=format_instant(Nanos(reported.notice.deadline)),
                extend_until=format_instant(Nanos(reported.notice.extend_until)),
            )
            made = PreemptionNotice(Metadata(name, subject.namespace), spec, status)
            try:
                await self._writer.create(PREEMPTION_NOTICES, made, _Head)
            except AlreadyExists:
                await self._patch(key, status)
            except (NotFound, Forbidden) as refusal:
                log.info(
                    "no PreemptionNotice is written in namespace %s for %s: %s",
                    subject.namespace,
                    name,
                    refusal,
                )
        self._written[key] = status
        if reported.notice.final:
            self._going[key] = self._clock.monotonic() + _KEPT
        while len(self._written) > _MOST:
            self._going.setdefault(next(iter(self._written)), 0)
            del self._written[next(iter(self._written))]

    async def _patch(self, key: tuple[str, str], status: PreemptionNoticeStatus) -> None:
        try:
            await self._writer.patch(PREEMPTION_NOTICES, *key, {"status": status}, _Head)
        except NotFound:
            return  # it was removed by hand, or its namespace is deleted

    def _status(self, reported: Notified) -> PreemptionNoticeStatus:
        notice = reported.notice
        return PreemptionNoticeStatus(
            notice.state.value,
            format_instant(Nanos(notice.due)),
            len(notice.speakers),
            len(notice.saved),
            format_instant(Nanos(reported.saved_at)) if reported.saved_at else "",
            reported.word.checkpoint,
            reported.word.message,
        )

    def _report_unheard(self, reported: Notified) -> None:
        about = reported.victims[0].root.reference
        text = (
            "It requested notice, was notified, and did not answer until the deadline: check "
            "whether its pods call the operator, and at which place of the loop they poll"
        )
        self._events.event(
            about, "Warning", NOTICE_UNHEARD, NOTICE_UNHEARD, text, controller=_CONTROLLER
        )

    async def _remove_old(self) -> None:
        while True:
            await self._clock.sleep(MINUTE)
            try:
                if self._fence.open and self._notices.ready:
                    await self._sweep()
                    await self._remove_due()
            except (Deposed, ApiError) as failure:
                log.warning(
                    "expired PreemptionNotices are not deleted, they are retried: %s", failure
                )

    async def _remove_due(self) -> None:
        now = self._clock.monotonic()
        for key in [key for key, due in self._going.items() if due <= now]:
            await self._remove(key)

    async def _remove(self, key: tuple[str, str]) -> None:
        with contextlib.suppress(NotFound):
            await self._writer.delete(PREEMPTION_NOTICES, *key)
        self._going.pop(key, None)
        self._written.pop(key, None)

    async def _sweep(self) -> None:
        """Remove what former processes left, once."""
        if self._swept:
            return
        async for page in self._client.list_pages(PREEMPTION_NOTICES, _Head, metadata_only=True):
            for each in page.items:
                key = each.metadata.namespace, each.metadata.name
                if key not in self._written:
                    await self._remove(key)
        self._swept = True
