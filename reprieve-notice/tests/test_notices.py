"""The library against a stand-in of the operator, over HTTP."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reprieve_notice import Notices
from reprieve_notice.http import Away, HttpSource

NOTICE = {
    "id": "a1",
    "state": "Noticed",
    "deadline": "2026-03-04T10:10:00Z",
    "now": "2026-03-04T10:00:00Z",
    "reason": "another workload needs the capacity",
}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def asking(operator: Any, folder: Path, clock: Clock | None = None) -> Notices:
    """Return notices without a thread: the test asks."""
    token = folder / "token"
    token.write_text("secret\n")
    source = HttpSource(operator.url + "/", token, clock or Clock())
    notices = Notices(source, pause=lambda seconds: False)
    vars(notices)["_start"] = lambda: None
    return notices


def test_a_pod_that_is_told_saves_and_reports_it(operator: Any, tmp_path: Path) -> None:
    clock = Clock()
    notices = asking(operator, tmp_path, clock)
    notices.ask()
    assert notices.due(1) is None
    operator.notice = dict(NOTICE)
    notices.ask()

    notice = notices.due(2)

    assert notice is not None
    assert notice.remaining == 600
    clock.now += 30
    assert notice.remaining == 570
    assert notice.reason == NOTICE["reason"]
    assert notice.saving()
    assert notice.saved(step=2, checkpoint="s3://bucket/2")
    assert operator.said == [
        {"path": "/v1/notice/a1", "state": "saving"},
        {"path": "/v1/notice/a1", "state": "saved", "step": 2, "checkpoint": "s3://bucket/2"},
    ]
    assert set(operator.tokens) == {"Bearer secret"}
    assert notices.due(3) is None, "it has saved"


def test_only_every_so_many_steps_are_asked_about(operator: Any, tmp_path: Path) -> None:
    operator.notice = dict(NOTICE)
    notices = asking(operator, tmp_path)
    notices.ask()

    assert [step for step in range(21) if notices.due(step, every=10)] == [0, 10, 20]


def test_a_notice_that_is_withdrawn_is_not_due(operator: Any, tmp_path: Path) -> None:
    operator.notice = dict(NOTICE)
    notices = asking(operator, tmp_path)
    notices.ask()
    notice = notices.due()
    assert notice is not None
    operator.notice = None

    assert not notice.saved()
    notices.ask()

    assert notices.due() is None
    assert notice.remaining == 0


def test_a_leader_that_knows_nothing_of_what_was_said_is_told_again(
    operator: Any, tmp_path: Path
) -> None:
    operator.notice = dict(NOTICE)
    notices = asking(operator, tmp_path)
    notices.ask()
    notice = notices.due()
    assert notice is not None and notice.saved(step=5)
    operator.said.clear()
    notices.ask()
    assert operator.said == []

    operator.notice = dict(NOTICE)  # of the next leader
    notices.ask()

    assert operator.said == [{"path": "/v1/notice/a1", "state": "saved", "step": 5}]


def test_while_nobody_answers_a_word_is_said_again(operator: Any, tmp_path: Path) -> None:
    operator.notice = dict(NOTICE)
    notices = asking(operator, tmp_path)
    notices.ask()
    notice = notices.due()
    assert notice is not None
    operator.refusals = [503, 429, 500]

    assert notice.saved()

    assert [each["state"] for each in operator.said] == ["saved"]


def test_a_word_that_nobody_hears_is_given_up(operator: Any, tmp_path: Path) -> None:
    operator.notice = dict(NOTICE)
    clock = Clock()
    notices = asking(operator, tmp_path, clock)
    notices.ask()
    notice = notices.due()
    assert notice is not None

    def passes(seconds: float) -> bool:
        clock.now += seconds
        return False

    vars(notices)["_pause"] = passes
    operator.refusals = [503] * 100

    assert not notice.saved()
    assert clock.now < 200


def test_refusals_and_odd_answers_are_no_notice(operator: Any, tmp_path: Path) -> None:
    notices = asking(operator, tmp_path)
    for code in (401, 429, 503):
        operator.refusals = [code]
        with pytest.raises(Away):
            notices.ask()
    odds: list[Any] = [[], {"id": "a"}, {**NOTICE, "deadline": "soon"}, {**NOTICE, "now": None}]
    for odd in odds:
        operator.notice = odd
        with pytest.raises(Away):
            notices.ask()
    (tmp_path / "token").unlink()
    with pytest.raises(Away):
        notices.ask()
    assert notices.due() is None


def test_a_thread_asks_for_whoever_trains(operator: Any, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    told, end = threading.Event(), threading.Event()

    def pause(seconds: float) -> bool:
        told.set()
        return end.wait()

    operator.notice = dict(NOTICE)
    notices = Notices(HttpSource(operator.url, token), pause)
    notices.due()
    assert told.wait(60)

    assert notices.due() is not None
    notices.close()
    end.set()


def test_a_pod_without_notices_is_never_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPRIEVE_NOTICE_URL", raising=False)
    notices = Notices()

    assert [notices.due(step, every=2) for step in range(4)] == [None] * 4
    assert not notices.report("saved")


def test_all_ranks_save_when_one_was_told(
    operator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, devices, others = [], [], [0, 1]

    def all_reduce(flag: list[int], op: str) -> None:
        asked.append((flag[0], op))
        flag[0] = max(flag[0], others.pop(0))

    class Tensor(list[int]):
        def item(self) -> int:
            return self[0]

    def tensor(values: list[int], device: str) -> Tensor:
        devices.append(device)
        return Tensor(values)

    distributed = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_backend=lambda: "nccl",
        all_reduce=all_reduce,
        ReduceOp=SimpleNamespace(MAX="max"),
    )
    torch = SimpleNamespace(distributed=distributed, tensor=tensor)
    monkeypatch.setitem(sys.modules, "torch", torch)
    notices = asking(operator, tmp_path)

    assert notices.due(10, every=10) is None
    assert notices.due(15, every=10) is None
    notice = notices.due(20, every=10)

    assert notice is not None
    assert asked == [(0, "max"), (0, "max")]
    assert devices == ["cuda", "cuda"]
    # It learns of its own notice when it reports.
    operator.notice = dict(NOTICE)
    assert notice.saved(step=20)
    assert operator.said == [{"path": "/v1/notice/a1", "state": "saved", "step": 20}]


def test_a_notice_that_the_loop_has_seen_is_reported_by_the_thread(
    operator: Any, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    notices = Notices(HttpSource(operator.url, token))
    operator.notice = NOTICE
    notices.ask()
    notices.ask()
    assert operator.said == []

    assert notices.due(1) is not None
    notices.close()
    notices.ask()

    assert operator.said[-1] == {"path": "/v1/notice/a1", "state": "saving"}


def test_a_pod_that_needs_longer_says_when_it_will_have_saved(
    operator: Any, tmp_path: Path
) -> None:
    clock = Clock()
    notices = asking(operator, tmp_path, clock)
    operator.notice = dict(NOTICE)
    notices.ask()
    notice = notices.due()
    assert notice is not None
    clock.now += 30

    assert notice.saving(seconds=600.5)

    assert operator.said[-1]["expected"] == "2026-03-04T10:10:31Z"


def test_an_ordinary_save_is_reported_once_and_at_most_once_a_minute(
    operator: Any, tmp_path: Path
) -> None:
    clock = Clock()
    notices = asking(operator, tmp_path, clock)
    notices.report_checkpoint()
    notices.checkpoint(10)
    clock.now += 7
    notices.report_checkpoint()
    notices.report_checkpoint()
    notices.checkpoint(20)
    clock.now += 30
    notices.report_checkpoint()
    clock.now += 30
    notices.report_checkpoint()

    assert operator.said == [
        {"path": "/v1/checkpoint", "ago": 7, "step": 10},
        {"path": "/v1/checkpoint", "ago": 60, "step": 20},
    ]


def test_a_save_that_nobody_heard_is_reported_again(operator: Any, tmp_path: Path) -> None:
    clock = Clock()
    notices = asking(operator, tmp_path, clock)
    notices.checkpoint()
    operator.refusals = [503, 404]
    with pytest.raises(Away):
        notices.report_checkpoint()
    clock.now += 90
    notices.report_checkpoint()
    notices.report_checkpoint()
    assert operator.said == []
    assert len(operator.tokens) == 2, "an operator that takes none down is not asked again"


def test_a_token_is_sent_to_no_other_server(operator: Any, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    operator.notice = dict(NOTICE)
    operator.refusals = [307]
    source = HttpSource(operator.url, tmp_path / "token")

    with pytest.raises(Away, match="307"):
        source.ask()

    assert operator.tokens == ["Bearer secret"]


def test_a_token_that_is_refused_is_named_once_and_its_successor_read(
    operator: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An expired token: the kubelet replaces the file, and nothing has to be started again."""
    token = tmp_path / "token"
    token.write_text("expired\n")
    operator.notice = dict(NOTICE)
    operator.refusals = [401, 401, 503]
    pauses: list[float] = []

    def pause(seconds: float) -> bool:
        pauses.append(seconds)
        if len(pauses) == 2:
            token.write_text("renewed\n")
        return len(pauses) == 4

    notices = Notices(HttpSource(operator.url, token), pause=pause)
    with caplog.at_level("INFO", "reprieve_notice"):
        notices._run()

    warnings = [each for each in caplog.records if each.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "audience reprieve.dev" in warnings[0].getMessage()
    assert operator.tokens == ["Bearer expired"] * 2 + ["Bearer renewed"] * 2
    assert notices.id == NOTICE["id"]
