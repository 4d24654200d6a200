"""Pods are created, changed, bound, finished, deleted: effects on numbers, slots and pending pods.

A pod without node is pending, or assumed when we have bound it and not seen that yet; a bound one
has a slot and counts on its node; a finished one has only its row, so that an older event of it is
still known to be old. All of it is O(resources).
"""

from __future__ import annotations

from dataclasses import replace

from reprieve.engine.cluster.columns import PodColumns
from reprieve.engine.cluster.overlay import Assumption
from reprieve.engine.cluster.rows import WITH_GROUP, PodLabels, PodRow
from reprieve.engine.cluster.snapshot import NO_START, Flag, Pending
from reprieve.engine.cluster.state import NOWHERE, HeldPod, State
from reprieve.units.ids import Uid

__all__ = ["apply_pod", "assume_pod", "end_pod", "show", "unassume"]


def apply_pod(state: State, row: PodRow) -> None:
    """Apply a row; one older than the row held, of this pod or its successor, is dropped."""
    pod = state.pods.get(row.uid)
    if pod is None:
        key = f"{row.namespace}/{row.name}"
        other = state.pod_names.get(key)
        if other is not None:
            if row.version < state.pods[other].row.version:
                return
            end_pod(state, other)
        state.pod_names[key] = row.uid
        pod = state.pods[row.uid] = HeldPod(row, key)
        # No work waits for one that was not there before, and nothing was done to it.
        _add(state, pod)
        return
    old = pod.row
    if row.version < old.version:
        return
    if (
        row.pod_class is old.pod_class
        and row.node == old.node
        and row.finished == old.finished
        and row.group == old.group
        and row.labels == old.labels
    ):
        pod.row = row
        if pod.slot >= 0:
            _set_facts(state.placed, pod.slot, row, _flags(row))
        elif not row.finished:
            show(state, pod)
        return
    before = replace(pod)
    pod.row = row
    assumption = state.overlay.assumed.get(row.uid)
    unassume(state, row.uid)
    _start(state, pod)
    if assumption is not None and pod.slot < 0 and not pod.finished:
        assume_pod(state, pod, assumption.node, assumption.deadline)
    _release(state, before)  # after the new numbers are in use, so that shared ones stay


def end_pod(state: State, uid: Uid) -> None:
    """Forget a pod and what we did to it."""
    unassume(state, uid)
    state.overlay.nominated.pop(uid, None)
    _hide(state, uid)
    pod = state.pods.pop(uid)
    del state.pod_names[pod.key]
    _release(state, pod)


def assume_pod(state: State, pod: HeldPod, node: str, deadline: int) -> None:
    """Give a pending pod an assumed slot."""
    number = state.acquire_node(node)
    slot = _slot(state, state.assumed, pod, number, _flags(pod.row) | Flag.ASSUMED)
    assumption = Assumption(node, number, slot, pod.pod_class, deadline)
    state.overlay.assumed[pod.row.uid] = assumption
    _hide(state, pod.row.uid)


def unassume(state: State, uid: Uid) -> None:
    """Free the assumed slot of a pod, if it has one."""
    held = state.overlay.assumed.pop(uid, None)
    if held is not None:
        state.assumed.remove(held.slot, held.node_number, held.pod_class, state.class_columns)
        state.nodes.drop(held.node_number)


def show(state: State, pod: HeldPod) -> None:
    """Bring a pod without node up to date: among the pending, or in its assumed slot."""
    row = pod.row
    overlay = state.overlay
    expected = overlay.nominated.get(row.uid)
    if expected is not None and expected.node == row.nominated:
        del overlay.nominated[row.uid]
        expected = None
    assumption = overlay.assumed.get(row.uid)
    if assumption is not None:
        flags = _flags(row) | Flag.ASSUMED
        _set_facts(state.assumed, assumption.slot, row, flags)
        return
    if expected is not None:
        row = replace(row, nominated=expected.node)
    state.pending[row.uid] = Pending(row, pod.pod_class, pod.labels)
    state.changed.add("pending")
    if row.nominated:
        state.nominated.add(row.uid)
        state.changed.add("nominations")
    else:
        _end_nomination(state, row.uid)


def _start(state: State, pod: HeldPod) -> None:
    """Have the pod begin anew with its row, if that is not pending as before."""
    row = pod.row
    pod.slot, pod.node = -1, NOWHERE
    if row.finished or row.node:
        state.overlay.nominated.pop(row.uid, None)
        _hide(state, row.uid)
    _add(state, pod)


def _add(state: State, pod: HeldPod) -> None:
    """Give a pod without slot its numbers, and its slot or its place among the pending."""
    row = pod.row
    pod.finished = row.finished
    if row.finished:
        return
    pod.pod_class = state.acquire_class(row.pod_class)
    pod.labels = state.labels.acquire(PodLabels(row.namespace, row.labels))
    pod.group = state.groups.acquire(f"{row.namespace}/{row.group}") if row.group else -1
    if not row.node:
        show(state, pod)
        return
    pod.node = state.acquire_node(row.node)
    pod.slot = _slot(state, state.placed, pod, pod.node, _flags(row))


def _release(state: State, pod: HeldPod) -> None:
    if pod.finished:
        return
    if pod.slot >= 0:
        state.placed.remove(pod.slot, pod.node, pod.pod_class, state.class_columns)
        state.nodes.drop(pod.node)
    state.classes.drop(pod.pod_class)
    state.labels.drop(pod.labels)
    if pod.group >= 0:
        state.groups.drop(pod.group)


def _slot(state: State, columns: PodColumns, pod: HeldPod, node: int, flags: int) -> int:
    row = pod.row
    slot = columns.add(
        row.uid, pod.key, node, pod.pod_class, pod.labels, pod.group, state.class_columns
    )
    _set_facts(columns, slot, row, flags)
    return slot


def _set_facts(columns: PodColumns, slot: int, row: PodRow, flags: int) -> None:
    columns.set_facts(
        slot,
        row.priority,
        NO_START if row.start is None else row.start,
        row.checkpoint,
        flags,
        row.protection,
        row.min_runtime,
    )


def _hide(state: State, uid: Uid) -> None:
    if state.pending.pop(uid, None) is not None:
        state.changed.add("pending")
        _end_nomination(state, uid)


def _end_nomination(state: State, uid: Uid) -> None:
    if uid in state.nominated:
        state.nominated.discard(uid)
        state.changed.add("nominations")


def _flags(row: PodRow) -> int:
    flags = int(Flag.WITH_GROUP) if row.disruption == WITH_GROUP else 0
    if not row.deleting:
        return flags
    return flags | (Flag.DELETING | Flag.PREEMPTED if row.preempted else Flag.DELETING)
