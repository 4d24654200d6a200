"""What an AppWrapper's controller makes of its components.

Each object that it makes has the wrapper's label, and so have the templates of its pods, which also
get what `podSetInfos` of the component states: labels, annotations, a node selector, tolerations
and scheduling gates, one entry for each pod set. Templates are those that `podSets` declares; where
it declares none, each part of the object that looks like a template of pods, in its order.

Source: https://github.com/project-codeflare/appwrapper, `internal/controller/appwrapper`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from kubeworld.objects.paths import indexed

__all__ = ["LABEL", "wrapped_objects"]

Object = dict[str, Any]
LABEL: Final = "workload.codeflare.dev/appwrapper"


def wrapped_objects(name: str, spec: Object) -> list[Object]:
    """Return the objects of an AppWrapper's components as its controller creates them."""
    made = []
    for component in spec.get("components") or ():
        whole = component.get("template")
        if not (isinstance(whole, dict) and whole.get("apiVersion") and whole.get("kind")):
            continue
        mine: Object = copy.deepcopy(component)
        infos: list[Object] = mine.get("podSetInfos") or []
        for number, template in enumerate(_templates(mine)):
            _inform(template, {"labels": {LABEL: name}})
            _inform(template, infos[number] if number < len(infos) else {})
        _inform(mine["template"], {"labels": {LABEL: name}})
        made.append(mine["template"])
    return made


def _templates(component: Object) -> Iterator[Object]:
    declared = component.get("podSets")
    if not declared:
        yield from _found(component["template"])
        return
    for each in declared:
        found = indexed(component, str(each.get("path") or ""))
        if isinstance(found, dict):
            yield found


def _found(part: Any) -> Iterator[Object]:
    if isinstance(part, dict):
        spec = part.get("spec")
        if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
            yield part
            return
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from _found(each)


def _inform(template: Object, info: Object) -> None:
    metadata = template.setdefault("metadata", {})
    for key in ("labels", "annotations"):
        if info.get(key):
            metadata[key] = {**(metadata.get(key) or {}), **info[key]}
    spec = template.get("spec")
    if not isinstance(spec, dict):
        return
    if info.get("nodeSelector"):
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **info["nodeSelector"]}
    for key in ("tolerations", "schedulingGates"):
        if info.get(key):
            have = spec.get(key) or []
            spec[key] = [*have, *(each for each in info[key] if each not in have)]
