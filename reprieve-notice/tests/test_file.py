"""A notice in a file: read anew, withdrawn, and heard by nobody until the pod ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reprieve_notice import Notices
from reprieve_notice.file import FileSource

_NOW = 1_772_618_400.0  # 2026-03-04T10:00:00Z


def notice(state: str = "Noticed", id: str = "a1", deadline: str = "2026-03-04T10:10:00Z") -> str:
    return json.dumps({"id": id, "state": state, "deadline": deadline, "reason": "why"})


def source(path: Path, slept: list[float] | None = None) -> FileSource:
    """Return a source whose clocks pass while it waits."""
    waits = [] if slept is None else slept
    return FileSource(
        path,
        monotonic=lambda: 5.0 + sum(waits),
        wall=lambda: _NOW + sum(waits),
        sleep=waits.append,
    )


def asking(path: Path) -> Notices:
    found = Notices(source(path), pause=lambda seconds: False)
    vars(found)["_start"] = lambda: None
    return found


def test_a_pod_is_due_once_its_file_says_so_until_it_has_saved(tmp_path: Path) -> None:
    path = tmp_path / "notice"
    path.write_text("")
    notices = asking(path)
    notices.ask()
    assert notices.due() is None

    path.write_text(notice())
    notices.ask()
    found = notices.due()

    assert found is not None
    assert (found.id, found.reason, found.remaining) == ("a1", "why", 600)
    assert not found.saved(step=3), "nobody hears it: the pod has saved when it ends"
    notices.ask()
    assert notices.due() is None

    path.write_text(notice(id="a2"))
    notices.ask()
    assert notices.due() is not None


def test_a_notice_that_is_withdrawn_is_none(tmp_path: Path) -> None:
    path = tmp_path / "notice"
    path.write_text(notice())
    notices = asking(path)
    notices.ask()
    assert notices.due() is not None

    path.write_text(notice("Pardoned"))
    notices.ask()

    assert notices.due() is None


def test_a_poll_ends_when_the_file_comes_or_its_time_is_over(tmp_path: Path) -> None:
    path, slept = tmp_path / "notice", list[float]()
    assert source(path, slept).ask(5) is None
    assert sum(slept) == 5
    path.write_text(notice())
    slept.clear()
    assert source(path, slept).ask(5) is not None
    assert slept == []


@pytest.mark.parametrize(
    "text",
    ["null", "[]", "7", "{", "{}", notice(deadline="soon"), '{"id": "a"}', "\udcff", "{" * 5_000],
)
def test_what_is_no_notice_tells_nobody(text: str, tmp_path: Path) -> None:
    path = tmp_path / "notice"
    path.write_bytes(text.encode(errors="surrogateescape"))
    assert source(path).ask() is None


def test_the_pod_says_where_its_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notice"
    path.write_text(notice())
    monkeypatch.delenv("REPRIEVE_NOTICE_URL", raising=False)
    monkeypatch.setenv("REPRIEVE_NOTICE_FILE", str(path))
    notices: Any = Notices()
    vars(notices)["_start"] = lambda: None
    notices.ask()
    assert notices.due() is not None
