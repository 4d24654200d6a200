"""The query to the API server about a document that names something of the same file.

The server judges each document as if the others were not there. So the query about a pod, or a
PodGroup, omits the PriorityClass, RuntimeClass and ServiceAccount that an earlier document creates;
the document is used with them, and without what admission made of their absence. Without a class of
its own it gets the PriorityClass of an earlier document that is every pod's.

What a later document creates is not there yet when the server judges: it refuses then, as it would.

Source: the API server's admission plugins Priority, RuntimeClass and ServiceAccount.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from reprieve.kube.bodies import Json

__all__ = ["AskedWithout", "asked_without"]

_ADMITTED: Final = (("v1", "Pod"), ("scheduling.k8s.io/", "PodGroup"))
_PRIORITY: Final = "priorityClassName"
_NAMING: Final = (
    (_PRIORITY, "PriorityClass"),
    ("runtimeClassName", "RuntimeClass"),
    ("serviceAccountName", "ServiceAccount"),
    ("serviceAccount", "ServiceAccount"),
)
#: What the server works out of a PriorityClass, or of there being none.
_OF_PRIORITY: Final = (_PRIORITY, "priority", "preemptionPolicy")


@dataclass(frozen=True, slots=True)
class AskedWithout:
    """The query to the server, and how its answer becomes what would be stored.

    Attributes:
        object: the document without what is not there yet.
        named: fields of its spec that name that.
        judged_anew: fields of the spec that state otherwise once it is there.
    """

    object: Json
    named: Json
    judged_anew: Collection[str]

    def stored(self, answer: Json) -> Json:
        """Return the server's answer with the names in it."""
        if not self.named and not self.judged_anew:
            return answer
        kept = {k: v for k, v in answer["spec"].items() if k not in self.judged_anew}
        return {**answer, "spec": {**kept, **self.named}}


def asked_without(obj: Json, earlier: Sequence[Json]) -> AskedWithout:
    """Return the query to the server about a document that comes after others."""
    spec = obj.get("spec")
    admitted = any(
        obj["kind"] == kind and str(obj["apiVersion"]).startswith(version)
        for version, kind in _ADMITTED
    )
    if not admitted or not isinstance(spec, dict):
        return AskedWithout(obj, {}, ())
    new = {(each["kind"], each["metadata"].get("name")) for each in earlier}
    named = {
        field: spec[field]
        for field, kind in _NAMING
        if isinstance(spec.get(field), str) and (kind, spec[field]) in new
    }
    by_default = not spec.get(_PRIORITY) and any(
        each["kind"] == "PriorityClass" and each.get("globalDefault") is True for each in earlier
    )
    anew = _OF_PRIORITY if by_default or _PRIORITY in named else ()
    kept = {field: value for field, value in spec.items() if field not in named}
    return AskedWithout({**obj, "spec": kept}, named, anew)
