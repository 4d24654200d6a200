"""Which pods the selectors of one resource's objects match, kept up to date change by change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import Change, ChangeType, Object
from kubeworld.objects.pods import is_ready
from kubeworld.objects.selectors import matches_labels

__all__ = ["Selections"]

Selector: TypeAlias = Mapping[str, Any] | None


class Selections:
    """The pods of each object of `resource`; `selector_of` gives its LabelSelector."""

    def __init__(
        self, informer: Informer, resource: str, selector_of: Callable[[Object], Selector]
    ) -> None:
        self._informer = informer
        self._resource = resource
        self._selector_of = selector_of
        # namespace -> key -> selector, for all objects of the resource.
        self._selectors: defaultdict[str, dict[Key, Selector]] = defaultdict(dict)
        # For the same keys: the keys of the pods that match.
        self._members: dict[Key, dict[Key, None]] = {}

    def observe(self, change: Change, before: Object | None) -> Iterable[Key]:
        """Return the objects that this change concerns: itself, or those that match the pod."""
        if change.resource == self._resource:
            return [self._observe_object(change)]
        return self._observe_pod(change, before) if change.resource == "pods" else []

    def pods(self, key: Key) -> list[Object]:
        """Return the pods that the object selects."""
        found = (self._informer.at(pod) for pod in self._members.get(key, ()))
        return [pod for pod in found if pod is not None]

    def _observe_object(self, change: Change) -> Key:
        key = key_of(self._resource, change.object)
        known = self._selectors[key.namespace]
        if change.type is ChangeType.DELETED:
            known.pop(key, None)
            self._members.pop(key, None)
            return key
        selector = self._selector_of(change.object)
        if key not in known or known[key] != selector:
            known[key] = selector
            self._members[key] = {
                key_of("pods", pod): None
                for pod in self._informer.all("pods")
                if pod["metadata"].get("namespace", "") == key.namespace
                and matches_labels(selector, pod["metadata"].get("labels"))
            }
        return key

    def _observe_pod(self, change: Change, before: Object | None) -> Iterable[Key]:
        pod = key_of("pods", change.object)
        labels, gone = change.object["metadata"].get("labels"), change.type is ChangeType.DELETED
        same = not gone and before is not None and _state(before) == _state(change.object)
        concerned = []
        for key, selector in self._selectors.get(pod.namespace, {}).items():
            members = self._members[key]
            was, now = pod in members, not gone and matches_labels(selector, labels)
            if now:
                members[pod] = None
            elif was:
                del members[pod]
            if was != now or (now and not same):
                concerned.append(key)
        return concerned


def _state(pod: Object) -> tuple[object, ...]:
    """Return what about a pod matters to those that select it."""
    status = pod.get("status") or {}
    leaving = bool(pod["metadata"].get("deletionTimestamp"))
    return status.get("phase"), is_ready(pod), status.get("podIP"), leaving
