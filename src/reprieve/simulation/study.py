"""The study file: which cluster, which jobs, and which policies are compared on them.

    cluster: {nodes: 64, devices: 8}          # devices of a node; or from: FILE, see `node_lists`;
                                              # domains: {rack: 16}, see `domains`
    workload: {trace: csv, path: traces/, load: [0.8, 1.0], seeds: [0, 1], only: [NAME]}
    tenants: {count: 8, zipf: 1.1, priorities: {0: 0.6, 100: 0.3, 1000: 0.1}}
    work: {checkpoint: 30m, save: 90s, restart: 180s, grace: 30s, evict: 30s,
           notice: {time: 5m, share: 0.6}}    # which jobs request notice, see `notified_jobs`
    idleness: {share: 0.3, after: [0.2, 0.9], again: 0.25, utilization: 0}    # see `idleness`
    topology: {required: rack, share: 0.5}    # which jobs request a domain, see `domains`
    policies: {NAME: {...}}                   # see `policy`; the others are compared to the first

`path` is a file, or a folder that has `seedN/NAME.csv` (or `.csv.gz`) for each seed N; relative
ones are beside the study file. Nothing else is accepted; what is wrong is named with file, line and
what is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kubeworld.units.untrusted import Form
from reprieve.engine.notice.granting import LEAST, MOST
from reprieve.settings.fields import choice, duration, entries, integer, refuse, text
from reprieve.simulation.demand import Tenants
from reprieve.simulation.document import Part, read_document
from reprieve.simulation.domains import KEYS as TOPOLOGY_KEYS
from reprieve.simulation.domains import (
    NO_DOMAINS,
    NOBODY_ASKS,
    AskingDomain,
    Domains,
    read_asking,
    read_domains,
)
from reprieve.simulation.idleness import Idleness
from reprieve.simulation.node_lists import DevicesOfNodes, alike, read_node_list
from reprieve.simulation.policy import IDLE, KEYS, SCHEDULING, PolicySpec, read_policy
from reprieve.simulation.readers import READERS, Reader
from reprieve.simulation.readers.lines import MOST_DEVICES
from reprieve.simulation.replaying.notified_jobs import Asking
from reprieve.simulation.replaying.work import Checkpointing
from reprieve.units.errors import UsageError

__all__ = ["Cluster", "Study", "Workload", "read_study"]

_NAME: Final = Form(r"[A-Za-z0-9][A-Za-z0-9._-]*+", 63)
_WORK: Final = ("checkpoint", "save", "restart", "grace", "evict", "notice")
_SECTIONS: Final = (
    "cluster",
    "workload",
    "tenants",
    "work",
    "idleness",
    "topology",
    "policies",
)
_MOST_TENANTS: Final = 1_000
_HEAVIEST: Final = 100.0  # load


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes that are all alike."""

    nodes: int
    devices: int
    domains: Domains = NO_DOMAINS

    @property
    def capacity(self) -> int:
        """Return the devices of all nodes."""
        return self.nodes * self.devices


@dataclass(frozen=True, slots=True)
class Workload:
    """Where the jobs come from. `files` by seed: the name of each trace, and its file.

    A load of None is that of the trace as it is.
    """

    read: Reader
    files: Mapping[int, tuple[tuple[str, Path], ...]]
    loads: tuple[float | None, ...] = (None,)


@dataclass(frozen=True, slots=True)
class Study:
    """All that a study file states; policies in their order, the first one is the base.

    `notices`: what was stated and changes nothing.
    """

    name: str
    cluster: Cluster
    workload: Workload
    policies: tuple[PolicySpec, ...]
    tenants: Tenants = field(default_factory=Tenants)
    work: Checkpointing = field(default_factory=Checkpointing)
    idleness: Idleness = field(default_factory=Idleness)
    asking: Asking = field(default_factory=Asking)
    topology: AskingDomain = NOBODY_ASKS
    text: str = ""
    notices: tuple[str, ...] = ()


def read_study(
    path: Path,
    readers: Mapping[str, Reader] = READERS,
    devices_of_nodes: DevicesOfNodes = read_node_list,
) -> Study:
    """Return the study that a file describes.

    Args:
        path: the file.
        readers: the forms of traces that it may name.
        devices_of_nodes: reads what `cluster.from` names.

    Raises:
        UsageError: what is wrong, in which line, and what is accepted.
    """
    root = read_document(path, _SECTIONS)
    for key in ("cluster", "workload", "policies"):
        root.given(key)
    given = root.part("cluster", ("nodes", "devices", "domains", "from"))
    cluster, reported = _cluster(given, path.parent, devices_of_nodes)
    policies = root.part("policies")
    if not policies.value:
        refuse(policies.where(), {}, "at least one policy")
    read = tuple(
        read_policy(_name(name, policies), policies.part(name, KEYS), path.parent)
        for name in policies.value
    )
    unplaced = [
        f"policies.{each.name}.scheduling"
        for each in read
        if each.places and SCHEDULING not in each.planes and IDLE not in each.planes
    ]
    asking = root.part("work", _WORK).part("notice", ("time", "share"))
    topology = read_asking(root.part("topology", TOPOLOGY_KEYS), cluster.domains, cluster.devices)
    return Study(
        path.name,
        cluster,
        _workload(
            root.part("workload", ("trace", "path", "load", "seeds", "only")), path.parent, readers
        ),
        read,
        _tenants(root.part("tenants", ("count", "zipf", "priorities"))),
        _work(root.part("work", _WORK)),
        _idleness(root.part("idleness", ("share", "after", "again", "utilization"))),
        _asking(asking),
        topology,
        path.read_text(encoding="utf-8"),
        (
            *reported,
            *(f"{each}: changes nothing, since jobs are not placed on nodes" for each in unplaced),
            *(
                f"policies.{each.name}.own: places nothing, whatever cluster.domains states"
                for each in read
                if cluster.domains and each.own is not None
            ),
        ),
    )


def _cluster(
    given: Part, beside: Path, devices_of_nodes: DevicesOfNodes
) -> tuple[Cluster, tuple[str, ...]]:
    """Return the nodes, and what is to be reported of them."""
    domains = read_domains(given.part("domains"))
    if given.get("from") is not None:
        place = given.where("from")
        for key in ("nodes", "devices"):
            if given.get(key) is not None:
                raise UsageError(f"{place}: accepted: without {key}, which stands there")
        file = beside / Path(text(given.given("from"), place)).expanduser()
        try:
            found = devices_of_nodes(file)
        except UsageError as error:
            raise UsageError(f"{place}: {error}") from error
        nodes, devices, reported = alike(found, f"{place}: {file}")
        return Cluster(nodes, devices, domains), (reported,)
    nodes = integer(given.given("nodes"), given.where("nodes"), 1, 100_000)
    most = MOST_DEVICES // nodes
    devices = integer(given.given("devices"), given.where("devices"), 1, most)
    return Cluster(nodes, devices, domains), ()


def _name(name: Any, policies: Part) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        refuse(policies.where(str(name)), name, "a name of letters, digits and . _ -")
    return name


def _workload(given: Part, beside: Path, readers: Mapping[str, Reader]) -> Workload:
    reader = choice(given.get("trace", "csv"), given.where("trace"), tuple(readers))
    path = beside / Path(text(given.given("path"), given.where("path"))).expanduser()
    seeds = _several(given, "seeds", [0])
    numbers = [integer(seed, place, 0, 2**31 - 1) for seed, place in seeds]
    _no_repeats(numbers, given.where("seeds"))
    only = [text(name, place) for name, place in _several(given, "only", [])]
    loads: list[float | None] = [None]
    if given.get("load") is not None:
        loads = [
            _number(load, place, 0.001, _HEAVIEST) for load, place in _several(given, "load", [])
        ]
        _no_repeats(loads, given.where("load"))
    files = {seed: _files(path, seed, only, given) for seed in numbers}
    return Workload(readers[reader], files, tuple(loads))


def _files(path: Path, seed: int, only: list[str], given: Part) -> tuple[tuple[str, Path], ...]:
    place = given.where("path")
    if path.is_file():
        if only:
            raise UsageError(
                f"{given.where('only')}: chooses among files of a folder; {path} is one"
            )
        return ((path.name.split(".")[0], path),)
    folder = path / f"seed{seed}"
    if not folder.is_dir():
        nothing = folder if path.is_dir() else path
        raise UsageError(
            f"{place}: {nothing}: there is nothing there; accepted: a trace, or a folder with "
            f"seedN/NAME.csv or seedN/NAME.csv.gz for each of the seeds"
        )
    there = sorted(folder.iterdir())
    found = {each.name.split(".")[0]: each for each in there if _is_trace(each)}
    missing = [name for name in only if name not in found]
    if missing or not found:
        what = f"{missing[0]!r} is not in {folder}" if missing else f"{folder} is empty"
        raise UsageError(
            f"{given.where('only' if missing else 'path')}: {what}; accepted: "
            f"{', '.join(found) or 'a folder with NAME.csv or NAME.csv.gz'}"
        )
    return tuple((name, found[name]) for name in (only or found))


def _is_trace(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".") and path.name.count(".") > 0


def _tenants(given: Part) -> Tenants:
    shares = given.part("priorities")
    priorities: dict[int, float] = {}
    for key, share in shares.value.items():
        place = shares.where(str(key))
        priority = integer(key, place, -(2**31), 2**31 - 1)
        priorities[priority] = _number(share, place, 0.0, 1e9)
    if priorities and not sum(priorities.values()):
        refuse(shares.where(), dict(priorities), "shares of which one is more than 0")
    return Tenants(
        integer(given.get("count", 1), given.where("count"), 1, _MOST_TENANTS),
        _number(given.get("zipf", 0), given.where("zipf"), 0.0, 10.0),
        priorities or {0: 1.0},
    )


def _work(given: Part) -> Checkpointing:
    def read(key: str, otherwise: str) -> int:
        return duration(given.get(key, otherwise), given.where(key))

    return Checkpointing(
        read("checkpoint", "0s"),
        read("save", "0s"),
        read("restart", "0s"),
        read("grace", "30s"),
        read("evict", "0s"),
    )


def _asking(given: Part) -> Asking:
    time = duration(given.get("time", "0s"), given.where("time"))
    if time and not LEAST <= time <= MOST:
        refuse(given.where("time"), given.get("time"), "0s, or a duration from 10s to 1h")
    return Asking(time, _number(given.get("share", 1), given.where("share"), 0.0, 1.0))


def _idleness(given: Part) -> Idleness:
    after = given.get("after", [0, 1])
    place = given.where("after")
    if not isinstance(after, list) or len(after) != 2:
        refuse(place, after, "two shares of a job's duration, such as [0.2, 0.9]")
    low, high = (_number(each, given.where("after", n), 0.0, 1.0) for n, each in enumerate(after))
    if low > high:
        refuse(place, after, "the smaller share first")
    return Idleness(
        _number(given.get("share", 0), given.where("share"), 0.0, 1.0),
        (low, high),
        _number(given.get("again", 0), given.where("again"), 0.0, 1.0),
        _number(given.get("utilization", 0), given.where("utilization"), 0.0, 100.0),
    )


def _several(given: Part, key: str, otherwise: list[Any]) -> list[tuple[Any, str]]:
    """Return the entries of a list, or the one value that stands for a list of one."""
    found = given.get(key, otherwise)
    listed = found if isinstance(found, list) else [found]
    if not listed and given.get(key) is not None:
        refuse(given.where(key), found, "a list with at least one entry")
    return [
        (value, given.where(key, index))
        for index, (value, _) in enumerate(entries(listed, given.where(key)))
    ]


def _no_repeats(values: list[Any], place: str) -> None:
    if len(set(values)) < len(values):
        refuse(place, values, "each value once")


def _number(value: object, where: str, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        refuse(where, value, f"a number from {least:g} to {most:g}")
    return float(value)
