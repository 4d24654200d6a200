"""One situation: what the cluster holds, what is submitted, and what an expert would answer.

`expects` was written before the program was asked: phrases that the answers of `explain` and of
`plan` hold. No server: snapshots are made here, and the planes themselves decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import msgspec

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.answers.asking import answer
from reprieve.answers.decided import Decided
from reprieve.answers.diagnosing import asked_of_planes
from reprieve.answers.kinds import asked_of
from reprieve.answers.layout import Style, lines_of
from reprieve.answers.sources import SnapshotSource
from reprieve.answers.unit import Unit
from reprieve.cli.sessions.deciding import deciders_of
from reprieve.cli.texts.plan_text import plan_text
from reprieve.engine.plan import Plane
from reprieve.whatif.questions.planning import planned
from reprieve.whatif.run import settled
from reprieve.whatif.snapshots.snapshot import Snapshot
from tests.whatif.plan_stories import Object, submitted
from tests.whatif.test_kinds import snapshot

__all__ = ["SITUATIONS", "Situation", "explained", "served", "situation", "text_of", "told"]

_ENDLESS: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class Situation:
    """What is there, what was submitted before in waves, what is asked about, and the answer.

    `asks`: the object that is explained, the first of `mine` by default. `plan_expects` and
    `explain_expects` are phrases of one of the two alone. `never`: phrases of neither. `plans`:
    whether `mine` can be planned.
    """

    there: Sequence[Object]
    mine: Sequence[Object]
    expects: Sequence[str]
    before: Sequence[Sequence[Object]] = ()
    controllers: str = "scheduling"
    asks: str = ""
    plan_expects: Sequence[str] = ()
    explain_expects: Sequence[str] = ()
    never: Sequence[str] = ()
    plans: bool = True


SITUATIONS: Final[dict[str, Callable[[], Situation]]] = {}


def situation(make: Callable[[], Situation]) -> Callable[[], Situation]:
    """Register a situation under the name of the function that makes it."""
    name = make.__name__.replace("_", "-")
    assert name not in SITUATIONS
    SITUATIONS[name] = make
    return make


def _arranged(found: Situation) -> Snapshot:
    deciders = deciders_of(found.controllers, ("default-scheduler",), {})
    held = served(snapshot(deciders, *found.there))
    for wave in found.before:
        held = settled(held, deciders, submitted(wave)).overlay.frozen()
    return held


def served(held: Snapshot) -> Snapshot:
    """Return the snapshot with what a server says that it serves."""
    served: dict[str, list[dict[str, object]]] = {}
    for listed in held.kinds.values():
        resource = listed.resource
        path = f"/apis/{resource.api_version}" if resource.group else "/api/v1"
        named = {"name": resource.plural, "kind": resource.kind, "namespaced": resource.namespaced}
        served.setdefault(path, []).append(named)
    documents = {path: msgspec.json.encode({"resources": each}) for path, each in served.items()}
    return replace(held, documents=documents)


def explained(found: Situation) -> str:
    """Return what `explain` says once it was submitted."""
    deciders = deciders_of(found.controllers, ("default-scheduler",), {})
    held = settled(_arranged(found), deciders, submitted(found.mine)).overlay.frozen()

    async def diagnose(unit: Unit, plane: Plane) -> Decided | None:
        return await asked_of_planes(unit, settled(held, deciders), plane, deciders, _ENDLESS)

    first = found.mine[0]
    name = found.asks or f"{first['kind'].lower()}/{first['metadata']['name']}"
    told = asyncio.run(
        answer(
            SnapshotSource(held),
            asked_of(name),
            "team",
            operator_namespace="reprieve-system",
            diagnose=diagnose,
        )
    )
    lines = lines_of(told, Style())
    return "\n".join((f"$ reprieve explain {name} -n team", *lines))


def planned_text(found: Situation) -> str:
    """Return what `plan` says before it is submitted."""
    deciders = deciders_of(found.controllers, ("default-scheduler",), {})
    held = _arranged(found)
    wanted = submitted(found.mine)
    told = asyncio.run(planned(None, held, deciders, wanted, trying=60.0, asking=_ENDLESS))
    now = Nanos(told.snapshot.at + 4 * SECOND // 10)
    lines = plan_text(told, found.controllers.split(","), now=now)
    return "\n".join(("$ reprieve plan -f mine.yaml", *lines))


@cache
def told(name: str) -> tuple[str, str]:
    """Return what `explain` and `plan` say; the latter is empty where nothing can be planned."""
    found = SITUATIONS[name]()
    return explained(found), planned_text(found) if found.plans else ""


def text_of(name: str) -> str:
    """Return the golden text of a situation: the expert's phrases, then both answers."""
    found = SITUATIONS[name]()
    explain, plan = told(name)
    expert = [*found.expects, *found.explain_expects, *found.plan_expects]
    parts = [f"=== {name}", *(f"expert: {each}" for each in expert), explain]
    return "\n".join([*parts, *([plan] if plan else []), ""])
