"""Cases of the filters that look at other pods, by hand."""

from __future__ import annotations

from typing import Any, Final

from reprieve.engine.cluster.rows import (
    AffinityTerm,
    Disk,
    HostPort,
    Kind,
    NodeRow,
    PodRow,
    SpreadConstraint,
    VolumeUse,
)
from reprieve.engine.cluster.storage import CsiNodeRow
from reprieve.engine.placement.profile import FilterName
from reprieve.units.ids import Uid
from tests.engine.builders import GPU, group, matching, node
from tests.scheduling.filters.case import HIGH, Case, Promise, placed, preemptor
from tests.scheduling.filters.independent import bound_claim, entry

FIT: Final = FilterName.NODE_RESOURCES_FIT
PORTS: Final = FilterName.NODE_PORTS
RESTRICTIONS: Final = FilterName.VOLUME_RESTRICTIONS
LIMITS: Final = FilterName.NODE_VOLUME_LIMITS
SPREAD: Final = FilterName.POD_TOPOLOGY_SPREAD
AFFINITY: Final = FilterName.INTER_POD_AFFINITY

_NO_GPU: Final = f"Insufficient {GPU}"
_PORT: Final = "node(s) didn't have free ports for the requested pod ports"
_DISK: Final = "node(s) had no available disk"
_ONE_POD: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already "
    "in-use by another pod"
)
_LIMIT: Final = "node(s) exceed max volume count"
_SKEW: Final = "node(s) didn't match pod topology spread constraints"


def _none_of(nodes: int, *parts: str) -> str:
    return f"0/{nodes} nodes are available: {', '.join(parts)}."


_HTTP: Final = (HostPort(80),)

_PORT_CASES: Final = (
    Case(
        PORTS,
        Promise.BLOCKS,
        "The two members need port 80, which a pod of equal priority holds on one of two nodes; a "
        "lower pod holds none.",
        (
            node("n1"),
            node("n2"),
            placed("equal", "n2", HIGH, host_ports=_HTTP),
            placed("low", "n1"),
            preemptor(2, host_ports=_HTTP),
        ),
        says=_none_of(2, f"2 {_PORT}"),
        kept=("low",),
    ),
    Case(
        PORTS,
        Promise.HELPS,
        "A lower pod holds port 80 on one of two nodes.",
        (
            node("n1"),
            node("n2"),
            placed("low", "n2", host_ports=_HTTP),
            preemptor(2, host_ports=_HTTP),
        ),
        says=_none_of(2, f"2 {_PORT}"),
        victims=("low",),
        refused={"low": PORTS},
        nodes=("n1", "n2"),
    ),
    Case(
        PORTS,
        Promise.REFUSED,
        "The holder of the port belongs to a group that is disrupted as a whole, so that its other "
        "pod is evicted too, though it holds no port.",
        (
            node("n1"),
            node("n2"),
            group("all", min_count=2, all_or_nothing=True),
            placed("a-holder", "n2", group="all", host_ports=_HTTP),
            placed("b-other", "n1", group="all"),
            preemptor(2, host_ports=_HTTP),
        ),
        says=_none_of(2, f"2 {_PORT}"),
        victims=("a-holder", "b-other"),
        refused={"a-holder": PORTS},
        nodes=("n1", "n2"),
    ),
    Case(
        PORTS,
        Promise.GRANTED,
        "Port 80 of another protocol, another port, and port 80 on a node without members are no "
        "obstacle.",
        (
            node("n1"),
            node("n2"),
            node("n3"),
            placed("tcp", "n1", host_ports=_HTTP),
            placed("udp", "n2", host_ports=(HostPort(80, "UDP"), HostPort(81))),
            placed("far", "n3", host_ports=_HTTP),
            preemptor(2, host_ports=_HTTP),
        ),
        says=_none_of(3, f"3 {_PORT}"),
        victims=("tcp",),
        kept=("udp", "far"),
        refused={"tcp": PORTS},
        nodes=("n1", "n2"),
    ),
)

_FIT_CASES: Final = (
    Case(
        FIT,
        Promise.BLOCKS,
        "A pod of equal priority holds the GPUs; a lower pod holds none.",
        (
            node("n1", gpus=8),
            placed("equal", "n1", HIGH, gpus=8),
            placed("low", "n1", cpu=1000),
            preemptor(2, gpus=4),
        ),
        says=_none_of(1, f"1 {_NO_GPU}"),
        kept=("low",),
    ),
    Case(
        FIT,
        Promise.HELPS,
        "A lower pod holds the GPUs.",
        (node("n1", gpus=8), placed("low", "n1", gpus=8), preemptor(2, gpus=4)),
        says=_none_of(1, f"1 {_NO_GPU}"),
        victims=("low",),
        refused={"low": FIT},
        nodes=("n1", "n1"),
    ),
    Case(
        FIT,
        Promise.REFUSED,
        "The members leave two of eight GPUs: the more important of two lower pods uses them, and "
        "the other is refused.",
        (
            node("n1", gpus=8),
            placed("more", "n1", priority=2, gpus=2),
            placed("less", "n1", priority=1, gpus=6),
            preemptor(2, gpus=3),
        ),
        says=_none_of(1, f"1 {_NO_GPU}"),
        victims=("less",),
        kept=("more",),
        refused={"less": FIT},
        nodes=("n1", "n1"),
    ),
    Case(
        FIT,
        Promise.GRANTED,
        "A lower pod without GPUs stays beside the members, though the node has more of its cpu in "
        "use than it offers: the members request no cpu.",
        (
            node("n1", gpus=8, cpu=1000),
            placed("big", "n1", gpus=8),
            placed("wide", "n1", cpu=2000),
            preemptor(2, gpus=4),
        ),
        says=_none_of(1, f"1 {_NO_GPU}"),
        victims=("big",),
        kept=("wide",),
        refused={"big": FIT},
        nodes=("n1", "n1"),
    ),
)


def _disk(*, shared: bool = False) -> tuple[Disk, ...]:
    return (Disk("iscsi", ("target", "1"), shared),)


_RESTRICTION_CASES: Final = (
    Case(
        RESTRICTIONS,
        Promise.BLOCKS,
        "The members write to a disk that a pod of equal priority has on one of two nodes.",
        (
            node("n1"),
            node("n2"),
            placed("equal", "n2", HIGH, disks=_disk()),
            placed("low", "n1"),
            preemptor(2, disks=_disk()),
        ),
        says=_none_of(2, f"2 {_DISK}"),
        kept=("low",),
    ),
    Case(
        RESTRICTIONS,
        Promise.HELPS,
        "A lower pod has the disk on one of two nodes.",
        (
            node("n1"),
            node("n2"),
            placed("low", "n2", disks=_disk()),
            preemptor(2, disks=_disk()),
        ),
        says=_none_of(2, f"2 {_DISK}"),
        victims=("low",),
        refused={"low": RESTRICTIONS},
        nodes=("n1", "n2"),
    ),
    Case(
        RESTRICTIONS,
        Promise.REFUSED,
        "A ReadWriteOncePod claim is used by a lower pod of another node: one user in the whole "
        "cluster is allowed.",
        (
            node("n1", gpus=8),
            node("n2"),
            bound_claim("data", access_modes=("ReadWriteOncePod",)),
            placed("user", "n2", volumes=(VolumeUse("data"),)),
            preemptor(1, gpus=8, volumes=(VolumeUse("data"),)),
        ),
        says=_none_of(2, f"1 {_NO_GPU}", f"1 {_ONE_POD}"),
        victims=("user",),
        refused={"user": RESTRICTIONS},
        nodes=("n1",),
    ),
    Case(
        RESTRICTIONS,
        Promise.GRANTED,
        "A lower pod that only reads the disk stays beside a member that only reads it.",
        (
            node("n1", gpus=4),
            node("n2", gpus=4),
            placed("reader", "n1", disks=_disk(shared=True)),
            placed("writer", "n2", disks=_disk()),
            preemptor(2, gpus=4, disks=_disk(shared=True)),
        ),
        says=_none_of(2, f"1 {_NO_GPU}", f"1 {_DISK}"),
        victims=("writer",),
        kept=("reader",),
        refused={"writer": RESTRICTIONS},
        nodes=("n1", "n2"),
    ),
)


def _volumes(limit: int) -> tuple[Any, ...]:
    driver = "csi.example.com"
    attached = CsiNodeRow(Uid("csi"), "n1", 1, drivers=((driver, limit),))
    claims = [bound_claim(name, driver=driver, handle=name) for name in ("a", "b", "mine")]
    return (entry(Kind.CSI_NODE, "n1", attached), *(row for pair in claims for row in pair))


_MINE: Final = (VolumeUse("mine"),)

_LIMIT_CASES: Final = (
    Case(
        LIMITS,
        Promise.BLOCKS,
        "The node accepts one volume, which a pod of equal priority uses.",
        (
            node("n1"),
            _volumes(1),
            placed("equal", "n1", HIGH, volumes=(VolumeUse("a"),)),
            placed("low", "n1"),
            preemptor(2, volumes=_MINE),
        ),
        says=_none_of(1, f"1 {_LIMIT}"),
        kept=("low",),
    ),
    Case(
        LIMITS,
        Promise.HELPS,
        "The node accepts one volume, which a lower pod uses; the members share theirs.",
        (
            node("n1"),
            _volumes(1),
            placed("low", "n1", volumes=(VolumeUse("a"),)),
            preemptor(2, volumes=_MINE),
        ),
        says=_none_of(1, f"1 {_LIMIT}"),
        victims=("low",),
        refused={"low": LIMITS},
        nodes=("n1", "n1"),
    ),
    Case(
        LIMITS,
        Promise.REFUSED,
        "Of two volumes that the node accepts, one is left beside the members': the more important "
        "lower pod gets it.",
        (
            node("n1"),
            _volumes(2),
            placed("more", "n1", priority=2, volumes=(VolumeUse("a"),)),
            placed("less", "n1", priority=1, volumes=(VolumeUse("b"),)),
            preemptor(2, volumes=_MINE),
        ),
        says=_none_of(1, f"1 {_LIMIT}"),
        victims=("less",),
        kept=("more",),
        refused={"less": LIMITS},
        nodes=("n1", "n1"),
    ),
    Case(
        LIMITS,
        Promise.GRANTED,
        "A lower pod that uses the members' own volume adds none to the one that the node accepts.",
        (
            node("n1", gpus=8),
            _volumes(1),
            placed("same", "n1", volumes=_MINE),
            placed("gpus", "n1", gpus=8),
            preemptor(2, gpus=4, volumes=_MINE),
        ),
        says=_none_of(1, f"1 {_NO_GPU}"),
        victims=("gpus",),
        kept=("same",),
        refused={"gpus": FIT},
        nodes=("n1", "n1"),
    ),
)

_WEB: Final = {"app": "web"}
_ZONES: Final = (SpreadConstraint("zone", 1, hard=True, selector=matching(_WEB)),)


def _zoned(name: str, zone: str, gpus: int = 8) -> NodeRow:
    return node(name, gpus=gpus, labels={"zone": zone})


def _web(name: str, on: str, priority: int = 0, **more: Any) -> PodRow:
    return placed(name, on, priority, labels=_WEB, **more)


_SPREAD_CASES: Final = (
    Case(
        SPREAD,
        Promise.BLOCKS,
        "Zones may differ by one member, and a pod of equal priority fills zone b: the second "
        "member would make zone a two ahead.",
        (
            _zoned("a1", "a"),
            _zoned("b1", "b"),
            placed("equal", "b1", HIGH, gpus=8),
            placed("low", "a1"),
            preemptor(2, gpus=1, labels=_WEB, spread=_ZONES),
        ),
        says=_none_of(2, f"1 {_NO_GPU}", f"1 {_SKEW}"),
        kept=("low",),
    ),
    Case(
        SPREAD,
        Promise.HELPS,
        "Zone a is one ahead because of a lower pod that matches, and zone b is full.",
        (
            _zoned("a1", "a"),
            _zoned("b1", "b"),
            placed("equal", "b1", HIGH, gpus=8),
            _web("low", "a1"),
            preemptor(1, gpus=1, labels=_WEB, spread=_ZONES),
        ),
        says=_none_of(2, f"1 {_NO_GPU}", f"1 {_SKEW}"),
        victims=("low",),
        refused={"low": SPREAD},
        nodes=("a1",),
    ),
    Case(
        SPREAD,
        Promise.REFUSED,
        "A matching pod of equal priority in zone b allows two in zone a: one lower pod returns "
        "beside the member, the next is refused.",
        (
            _zoned("a1", "a"),
            _zoned("b1", "b"),
            _web("equal", "b1", HIGH, gpus=8),
            _web("more", "a1", priority=2),
            _web("less", "a1", priority=1),
            preemptor(1, gpus=1, labels=_WEB, spread=_ZONES),
        ),
        says=_none_of(2, f"1 {_NO_GPU}", f"1 {_SKEW}"),
        victims=("less",),
        kept=("more",),
        refused={"less": SPREAD},
        nodes=("a1",),
    ),
    Case(
        SPREAD,
        Promise.GRANTED,
        "A lower pod that matches returns to the other zone, where it only helps, and one that "
        "does not match stays in the member's.",
        (
            _zoned("a1", "a"),
            _zoned("b1", "b", gpus=0),
            _web("full", "a1", gpus=8),
            _web("other-zone", "b1"),
            placed("no-match", "a1"),
            preemptor(1, gpus=8, labels=_WEB, spread=_ZONES),
        ),
        says=_none_of(2, f"2 {_NO_GPU}"),
        victims=("full",),
        kept=("other-zone", "no-match"),
        refused={"full": FIT},
        nodes=("a1",),
    ),
)


def _term(labels: dict[str, str], key: str = "kubernetes.io/hostname") -> AffinityTerm:
    return AffinityTerm(key, matching(labels), ("default",))


_NOISY: Final = {"noisy": "yes"}
_TRAIN: Final = {"app": "train"}

_AFFINITY_CASES: Final = (
    Case(
        AFFINITY,
        Promise.BLOCKS,
        "The members want a zone with a database; the only one is in zone b, which a pod of equal "
        "priority fills.",
        (
            _zoned("a1", "a"),
            _zoned("b1", "b"),
            placed("database", "b1", HIGH, labels={"app": "db"}),
            placed("equal", "b1", HIGH, gpus=8),
            placed("low", "a1"),
            preemptor(2, gpus=1, affinity=(_term({"app": "db"}, "zone"),)),
        ),
        says=_none_of(2, f"1 {_NO_GPU}", "1 node(s) didn't match pod affinity rules"),
        kept=("low",),
    ),
    Case(
        AFFINITY,
        Promise.HELPS,
        "The members keep away from noisy pods and from each other; lower noisy pods are on both "
        "nodes.",
        (
            node("n1"),
            node("n2"),
            placed("one", "n1", labels=_NOISY),
            placed("two", "n2", labels=_NOISY),
            preemptor(2, labels=_TRAIN, anti_affinity=(_term(_NOISY), _term(_TRAIN))),
        ),
        says=_none_of(2, "2 node(s) didn't match pod anti-affinity rules"),
        victims=("one", "two"),
        refused={"one": AFFINITY, "two": AFFINITY},
        nodes=("n1", "n2"),
    ),
    Case(
        AFFINITY,
        Promise.REFUSED,
        "A lower pod wants no trainer in its zone; it is on another node of the members' zone.",
        (
            _zoned("a1", "a"),
            _zoned("a2", "a", gpus=0),
            placed("keeper", "a2", anti_affinity=(_term(_TRAIN, "zone"),)),
            preemptor(1, gpus=8, labels=_TRAIN, anti_affinity=(_term(_TRAIN),)),
        ),
        says=_none_of(
            2, f"1 {_NO_GPU}", "1 node(s) didn't satisfy existing pods anti-affinity rules"
        ),
        victims=("keeper",),
        refused={"keeper": AFFINITY},
        nodes=("a1",),
    ),
    Case(
        AFFINITY,
        Promise.GRANTED,
        "A noisy pod in a domain without members, and a pod that wants other pods away, stay.",
        (
            _zoned("a1", "a"),
            _zoned("b1", "b", gpus=0),
            placed("full", "a1", gpus=8, labels=_NOISY),
            placed("far", "b1", labels=_NOISY),
            placed("keeper", "a1", anti_affinity=(_term({"app": "web"}, "zone"),)),
            preemptor(1, gpus=8, labels=_TRAIN, anti_affinity=(_term(_NOISY, "zone"),)),
        ),
        says=_none_of(2, f"2 {_NO_GPU}"),
        victims=("full",),
        kept=("far", "keeper"),
        refused={"full": AFFINITY},
        nodes=("a1",),
    ),
)

DEPENDENT: Final = (
    *_PORT_CASES,
    *_FIT_CASES,
    *_RESTRICTION_CASES,
    *_LIMIT_CASES,
    *_SPREAD_CASES,
    *_AFFINITY_CASES,
)
