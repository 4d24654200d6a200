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
is never a root (H11). Source: specification of the idle plane, sections 7 to 9.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Final

from reprieve.engine.idle.literal import LiteralSwitches
from reprieve.engine.plan import Ref
from reprieve.units.ids import Uid

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
    "OwnerUnreadable",
    "ResolutionError",
    "Root",
    "controller_of",
    "gpu_workload_name",
    "group_version",
    "owns",
    "resolve_root",
]

MAXIMUM_DEPTH: Final = 10
MAXIMUM_NAME: Final = 253
_UID_PREFIX: Final = 8


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
    """The object that was read, with all its ownerReferences in their order."""

    ref: Ref
    owners: tuple[Owner, ...] = ()


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
    """The root owner and the way to it: `Pod/a -> Job/b -> KaiwoJob/c`."""

    ref: Ref
    chain: str


class ResolutionError(Exception):
    """The root was not found; `lookup` is the object at which the walk ended.

    ResolutionError
    ├── OwnerNotFound     typical for delete events
    ├── OwnerForbidden    a right is missing
    ├── OwnerUnreadable   the API server did not answer
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


class ChainTooDeep(ResolutionError):
    """The chain has more than ten objects; `lookup` is its start."""


class NodeRoot(ResolutionError):
    """The pod belongs to its Node and is not tracked."""


def resolve_root(
    start: Lookup, literal: LiteralSwitches, known: Found | None = None
) -> Generator[Lookup, Answer, Root]:
    """Walk from `start` to the object without a controlling owner.

    `known`: the start itself, when the caller has it already; it is not asked for then.

    Raises:
        ResolutionError: one of its five kinds.
    """
    wanted, steps = start, []
    for depth in range(MAXIMUM_DEPTH):
        if _is_node(wanted) and not literal.node_roots_tracked:
            raise NodeRoot(wanted)
        answer = known if depth == 0 and known is not None else (yield wanted)
        found = _found(answer, wanted, literal)
        steps.append(str(found.ref))
        owner = controller_of(found.owners)
        if owner is None:
            return Root(found.ref, " -> ".join(steps))
        wanted = _lookup(owner, start.namespace)
    raise ChainTooDeep(start)


def owns(
    root: Ref, pod: Found, asks_for_gpu: bool, literal: LiteralSwitches
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
