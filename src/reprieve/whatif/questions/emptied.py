"""A cluster as it would be without any work, on which is decided what never fits.

What runs on every node stays, and so do devices that it uses; all else is removed, and claims that
other pods may use again have no devices.

Source: the design's "Processes and time".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import msgspec

from reprieve.jobs.table import job_kinds
from reprieve.kube.resource import GPU_WORKLOADS, PODS, PREEMPTION_PARTS, PREEMPTIONS
from reprieve.whatif.snapshots.partial import Owned, Partial
from reprieve.whatif.snapshots.snapshot import KindKey, Listed, Snapshot

__all__ = ["emptied"]

_PODS: Final[KindKey] = (PODS.group, PODS.plural)
_CLAIMS: Final[KindKey] = ("resource.k8s.io", "resourceclaims")
#: Other people's work, beside pods and the kinds of the table of jobs.
_WORK: Final[frozenset[KindKey]] = frozenset(
    {
        ("kueue.x-k8s.io", "workloads"),
        ("scheduling.k8s.io", "podgroups"),
        ("scheduling.k8s.io", "compositepodgroups"),
        ("apps", "replicasets"),
        (GPU_WORKLOADS.group, GPU_WORKLOADS.plural),
        (PREEMPTIONS.group, PREEMPTIONS.plural),
        (PREEMPTION_PARTS.group, PREEMPTION_PARTS.plural),
        *((kind.group, kind.plural) for kind in job_kinds()),
    }
    - {_PODS}
)


class _User(Partial, frozen=True):
    name: str = ""


class _ClaimStatus(Partial, frozen=True):
    reserved_for: list[_User] | None = None


class _Claim(Partial, frozen=True):
    status: _ClaimStatus | None = None


_CLAIM: Final = msgspec.json.Decoder(_Claim)
_OWNED: Final = msgspec.json.Decoder(Owned)


def emptied(snapshot: Snapshot) -> Snapshot:
    """Return the same cluster without any work; what runs on every node stays."""
    kinds: dict[KindKey, Listed] = {}
    pods = snapshot.kinds.get(_PODS)
    stays = {name: raw for name, raw in pods.objects.items() if _of_every_node(raw)} if pods else {}
    for key, listed in snapshot.kinds.items():
        if key in _WORK:
            kinds[key] = replace(listed, objects={})
        elif key == _PODS:
            kinds[key] = replace(listed, objects=stays)
        elif key == _CLAIMS:
            free = (
                _unused(raw, namespace, stays) for (namespace, _), raw in listed.objects.items()
            )
            kinds[key] = replace(listed, objects=dict(zip(listed.objects, free, strict=True)))
        else:
            kinds[key] = listed
    return replace(snapshot, kinds=kinds)


def _unused(claim: bytes, namespace: str, stays: Collection[tuple[str, str]]) -> bytes:
    """Return a claim that has devices no more, unless a pod that stays uses them.

    One that cannot be read is left as it is: the planes report it.
    """
    try:
        status = _CLAIM.decode(claim).status
    except msgspec.MsgspecError:
        return claim
    if status is None or any((namespace, each.name) in stays for each in status.reserved_for or ()):
        return claim
    return msgspec.json.encode({**msgspec.json.decode(claim), "status": {}})


def _of_every_node(pod: bytes) -> bool:
    try:
        owners = _OWNED.decode(pod).metadata.owner_references or ()
    except msgspec.MsgspecError:
        return False
    return any(owner.kind in ("DaemonSet", "Node") for owner in owners)
