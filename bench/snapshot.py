"""`python -m bench.snapshot [--quick]`: what a stored snapshot of a large cluster takes.

5,000 nodes of eight GPUs and 50,000 running pods of 6,250 jobs with uids, names, instants and
versions as clusters make them. Told are the bytes of the file and the CPU time of writing and
reading it, best of three. Checked: what is read is what was written.
"""

from __future__ import annotations

import sys
import time
import uuid
from random import Random
from typing import Any

import msgspec

from bench.measuring import print_line
from bench.whatif import Held
from kubeworld.units.instants import Nanos, format_instant
from reprieve.kube.resource import NODES, PODS, Resource
from reprieve.whatif.snapshots.snapshot import Listed, Snapshot
from reprieve.whatif.snapshots.stored import snapshot_of_bytes, stored_bytes

_START = 1_790_000_000
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def _uid(random: Random) -> str:
    return str(uuid.UUID(int=random.getrandbits(128), version=4))


def _lifelike(random: Random, number: int, held: Held, jobs: list[str]) -> dict[str, Any]:
    pod = held.pod(number)
    metadata = pod["metadata"]
    owner = metadata["ownerReferences"][0]
    # The pods of a job come within some seconds.
    since = Random(number // 8).randint(10, 600_000) - random.randint(0, 5)
    begun = format_instant(Nanos((_START - since) * 10**9))
    suffix = "".join(random.choices(_LETTERS, k=5))
    owner |= {"name": f"train-{number // 8}", "uid": jobs[number // 8]}
    pod["spec"]["priority"] = number // 8 % 5 * 100
    metadata |= {
        "namespace": f"team-{number // 8 % 40}",
        "name": f"train-{number // 8}-{suffix}",
        "uid": _uid(random),
        "resourceVersion": str(random.randint(10**7, 10**8)),
        "creationTimestamp": begun,
        "labels": {
            "job-name": owner["name"],
            "batch.kubernetes.io/job-name": owner["name"],
            "controller-uid": owner["uid"],
            "batch.kubernetes.io/controller-uid": owner["uid"],
        },
    }
    pod["status"]["startTime"] = begun
    for condition in pod["status"]["conditions"]:
        condition["lastTransitionTime"] = begun
    return pod


def _listed(resource: Resource, objects: list[dict[str, Any]]) -> Listed:
    return Listed(
        resource,
        {
            (each["metadata"].get("namespace", ""), each["metadata"]["name"]): msgspec.json.encode(
                each
            )
            for each in objects
        },
        7,
    )


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    nodes, random = 50 if quick else 5_000, Random(1)
    pods = nodes * 10
    jobs = [_uid(random) for _ in range(pods // 8 + 1)]
    held = Held(nodes)
    machines = [held.node(number) for number in range(nodes)]
    for each in machines:
        each["metadata"]["uid"] = _uid(random)
    kinds = (
        _listed(NODES, machines),
        _listed(PODS, [_lifelike(random, number, held, jobs) for number in range(pods)]),
    )
    chosen = Snapshot(
        Nanos(_START * 10**9),
        {(each.resource.group, each.resource.plural): each for each in kinds},
    )
    best: dict[str, float] = {}
    for _ in range(1 if quick else 3):
        start = time.process_time()
        body = stored_bytes(chosen)
        written = time.process_time()
        back = snapshot_of_bytes(body, "FILE")
        end = time.process_time()
        assert stored_bytes(back) == body
        found = {
            "mib": round(len(body) / 2**20, 2),
            "write_ms": round((written - start) * 1e3, 1),
            "read_ms": round((end - written) * 1e3, 1),
        }
        best = found if not best or found["write_ms"] < best["write_ms"] else best
    print_line("snapshot", f"{nodes}-nodes-{pods}-pods", **best)


if __name__ == "__main__":
    main()
