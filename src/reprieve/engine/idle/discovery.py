"""Which root owner a pod belongs to, and how its GpuWorkload is called.

The walk follows ownerReferences with `controller: true` upwards, at most ten objects, the pod
included. It does no I/O: `resolve_root` and `owns` are generators that yield a `Lookup` and are
sent what was found; a driver answers from a cache or the API server:

    walk = resolve_root(lookup)
    try:
        wanted = next(walk)
        while True:
            wanted = walk.send(answer(wanted))
    except StopIteration as end:
        root = end.value

An owner found with another uid than the reference names counts as missing (hazard H7), and a Node
is never a root (H11). A reference is written by the creator of the object that has it. So a root
that can state its children is queried: where it, or an object on the way to it, does not select its
child, the way ends at that child, which is the root; one that lists its children and does not list
this one yet is queried again. A root whose kind states nothing of its children is believed, and so
is the way to it: the controllers of such kinds may make what is between by rules of their own.
Source: specification of the idle plane, sections 7 to 9.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kubeworld.units.untrusted import Form
from reprieve.engine.cluster.rows import Selector
from reprieve.engine.idle.literal import LiteralSwitches
from reprieve.engine.selectors import selects
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

__all__ = [
    "MAXIMUM_DEPTH",
    "Answer",
    "ChainTooDeep",
    "Failed",
    "Forbidden",
    "Found",
    "Lookup",
    "Missing",
    "NodeRoot",
    "Owner",
    "OwnerForbidden",
    "OwnerNotFound",
    "OwnerUnaware",
    "OwnerUnreadable",
    "ResolutionError",
    "Root",
    "controller_of",
    "gpu_workload_name",
    "group_version",
    "owns",
    "resolve_root",
    "selects_child",
]

MAXIMUM_DEPTH: Final = 10
MAXIMUM_NAME: Final = 253
_UID_PREFIX: Final = 8
_ORDINAL: Final = Form(r"[0-9]{1,10}+")


@dataclass(frozen=True, slots=True)
class Owner:
    """One ownerReference."""

    api_version: str
    kind: str
    name: str
    uid: Uid
    controller: bool = False


@dataclass(frozen=True, slots=True)
class Lookup:
    """An object that the walk needs. `uid`: the one it must have, None when any will do."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: Uid | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The object that was read, with all its ownerReferences in their order.

    `selector`: which labels its children have; `children`: the uids of all of them that are at
    work. Both are None for kinds that do not state it.
    """

    ref: Reference
    owners: tuple[Owner, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    selector: Selector = None
    children: frozenset[Uid] | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no such object."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class Forbidden:
    """The API server refused to show it."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """It could not be read for another reason; trying again may help."""

    detail: str = ""


Answer = Found | Missing | Forbidden | Failed


@dataclass(frozen=True, slots=True)
class Root:
    """The root owner and the way to it: `Pod/a -> Job/b -> KaiwoJob/c`.

    `denied_by`: the controller that it names and that does not know it.
    """

    ref: Reference
    chain: str
    denied_by: Reference | None = None


class ResolutionError(Exception):
    """The root was not found; `lookup` is the object at which the walk ended.

    ResolutionError
    ├── OwnerNotFound     typical for delete events
    ├── OwnerForbidden    a right is missing
    ├── OwnerUnreadable   the API server did not answer
    ├── OwnerUnaware      it does not list the object below it, or not yet
    ├── ChainTooDeep      more than ten objects, or a cycle
    └── NodeRoot          a static pod
    """

    def __init__(self, lookup: Lookup, detail: str = "") -> None:
        super().__init__(lookup, detail)
        self.lookup = lookup
        self.detail = detail


class OwnerNotFound(ResolutionError):
    """An object of the chain does not exist, or exists with another uid."""


class OwnerForbidden(ResolutionError):
    """An object of the chain may not be read."""


class OwnerUnreadable(ResolutionError):
    """An object of the chain could not be read for another reason."""


class OwnerUnaware(ResolutionError):
    """An owner that lists its children does not list the object that names it."""


class ChainTooDeep(ResolutionError):
    """The chain has more than ten objects; `lookup` is its start."""


class NodeRoot(ResolutionError):
    """The pod belongs to its Node and is not tracked."""


def resolve_root(
    start: Lookup, literal: LiteralSwitches, known: Found | None = None
) -> Generator[Lookup, Answer, Root]:
    """Walk from `start` to the object without a controlling owner.

    `known`: the start itself, when the caller has it already; it is not requested then.

    Raises:
        ResolutionError: one of its six kinds.
    """
    wanted = start
    steps: list[str] = []
    below: Found | None = None
    denied: Root | None = None
    for depth in range(MAXIMUM_DEPTH):
        if _is_node(wanted) and not literal.node_roots_tracked:
            raise NodeRoot(wanted)
        answer = known if depth == 0 and known is not None else (yield wanted)
        found = _found(answer, wanted, literal)
        if below is not None and denied is None and not selects_child(found, below):
            denied = Root(below.ref, " -> ".join(steps), denied_by=found.ref)
        steps.append(str(found.ref))
        owner = controller_of(found.owners)
        if owner is None:
            if literal.owner_uid_unchecked or below is None:
                return Root(found.ref, " -> ".join(steps))
            if found.children is not None and below.ref.uid not in found.children:
                raise OwnerUnaware(wanted, f"it does not list {below.ref} among its children")
            can_tell = found.selector is not None or found.children is not None
            return denied if denied and can_tell else Root(found.ref, " -> ".join(steps))
        below = found
        wanted = _lookup(owner, start.namespace)
    raise ChainTooDeep(start)


def owns(
    root: Reference, pod: Found, asks_for_gpu: bool, literal: LiteralSwitches
) -> Generator[Lookup, Answer, bool]:
    """Return whether the pod counts as the workload's (section 8, owned pods).

    Raises:
        ResolutionError: an object on the way is forbidden or could not be read.
    """
    if root.kind == "Pod" and root.uid == pod.ref.uid:
        return True
    current = pod
    for _ in range(MAXIMUM_DEPTH):
        if any(owner.uid == root.uid for owner in current.owners):
            return True
        owner = controller_of(current.owners)
        if owner is None or not asks_for_gpu:
            return False
        wanted = _lookup(owner, pod.ref.namespace)
        try:
            current = _found((yield wanted), wanted, literal)
        except OwnerNotFound:
            return False
    return False


def selects_child(owner: Found, child: Found) -> bool:
    """Return whether an owner's kind and selector allow that `child` is one of its own.

    True for kinds that do not state it. A Deployment controls ReplicaSets only, and the pods of a
    StatefulSet have its name and a number.
    """
    group, _ = group_version(owner.ref.api_version)
    if group == "apps":
        if owner.ref.kind == "Deployment" and child.ref.kind != "ReplicaSet":
            return False
        name, _, number = child.ref.name.rpartition("-")
        ours = name == owner.ref.name and _ORDINAL.fullmatch(number)
        if owner.ref.kind == "StatefulSet" and not ours:
            return False
    return owner.selector is None or selects(owner.selector, child.labels)


def controller_of(owners: Iterable[Owner]) -> Owner | None:
    """Return the controlling owner, if there is one."""
    return next((owner for owner in owners if owner.controller), None)


def group_version(api_version: str) -> tuple[str, str]:
    """Return group and version; malformed text gives two empty strings."""
    parts = api_version.split("/")
    if len(parts) == 1:
        return "", parts[0]
    return (parts[0], parts[1]) if len(parts) == 2 else ("", "")


def gpu_workload_name(kind: str, name: str, uid: str) -> str:
    """Return `<kind>-<name>-<first 8 of the uid>` in at most 253 characters.

    A name that is too long loses characters in its middle.
    """
    before, after = f"{kind.lower()}-", f"-{uid[:_UID_PREFIX]}"
    room = MAXIMUM_NAME - len(before) - len(after)
    if len(name) > room:
        half = (room - 1) // 2
        name = f"{name[:half].rstrip('-.')}-{name[-half:].lstrip('-.')}"
    return f"{before}{name}{after}"


def _lookup(owner: Owner, namespace: str) -> Lookup:
    return Lookup(owner.api_version, owner.kind, namespace, owner.name, owner.uid)


def _found(answer: Answer, wanted: Lookup, literal: LiteralSwitches) -> Found:
    if isinstance(answer, Forbidden):
        raise OwnerForbidden(wanted, answer.detail)
    if isinstance(answer, Failed):
        raise OwnerUnreadable(wanted, answer.detail)
    if isinstance(answer, Missing):
        raise OwnerNotFound(wanted, answer.detail)
    if wanted.uid is not None and answer.ref.uid != wanted.uid and not literal.owner_uid_unchecked:
        raise OwnerNotFound(wanted, f"there is one with another uid, {answer.ref.uid}")
    return answer


def _is_node(lookup: Lookup) -> bool:
    return lookup.kind == "Node" and lookup.api_version == "v1"
