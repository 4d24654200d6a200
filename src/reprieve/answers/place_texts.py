"""What a topology lacks, by the message of a Workload and the level that its pods request.

The message counts what fits; the level stands in the Workload's `topologyRequest`. Source:
specification of topology-aware scheduling, sections 4.4 and 9 (7).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kubeworld.units.untrusted import Form
from reprieve.answers.sources import Json

__all__ = ["short_of_places"]

_LONGEST: Final = 32_768
_COULD_NOT: Final = "couldn't assign flavors to pod set "
_POD_SET: Final = Form(_COULD_NOT + r'([^:]++): topology "[^"]++" ', _LONGEST)
_SOME: Final = Form(r"allows to fit only ([0-9]++) out of ([0-9]++) (pod|slice)", _LONGEST)
_NONE: Final = Form(r"doesn't allow to fit any of ([0-9]++) (pod|slice)", _LONGEST)
_LAYERED: Final = "doesn't allow to fit"
_LAYER: Final = Form(r"; ([0-9]++)/([0-9]++) slice\(s\) fit on level ([^;\s]++)", _LONGEST)


def short_of_places(message: str, pod_sets: Sequence[Json]) -> str:
    """Return where the first pod set without places lacks capacity, empty where unknown."""
    required = {
        str(each.get("name") or "main"): str((each.get("topologyRequest") or {}).get("required"))
        for each in pod_sets
        if (each.get("topologyRequest") or {}).get("required")
    }
    start = message.find(_COULD_NOT)
    while start >= 0:
        found = _POD_SET.match(message, start)
        if found is not None:
            said = _counted(message, found.end(), required.get(found[1], ""))
            if said:
                return said
        start = message.find(_COULD_NOT, start + 1)
    return ""


def _counted(message: str, start: int, level: str) -> str:
    some, none = _SOME.match(message, start), _NONE.match(message, start)
    if some is not None:
        fit, wanted, unit = some.groups()
    elif none is not None:
        fit, (wanted, unit) = "0", none.groups()
    else:
        layers = [*_layers(message, start)]
        return ", ".join(
            f"{fit} of {wanted} slices fit on level {layer.removesuffix('.')}"
            for fit, wanted, layer in layers
        )
    units = f"{wanted} {unit}{'' if wanted == '1' else 's'}"
    if not level:
        return f"the whole topology has capacity for {fit} of {units}"
    best = f": the best has capacity for {fit}" if fit != "0" else ""
    return f"no {level} has capacity for {units}{best}"


def _layers(message: str, start: int) -> Iterator[tuple[str, ...]]:
    if not message.startswith(_LAYERED, start):
        return
    place = start + len(_LAYERED)
    while (match := _LAYER.match(message, place)) is not None:
        yield match.groups()
        place = match.end()
