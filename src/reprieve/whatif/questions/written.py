"""What a change that a plan names is in the manifests themselves: which fields become what.

The engine names a change by the path within the object that it decided about, a Workload often;
who wrote a Job knows `spec.parallelism`. What admission fills in by itself is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from kubeworld.objects.paths import Json
from reprieve.engine.diagnosis.model import Fix
from reprieve.whatif.happened import Run
from reprieve.whatif.questions.answer import Answer
from reprieve.whatif.questions.changed import Unwritable, changed_by
from reprieve.whatif.questions.verifying import places_of
from reprieve.wording.changes import Written
from reprieve.wording.node_refusals import toleration_text

__all__ = ["differences", "with_written", "written_by"]

_FILLED_IN: Final = (".priority", ".preemptionPolicy")
_LONGEST: Final = 60
_ABSENT: Final = object()


def with_written(run: Run, answer: Answer) -> Answer:
    """Return the answer with what each change is in the manifests that were submitted."""
    outcomes = []
    for each in answer.outcomes:
        if each.diagnosis is not None and each.diagnosis.fixes:
            objects = [run.submitted[place] for place in places_of(run, each)]
            written = {fix: written_by(fix, objects) for fix in each.diagnosis.fixes}
            each = replace(each, written=written)
        outcomes.append(each)
    return answer.judged_again(tuple(outcomes))


def written_by(fix: Fix, submitted: Sequence[Json]) -> tuple[Written, ...]:
    """Return the fields that a change writes, each once; none where nothing can be written.

    `submitted`: a pod, a job, or a group with its pods, of which the same fields are stated once.
    """
    try:
        changed = changed_by(fix, submitted)
    except Unwritable:
        return ()
    found: dict[Written, None] = {}
    for before, after in zip(submitted, changed, strict=True):
        found.update(dict.fromkeys(differences(before, after)))
    return tuple(each for each in found if not each.path.endswith(_FILLED_IN))


def differences(before: Any, after: Any, path: str = "") -> Iterator[Written]:
    """Yield the fields in which two objects differ, as far down as both have them."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            below = f"{path}[{name}]" if "." in name or "/" in name else f"{path}.{name}"
            yield from differences(
                before.get(name, _ABSENT), after.get(name, _ABSENT), below.removeprefix(".")
            )
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, f"{path}[{place}]")
    elif path.endswith("tolerations") and isinstance(after, list):
        known = before if isinstance(before, list) else []
        for each in after:
            if each not in known:
                yield Written(path, "", _flow(each), added=True)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after) + 1:
        place = next((n for n, each in enumerate(after) if before[n] != each), len(after))
        yield Written(f"{path}[{place}]", _text(before[place]), "")
    elif before != after:
        yield Written(path, _text(before), _text(after))


def _flow(toleration: Json) -> str:
    """Return a toleration as YAML in one line, ready to be pasted."""
    value = f"={toleration['value']}" if toleration.get("value") else ""
    return toleration_text(f"{toleration.get('key', '')}{value}:{toleration.get('effect', '')}")


def _text(value: Any) -> str:
    """Return a value as a person would write it, empty for none."""
    if value is _ABSENT or value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
