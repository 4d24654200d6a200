"""Play one fault on a real control plane, and print what its audit log says, as one JSON line.

python -m tests.reliability kills
python -m tests.reliability kills --plane idle --times 20 --binaries FOLDER --folder KEPT

Ends with 1 when something was found that must not be: a pod deleted twice, or without a record that
was committed before, more on a node than it has, a gang that never came to its nodes, a victim that
is evicted in two records, somebody evicted in vain or without any entry in the log. Faults of plans
print a line for each round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.integration.control_plane import ASSETS, NoBinaries, describe, find_binaries
from tests.reliability.accounts import compare
from tests.reliability.audit import judge, read
from tests.reliability.churn import Churn
from tests.reliability.faults import FAULTS, LIBFAKETIME, Fault, Load, Run
from tests.reliability.idle import IdleChurn
from tests.reliability.proxy import through
from tests.reliability.quota import QuotaChurn
from tests.reliability.stand import OPERATOR, Stand, stand

_PATIENCE_S: Final = 180.0
_QUOTA: Final = 32
_AFTERWARDS_S: Final = 20.0


async def play(name: str, fault: Fault, plane: str, folder: Path) -> dict[str, Any]:
    """Play a fault; return what was found."""
    async with stand(
        find_binaries(),
        folder,
        nodes=fault.nodes,
        cpus=fault.cpus,
        flags=fault.flags,
        leases_first=fault.leases_first,
    ) as found:
        load = _load(plane, fault, found)
        direct, proxied = folder / "operator.kubeconfig", folder / "proxied.kubeconfig"
        async with through(direct, found.plane.ports["api"], proxied) as proxy, load.ready():
            operators = found.operators(
                "--controllers",
                load.controllers,
                replicas=fault.replicas,
                lease=fault.lease,
                kubeconfig=proxied,
                module=fault.module,
                environment=load.environment | (_settable_clock(folder) if fault.clock else {}),
            )
            run = Run(found, operators, load, proxy, fault.times, fault.seconds)
            served, seconds, records = await _play(run, fault)
    quotas = {"cq": float(load.cpus)} if isinstance(load, QuotaChurn) else {}
    findings = judge(read(folder / "audit.log"), OPERATOR, found.nodes, records, queues=quotas)
    accounts = compare(records, findings)
    wrong = {
        **findings.wrong,
        # Who was evicted from its quota may be admitted and evicted again.
        "evicted_in_two_records": [] if plane == "quota" else accounts.evicted_twice,
    }
    return {
        "fault": name,
        "plane": plane,
        "what": fault.what,
        "times": fault.times,
        "seconds": round(seconds),
        "starts": operators.starts,
        "leases_lost": operators.lines("the process lease is lost"),
        "exit_codes": dict(Counter(map(str, operators.codes))),
        "wanted": load.made,
        "served": load.served,
        "all_served": served,
        "slowest_s": round(load.slowest_s, 1),
        "gangs": findings.gangs,
        "slowest_gang_s": round(findings.slowest_gang_s, 1),
        "records": findings.records,
        "deletions": findings.deletions,
        "evictions_from_quota": findings.evictions,
        "unanswered_deletions": findings.unanswered,
        "refused": {str(code): number for code, number in findings.refused.items()},
        "victims_by_state": dict(accounts.states),
        "evicted_but_not_deleted": dict(accounts.not_deleted),
        "deleted_but_not_evicted": dict(accounts.not_evicted),
        **run.said,
        **{word: len(which) for word, which in wrong.items()},
        "examples": {
            word: which[:5] for word, which in (wrong | accounts.examples).items() if which
        },
    }


def is_wrong(said: Mapping[str, Any]) -> bool:
    """Tell whether something was found that must not be."""
    words = ("deleted_twice", "without_record", "overcommitted", "gangs_lost")
    wrong = any(said[word] for word in (*words, "evicted_in_two_records"))
    in_vain = bool(said.get("in_vain") or said.get("not_in_the_log"))
    return wrong or in_vain or not said["all_served"] or "gave_up" in said


async def _play(run: Run, fault: Fault) -> tuple[bool, float, list[dict[str, Any]]]:
    """Return whether all gangs were served, the seconds until then, and all records ever seen."""
    began = time.monotonic()
    await run.operators.start()
    coming = asyncio.create_task(asyncio.sleep(0) if fault.alone else run.load.run())
    try:
        try:
            await fault.do(run)
        except AssertionError as failure:
            run.said["gave_up"] = str(failure)
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        served = await run.load.until_served(_PATIENCE_S)
        seconds = time.monotonic() - began
        # What was begun is brought to its end, so that the records say how it ended.
        await asyncio.sleep(_AFTERWARDS_S)
        await run.stand.records()
        return served, seconds, list(run.stand.ever.values())
    finally:
        coming.cancel()
        await run.operators.stop()


def _load(plane: str, fault: Fault, found: Stand) -> Load:
    match plane:
        case "idle":
            return IdleChurn(found)
        case "quota":
            return QuotaChurn(found, cpus=fault.nodes * fault.cpus if fault.alone else _QUOTA)
        case _:
            return Churn(found, **fault.churn)


def _settable_clock(folder: Path) -> dict[str, str]:
    """Return the environment in which the wall clock follows the file `clock`."""
    (folder / "clock").write_text("+0s\n", encoding="utf-8")
    return {
        "LD_PRELOAD": str(LIBFAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(folder / "clock"),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability")
    parser.add_argument("fault", choices=sorted(FAULTS))
    parser.add_argument("--plane", choices=("scheduling", "idle", "quota"), default="scheduling")
    parser.add_argument("--binaries", type=Path, metavar="FOLDER")
    parser.add_argument("--folder", type=Path, help="keep logs here; else in a temporary folder")
    parser.add_argument("--times", type=int, help="how often the fault happens")
    parser.add_argument("--seconds", type=float, help="how long, where the fault has no end")
    given = parser.parse_args()
    if given.binaries is not None:
        os.environ[ASSETS] = str(given.binaries)
    try:
        print(f"control plane: {describe()}", file=sys.stderr)
    except NoBinaries as missing:
        print(missing, file=sys.stderr)
        return 2
    fault = FAULTS[given.fault]
    if fault.own and given.plane != "scheduling":
        print(f"{given.fault} is one of the scheduling plane", file=sys.stderr)
        return 2
    if fault.clock and not LIBFAKETIME.exists():
        print(f"{LIBFAKETIME} is missing; Debian's package is libfaketime", file=sys.stderr)
        return 2
    fault = replace(fault, times=given.times or fault.times, seconds=given.seconds or fault.seconds)
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        said = asyncio.run(play(given.fault, fault, given.plane, folder))
    print(json.dumps(said))
    return int(is_wrong(said))


if __name__ == "__main__":
    sys.exit(main())
