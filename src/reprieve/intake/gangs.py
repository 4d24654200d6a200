"""Pods and PodGroups to what the gang records hold: keys, defaults and bad values.

What cannot be read falls back to its default and blocks no pod; only a pod whose minimum cannot be
read leaves its gang as it is. Source: specification of gang jobs, sections 1, 2, 3 and 11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubeworld.units.durations import SECOND, parse_duration
from kubeworld.units.untrusted import Unreadable, integer_or_none, read_json
from reprieve.api.gangs import KOORDINATOR, RELEASED, SCHEDULER_PLUGINS, PodGroup
from reprieve.engine.cluster.rows import Labels
from reprieve.engine.scheduling.gangs.records import Defaults, GangPod, GangSpec, MatchPolicy, Mode
from reprieve.units.ids import Uid

__all__ = [
    "KOORDINATOR_MINIMUM",
    "NAMING",
    "gang_annotations",
    "gang_name",
    "group_spec",
    "is_by_label",
    "left_by_gang",
    "pod_member",
]

_PREFIX: Final = "gang.scheduling.koordinator.sh/"
_NAME: Final = f"{_PREFIX}name"
KOORDINATOR_MINIMUM: Final = f"{_PREFIX}min-available"
_LIGHT_NAME: Final = "pod-group.scheduling.sigs.k8s.io/name"
_LIGHT_MINIMUM: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
_POLICY_ALIAS: Final = "pod-group.scheduling.sigs.k8s.io/match-policy"

#: Labels and annotations of which a pod has one at least if it has a gang.
NAMING: Final = frozenset((KOORDINATOR.label, SCHEDULER_PLUGINS.label, _LIGHT_NAME, _NAME))

Texts = Mapping[str, str]


def gang_name(labels: Texts, annotations: Texts) -> str:
    """Return the name of the pod's gang, empty when it has none."""
    return (
        labels.get(KOORDINATOR.label)
        or labels.get(SCHEDULER_PLUGINS.label)
        or labels.get(_LIGHT_NAME)
        or annotations.get(_NAME)
        or ""
    )


def gang_annotations(annotations: Texts) -> Labels:
    """Return the annotations that state what a gang is, sorted by key."""
    return tuple(
        sorted(
            (key, value)
            for key, value in annotations.items()
            if key.startswith(_PREFIX) or key == _POLICY_ALIAS
        )
    )


def left_by_gang(annotations: Texts) -> tuple[str, ...]:
    """Return which annotations a pod has that members get when they are bound together."""
    return tuple(key for key in RELEASED if key in annotations)


def is_by_label(labels: Texts) -> bool:
    """Return whether the pod waits for a PodGroup object."""
    return bool(labels.get(KOORDINATOR.label) or labels.get(SCHEDULER_PLUGINS.label))


def pod_member(
    uid: Uid,
    namespace: str,
    name: str,
    labels: Texts,
    annotations: Texts,
    *,
    bound: bool,
    defaults: Defaults,
) -> GangPod | None:
    """Return the pod as a member, None when it is of no gang."""
    gang = gang_name(labels, annotations)
    if not gang:
        return None
    id = f"{namespace}/{gang}"
    crd = is_by_label(labels)
    spec = None if crd else _annotated(id, labels, annotations, defaults)
    return GangPod(uid, namespace, name, id, bound, crd, spec)


def group_spec(group: PodGroup, defaults: Defaults) -> GangSpec:
    """Return what a PodGroup states of its gang."""
    metadata, spec = group.metadata, group.spec
    id = f"{metadata.namespace}/{metadata.name}"
    seconds = spec.schedule_timeout_seconds
    wait = seconds * SECOND if seconds is not None and seconds > 0 else defaults.wait
    return _common(id, spec.min_member, wait, metadata.annotations or {}, defaults)


def _annotated(id: str, labels: Texts, annotations: Texts, defaults: Defaults) -> GangSpec | None:
    minimum = integer_or_none(labels.get(_LIGHT_MINIMUM) or annotations.get(KOORDINATOR_MINIMUM))
    if minimum is None:
        return None
    wait = defaults.wait
    given = annotations.get(f"{_PREFIX}waiting-time")
    if given:
        try:
            wait = parse_duration(given)
        except ValueError:
            wait = 0
        wait = wait if wait > 0 else defaults.wait
    return _common(id, minimum, wait, annotations, defaults)


def _common(id: str, minimum: int, wait: int, annotations: Texts, defaults: Defaults) -> GangSpec:
    total = integer_or_none(annotations.get(f"{_PREFIX}total-number"))
    mode = annotations.get(f"{_PREFIX}mode", "")
    policy = annotations.get(f"{_PREFIX}match-policy") or annotations.get(_POLICY_ALIAS, "")
    return GangSpec(
        minimum=minimum,
        total=minimum if total is None or total < minimum else total,
        wait=wait,
        mode=mode if mode in set(Mode) else Mode.STRICT,
        policy=policy if policy in set(MatchPolicy) else defaults.policy,
        groups=_groups(annotations.get(f"{_PREFIX}groups", ""), id),
    )


def _groups(text: str, id: str) -> tuple[str, ...]:
    try:
        listed = read_json(text) if text else []
    except Unreadable:
        listed = []
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        listed = []
    return tuple(sorted(set(listed))) or (id,)
