"""How many pods a plan makes at most, so that one number in a manifest does not fill the memory.

1. The pods of what is submitted are 20,000 at most, those that are submitted as such among them:
   with more the plan is not made, and what requests them is named with its place.
2. Work that the cluster holds already gets 20,000 in place of those that it lacks; what lacks more
   than are left gets none, with a warning. A tenant who stores a set of a thousand million
   replicas, which no cluster fills, so spoils no other tenant's plan.

Source: specification of explanations and plans; the bound is ours, four times the largest gang that
the project is measured with.
"""

from __future__ import annotations

import logging
from typing import Final

from kubeworld.objects.paths import Json
from reprieve.units.errors import UsageError

__all__ = ["MOST_PODS", "MadePods"]

MOST_PODS: Final = 20_000

_log = logging.getLogger("reprieve.whatif")


class MadePods:
    """Counts the pods that are made; `most` for what is submitted and for all else each."""

    def __init__(self, most: int = MOST_PODS) -> None:
        self._most = most
        self._of_submitted: dict[str, int] = {}  # pods wanted, by uid of what was submitted
        self._total = 0
        self._places: dict[str, str] = {}
        self._left_for_others = most
        self._warned: set[str] = set()

    def submitted(self, obj: Json, place: str) -> None:
        """Note what is submitted, and where it stands; a pod counts at once."""
        uid = obj["metadata"]["uid"]
        self._places[uid] = place
        if obj["kind"] == "Pod":
            self._count(uid, obj, 1)

    def allowed(self, owner: Json, wanted: int, lacking: int) -> int:
        """Return how many pods may be made of those that an owner lacks: all or none.

        `wanted`: all that it is to have.

        Raises:
            UsageError: it was submitted, and wants more than may be made.
        """
        if lacking <= 0:
            return 0
        uid = self._submitted_as(owner)
        if uid is not None:
            self._count(uid, owner, wanted)
            return lacking
        if lacking > self._left_for_others:
            self._warn(owner, lacking)
            return 0
        self._left_for_others -= lacking
        return lacking

    def _submitted_as(self, owner: Json) -> str | None:
        metadata = owner["metadata"]
        above = (each.get("uid") for each in metadata.get("ownerReferences") or ())
        return next((uid for uid in (metadata["uid"], *above) if uid in self._places), None)

    def _count(self, uid: str, owner: Json, wanted: int) -> None:
        before = self._of_submitted.get(uid, 0)
        if wanted <= before:
            return
        self._of_submitted[uid] = wanted
        self._total += wanted - before
        total = self._total
        if total > self._most:
            raise UsageError(
                f"{self._places[uid]}: {_title(owner)}: {wanted} {_pods(wanted)}"
                + (f", {total} with those before" if total > wanted else "")
                + f"; accepted: at most {self._most} in all of a plan"
            )

    def _warn(self, owner: Json, lacking: int) -> None:
        uid = owner["metadata"]["uid"]
        if uid not in self._warned:
            self._warned.add(uid)
            _log.warning(
                "%s lacks %s pods, which are not made: at most %s are, of work that is there",
                _title(owner),
                lacking,
                self._most,
            )


def _pods(number: int) -> str:
    return "pod" if number == 1 else "pods"


def _title(owner: Json) -> str:
    metadata = owner["metadata"]
    return f"{owner['kind']} {metadata.get('namespace', '')}/{metadata['name']}"
