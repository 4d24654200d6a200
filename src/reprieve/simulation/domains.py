"""Domains of nodes in a study, and which jobs request one.

    cluster: {nodes: 64, devices: 8, domains: {rack: 4, block: 16}}    # nodes of each domain
    topology: {required: rack, share: 0.5, devices: 16}    # or preferred: rack

Node after node fills the domains of a level, so that the last one may be smaller; a wider level is
made of whole domains of the narrower one. A job that requires a level waits until one domain has
capacity for all of its pods; one that prefers it tries level by level upwards, and anywhere at
last. Where the trace does not state a level (columns `required` and `preferred`), the section
`topology` draws which jobs request one: `share` of the jobs with at least `devices`, of more than
one node unless that is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Final

from reprieve.engine.topology.model import HOSTNAME
from reprieve.settings.fields import choice, integer, refuse
from reprieve.simulation.document import Part
from reprieve.simulation.trace import Job
from reprieve.units.errors import UsageError

__all__ = [
    "KEYS",
    "NOBODY_ASKS",
    "NO_DOMAINS",
    "AskingDomain",
    "Domains",
    "node_names",
    "read_asking",
    "read_domains",
]

KEYS: Final = ("required", "preferred", "share", "devices")
_MOST_NODES: Final = 100_000
_MOST_LEVELS: Final = 15  # of the 16 that a Topology may have, the last is the node


@dataclass(frozen=True, slots=True)
class Domains:
    """Levels of domains, the widest first, each with the nodes of one of its domains."""

    levels: tuple[tuple[str, int], ...] = ()

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.levels)

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels of a topology with these levels, down to the node."""
        return (*(name for name, _ in self.levels), HOSTNAME)

    def of_node(self, number: int) -> dict[str, str]:
        """Return the labels of a node by its place in the order of nodes."""
        return {name: f"{name}-{number // size}" for name, size in self.levels}

    def together(self, level: str, numbers: Sequence[int]) -> bool:
        """Return whether nodes are all in one domain of a level."""
        size = dict(self.levels)[level]
        return len({number // size for number in numbers}) <= 1

    def most(self, job: Job, nodes: int, of_a_node: int) -> int:
        """Return the devices that a job can have at most on so many nodes.

        Raises:
            UsageError: it requests a level that there is not.
        """
        sizes = dict(self.levels)
        asked = job.required or job.preferred
        if asked and asked not in sizes:
            there = ", ".join(sizes) or "none, since cluster.domains is not given"
            raise UsageError(f"job {job.id} requests a {asked}; accepted: {there}")
        return min(nodes, sizes.get(job.required, nodes)) * of_a_node


@dataclass(frozen=True, slots=True)
class AskingDomain:
    """What is drawn for jobs of a trace that does not state whether they request a domain.

    `share` of the jobs with `devices` or more that one domain could hold request one of `level`.
    """

    level: str = ""
    required: bool = True
    share: float = 0.0
    devices: int = 1

    def drawn(self, job: Job, most: int, random: Random) -> Job:
        """Return the job with the level that it requests; as much is drawn for each.

        `most`: the devices of the largest domain of the level.
        """
        asks = random.random() < self.share
        said = job.required or job.preferred
        if said or not asks or job.devices < self.devices or (self.required and job.devices > most):
            return job
        if self.required:
            return replace(job, required=self.level)
        return replace(job, preferred=self.level)


NO_DOMAINS: Final = Domains()
NOBODY_ASKS: Final = AskingDomain()


def node_names(count: int) -> list[str]:
    """Return the names of the nodes, in an order that is that of the names, too."""
    width = len(str(count - 1))
    return [f"node-{number:0{width}}" for number in range(count)]


def read_domains(given: Part) -> Domains:
    """Return the domains of `cluster.domains`.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    sizes = {
        str(level): integer(nodes, given.where(str(level)), 1, _MOST_NODES)
        for level, nodes in given.value.items()
    }
    if len(sizes) > _MOST_LEVELS:
        refuse(given.where(), len(sizes), f"at most {_MOST_LEVELS} levels")
    levels = sorted(sizes.items(), key=lambda each: -each[1])
    for (wide, more), (narrow, fewer) in pairwise(levels):
        if more % fewer or more == fewer:
            accepted = f"a multiple of the {fewer} nodes of a {narrow}, more than one"
            refuse(given.where(wide), more, accepted)
    return Domains(tuple(levels))


def read_asking(given: Part, domains: Domains, of_a_node: int) -> AskingDomain:
    """Return which jobs request a domain, by the section `topology`.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    if not given.value:
        return NOBODY_ASKS
    named = [key for key in ("required", "preferred") if given.get(key) is not None]
    if len(named) != 1:
        refuse(given.where(), dict(given.value), "one of required and preferred")
    levels = [name for name, _ in domains.levels]
    if not levels:
        raise UsageError(f"{given.where(named[0])}: accepted: a level of cluster.domains")
    level = choice(given.get(named[0]), given.where(named[0]), levels)
    share = given.get("share", 1)
    place = given.where("share")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        refuse(place, share, "a number from 0 to 1")
    least = integer(given.get("devices", of_a_node + 1), given.where("devices"), 1, 2**31 - 1)
    return AskingDomain(level, named[0] == "required", share, least)
