"""Small clusters with one demand, and who goes for it: played on the embedded and a real server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.together.site import deployment, gang, job

__all__ = ["STORIES", "Story", "Unit"]

Unit = list[dict[str, Any]]


@dataclass(frozen=True)
class Story:
    """Units that run, the first `idle` of them idle, and a demand for which `goes` go.

    `nodes`: their GPUs. `quotas`: by team.
    """

    nodes: tuple[int, ...]
    quotas: Mapping[str, int]
    units: tuple[Unit, ...]
    wanted: Unit
    goes: set[str]
    idle: int = field(default=0, kw_only=True)


def _queued(name: str, team: str, **given: Any) -> Unit:
    return job(name, team, queued=True, **given)


_HOST: Final = "kubernetes.io/hostname"
_OF_A: Final = {"a": 8, "b": 0}
_SHARED: Final = {"a": 4, "b": 4}

STORIES: Final = {
    "idle work before its victim": Story(
        (8,),
        _OF_A,
        (deployment("ann", "b", priority="high"), deployment("bob", "b")),
        job("wanted", "a", priority="high"),
        {"ann"},
        idle=1,
    ),
    "quota and room of one victim": Story(
        (8,),
        _OF_A,
        (_queued("sweep", "b"), _queued("tune", "a")),
        _queued("wanted", "a", priority="high"),
        {"sweep"},
    ),
    "quota and room on two nodes": Story(
        (4, 4),
        _OF_A,
        (_queued("sweep", "b"), _queued("tune", "a")),
        _queued("wanted", "a", priority="high"),
        {"sweep"},
    ),
    "idle work that holds no quota": Story(
        (8, 8),
        _OF_A,
        (
            job("notebook", "b", priority="high"),
            _queued("sweep", "b"),
            _queued("own", "a", priority="high"),
        ),
        _queued("wanted", "a", priority="high"),
        {"sweep"},
        idle=1,
    ),
    "a gang as a whole": Story(
        (8,),
        _OF_A,
        (gang("ring", "b", priority="high"),),
        job("wanted", "a", priority="high"),
        {"ring-0", "ring-1"},
        idle=1,
    ),
    "idle room for who has quota": Story(
        (4, 4),
        _SHARED,
        (job("plain", "b", priority="high"), _queued("queued", "b", pods=2, gpus=2)),
        _queued("wanted", "a", priority="high"),
        {"plain"},
        idle=1,
    ),
    "idle work that holds the quota": Story(
        (8,),
        _OF_A,
        (_queued("notebook", "a"), _queued("tune", "a")),
        _queued("wanted", "a"),
        {"notebook"},
        idle=1,
    ),
    "busy work where nobody is idle": Story(
        (8,),
        _OF_A,
        (deployment("ann", "b", priority="high"), job("bob", "b")),
        job("wanted", "a", priority="high"),
        {"bob"},
    ),
    "busy work where idle work holds twice as much": Story(
        (8, 8),
        _OF_A,
        (
            job("large", "b", gpus=8, priority="high"),
            deployment("bob", "b"),
            deployment("cat", "b", priority="high"),
        ),
        job("wanted", "a", priority="high"),
        {"bob"},
        idle=1,
    ),
    "a small idle job and busy work where a large idle job holds twice as much": Story(
        (8, 8),
        _OF_A,
        (
            job("large", "b", gpus=8, priority="high"),
            job("small", "b", gpus=2, priority="high"),
            deployment("bob", "b", gpus=2),
            deployment("cat", "b", priority="high"),
        ),
        job("wanted", "a", priority="high"),
        {"small", "bob"},
        idle=2,
    ),
    "a small idle job and busy work for a gang that has room for one of its pods": Story(
        (8, 4),
        _OF_A,
        (
            job("ann", "b", gpus=1, priority="high", nodeSelector={_HOST: "n0"}),
            job("large", "b", priority="high", nodeSelector={_HOST: "n1"}),
            job("stays", "b", priority="high", nodeSelector={_HOST: "n0"}),
            deployment("bob", "b", gpus=1),
        ),
        gang("wanted", "a", gpus=2, priority="high"),
        {"ann", "bob"},
        idle=2,
    ),
    "a small idle job and busy work where busy work alone is more": Story(
        (8,),
        _OF_A,
        (
            job("ann", "b", gpus=1, priority="high"),
            job("small", "b", gpus=2),
            deployment("bob", "b"),
        ),
        job("wanted", "a", priority="high"),
        {"ann", "small"},
        idle=1,
    ),
    "idle work of low priority that would displace others on its return": Story(
        (8, 4),
        _OF_A,
        (
            job("cat", "b", nodeSelector={_HOST: "n1"}),
            job("ann", "b", gpus=3, priority="low"),
            deployment("bob", "b", gpus=2),
            job("high", "b", gpus=3, priority="high"),
        ),
        job("wanted", "a", gpus=5, priority="high"),
        {"ann", "bob"},
        idle=2,
    ),
    "nobody where there is room": Story(
        (8, 8),
        _OF_A,
        (deployment("ann", "b", priority="high"),),
        job("wanted", "a", gpus=8),
        set(),
        idle=1,
    ),
    "the smaller of two idle units": Story(
        (8,),
        _OF_A,
        (job("large", "b", gpus=6, priority="high"), job("small", "b", gpus=2, priority="high")),
        job("wanted", "a", gpus=2),
        {"small"},
        idle=2,
    ),
    "two idle units for one demand": Story(
        (8,),
        _OF_A,
        (deployment("ann", "b", priority="high"), deployment("tim", "b", priority="high")),
        job("wanted", "a", gpus=8),
        {"ann", "tim"},
        idle=2,
    ),
    "lower priority in its own queue": Story(
        (8,),
        _OF_A,
        (_queued("low", "a"), _queued("high", "a", priority="high")),
        _queued("wanted", "a", priority="high"),
        {"low"},
    ),
    "a borrower of lower priority": Story(
        (8,),
        _SHARED,
        (_queued("own", "b", priority="high"), _queued("borrowed", "b")),
        _queued("wanted", "a"),
        {"borrowed"},
    ),
    "an idle borrower before a busy one": Story(
        (8,),
        _SHARED,
        (_queued("resting", "b", priority="high"), _queued("busy", "b")),
        _queued("wanted", "a"),
        {"resting"},
        idle=1,
    ),
    "idle quota of others before its own lower ones": Story(
        (8,),
        _SHARED,
        (_queued("resting", "b", priority="high"), _queued("lower", "a", priority="low")),
        _queued("wanted", "a", priority="high"),
        {"resting"},
        idle=1,
    ),
    "a gang for which two go by priority": Story(
        (4, 4),
        _OF_A,
        (job("left", "b"), job("right", "b")),
        gang("wanted", "a", priority="high"),
        {"left", "right"},
    ),
    "a gang beside free room": Story(
        (4, 4),
        _OF_A,
        (deployment("ann", "b", priority="high"),),
        gang("wanted", "a"),
        {"ann"},
        idle=1,
    ),
    "one idle job, not an idle gang": Story(
        (8, 4),
        _OF_A,
        (
            gang("ring", "b", priority="high", pods=2, gpus=4),
            job("solo", "b", priority="high"),
        ),
        job("wanted", "a"),
        {"solo"},
        idle=2,
    ),
    "a Deployment as the demand": Story(
        (4,),
        _OF_A,
        (job("ann", "b", priority="high"),),
        deployment("wanted", "a"),
        {"ann"},
        idle=1,
    ),
    "all pods of one demand": Story(
        (8,),
        _OF_A,
        (deployment("ann", "b", pods=2, priority="high"),),
        job("wanted", "a", pods=2),
        {"ann"},
        idle=1,
    ),
    "the lowest of three priorities": Story(
        (8,),
        _OF_A,
        (job("middle", "b", priority="low"), job("lowest", "b")),
        job("wanted", "a", priority="high"),
        {"lowest"},
    ),
    "idle work though lower work is smaller": Story(
        (8,),
        _OF_A,
        (job("ann", "b", gpus=3, priority="high"), job("busy", "b", gpus=2)),
        job("wanted", "a", priority="high"),
        {"ann"},
        idle=1,
    ),
    "work that does not come back though an idle gang has a lower priority": Story(
        (8, 4),
        _OF_A,
        (gang("ann", "b"), gang("busy", "b", pods=1, priority="low", opted=False)),
        job("wanted", "a", gpus=2, priority="high"),
        {"busy-0"},
        idle=1,
    ),
    "an idle gang of a lower priority than work that comes back": Story(
        (8, 4),
        _OF_A,
        (gang("ann", "b"), job("busy", "b", priority="low", opted=False)),
        job("wanted", "a", gpus=2, priority="high"),
        {"ann-0", "ann-1"},
        idle=1,
    ),
    "lower work that is far smaller than idle work": Story(
        (8,),
        _OF_A,
        (job("ann", "b", priority="high"), job("busy", "b", gpus=2)),
        job("wanted", "a", priority="high"),
        {"busy"},
        idle=1,
    ),
    "one idle pod by its priority": Story(
        (4,),
        _OF_A,
        (deployment("ann", "b", pods=2, gpus=2),),
        job("wanted", "a", gpus=2, priority="high"),
        {"ann"},
        idle=1,
    ),
    "two of three nodes": Story(
        (4, 4, 4),
        _OF_A,
        (
            job("one", "b", priority="high"),
            job("two", "b", priority="high"),
            job("busy", "b", priority="high"),
        ),
        job("wanted", "a", pods=2),
        {"one", "two"},
        idle=2,
    ),
    "idle quota of two pods": Story(
        (4, 4),
        _OF_A,
        (_queued("notebook", "a", pods=2, priority="high"),),
        _queued("wanted", "a", pods=2),
        {"notebook"},
        idle=1,
    ),
    "two borrowers for one demand": Story(
        (8,),
        _OF_A,
        (_queued("one", "b"), _queued("two", "b")),
        _queued("wanted", "a", gpus=8),
        {"one", "two"},
    ),
    "quota from one and room from another": Story(
        (4, 4),
        _SHARED,
        (
            _queued("borrowed", "b", gpus=2),
            _queued("own", "b", priority="high"),
            job("plain", "b", gpus=2),
        ),
        _queued("wanted", "a", priority="high"),
        {"borrowed", "plain"},
    ),
    "one unit that frees both": Story(
        (4, 4),
        _SHARED,
        (_queued("borrowed", "b", gpus=2), _queued("own", "b"), job("plain", "b", gpus=2)),
        _queued("wanted", "a", priority="high"),
        {"own"},
    ),
}
