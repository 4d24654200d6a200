"""Requests of random pods agree with the naive reading of the same rules."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from tests.intake.cluster.objects import class_of, container, pod
from tests.oracle.scheduling.objects import requests_of

NAMES = ("cpu", "memory", "nvidia.com/gpu", "hugepages-2Mi")
AMOUNTS = {
    "cpu": ("0", "100m", "1", "1500m"),
    "memory": ("0", "64Mi", "1Gi", "123k"),
    "nvidia.com/gpu": ("1", "2"),
    "hugepages-2Mi": ("2Mi", "8Mi"),
}


def amounts(chance: random.Random) -> dict[str, str]:
    return {name: chance.choice(AMOUNTS[name]) for name in NAMES if chance.random() < 0.5}


def random_pod(chance: random.Random, seen: Counter[str]) -> dict[str, Any]:
    names = [f"c{n}" for n in range(chance.randint(1, 3))]
    init = []
    for number in range(chance.randint(0, 4)):
        restart = chance.choice(("Always", None))
        seen["sidecar" if restart else "init container"] += 1
        init.append(container(f"i{number}", restart, **amounts(chance)))
    spec: dict[str, Any] = {}
    if chance.random() < 0.3:
        seen["pod level"] += 1
        spec["resources"] = {"requests": amounts(chance)}
    if chance.random() < 0.3:
        seen["overhead"] += 1
        spec["overhead"] = {"cpu": "10m", "memory": "1Mi"}
    status: dict[str, Any] = {}
    if chance.random() < 0.4:
        seen["resized"] += 1
        spec["nodeName"] = "n"
        status["containerStatuses"] = [
            {"name": name, "allocatedResources": amounts(chance)} for name in names
        ]
        if chance.random() < 0.5:
            seen["infeasible"] += 1
            status["conditions"] = [{"type": "PodResizePending", "reason": "Infeasible"}]
    return pod(
        *[container(name, **amounts(chance)) for name in names], init=init, status=status, **spec
    )


def test_random_pods_request_what_the_oracle_says() -> None:
    seen: Counter[str] = Counter()
    for seed in range(400):
        manifest = random_pod(random.Random(seed), seen)
        expected = {name: amount for name, amount in requests_of(manifest).items() if amount}
        assert dict(class_of(manifest).requests) == expected, manifest
    assert min(seen.values()) >= 50, seen
