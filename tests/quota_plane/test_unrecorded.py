"""Whose plan cannot be recorded waits alone: nobody else waits for its victims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reprieve.execution.records.intents import IntentLog
from reprieve.kube.errors import Invalid
from tests.quota_plane.site import job, site
from tests.quota_plane.test_jobs import LOWER, base


async def test_another_one_preempts_whom_a_plan_was_about_that_cannot_be_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server takes every record but those of one preemptor."""
    create, tries = IntentLog.create, []

    async def refused(log: IntentLog, name: str, spec: Any) -> Any:
        if "refused" in spec.preemptor.name:
            tries.append(name)
            raise Invalid("the test says so", code=422)
        return await create(log, name, spec)

    async with site(tmp_path, *base(4, preemption=LOWER)) as cluster:
        await cluster.create(job("low", priority="low", pods=4))
        await cluster.until_admitted("low")
        monkeypatch.setattr(IntentLog, "create", refused)
        await cluster.create(job("refused", priority="high", pods=4))

        async def told() -> bool:
            return any(
                (kind, reason) == ("Workload", "PreemptionNotRecorded") and "refused" in name
                for kind, name, _, reason, _ in await cluster.events()
            )

        await cluster.until("it is told", told)
        await cluster.create(job("other", priority="high", pods=4))

        async def decided() -> bool:
            return len(tries) > 1 or bool(await cluster.intents())

        await cluster.until("a record or another try", decided)
        assert len(tries) == 1
        (intent,) = await cluster.intents()
        assert "other" in intent["spec"]["preemptor"]["name"]
        await cluster.until_admitted("other")


async def test_a_record_that_could_not_be_begun_is_closed_whatever_refused_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy takes the record, and refuses its status the first time."""
    start, refused = IntentLog.start, list[str]()

    async def once(log: IntentLog, intent: Any) -> Any:
        if not refused:
            refused.append(intent.metadata.name)
            raise Invalid("the test says so", code=422)
        return await start(log, intent)

    async with site(tmp_path, *base(4, preemption=LOWER)) as cluster:
        await cluster.create(job("low", priority="low", pods=4))
        await cluster.until_admitted("low")
        monkeypatch.setattr(IntentLog, "start", once)
        await cluster.create(job("high", priority="high", pods=4))

        async def closed() -> bool:
            found = {
                each["metadata"]["name"]: each.get("status") for each in await cluster.intents()
            }
            first = found.get(refused[0]) if refused else None
            return first is not None and first.get("phase") == "Abandoned"

        await cluster.until("the first record is closed", closed)
        await cluster.until_admitted("high")
