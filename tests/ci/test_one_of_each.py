"""What the whole house has once: who posts events, and what names an object in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src" / "reprieve"


def _found(pattern: str) -> Iterator[str]:
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text()
        yield from (path.relative_to(SOURCES).as_posix() for _ in re.finditer(pattern, text))


def test_one_module_posts_events() -> None:
    resource = r'Resource\(\s*"events\.k8s\.io"'
    # The overlay of a question keeps the plural: what is told there reaches no server.
    assert list(_found(resource)) == ["kube/events.py", "whatif/overlay.py"]
    writes = r"\b(create|patch|update|replace)\(\s*_?EVENTS\b"
    assert list(_found(writes)) == ["kube/events.py", "kube/events.py"]


def test_the_process_has_one_recorder_for_all_planes() -> None:
    # The second is that of a question, which never runs; the third that of a scenario's scheduler.
    assert list(_found(r"\bEventRecorder\(")) == [
        "operator/process.py",
        "scenarios/scheduler.py",
        "whatif/run.py",
    ]


def test_events_have_one_text_and_one_reference() -> None:
    assert list(_found(r"\nclass EventText\b")) == ["wording/events.py"]
    assert list(_found(r"\nclass Reference:")) == ["kube/references.py"]
