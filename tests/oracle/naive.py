"""A naive second opinion on the idle plane: plain data in, plain data out, no care for speed.

Written from the specification alone; imports nothing of the engine. A case is a dict:

    {"now": s, "window": s, "settling": s, "nodes": {name: {resource: free}},
     "claims": {root: key or None}, "workloads": [workload, ...]}

A workload is `{"key", "root", "phase", "created", "idle_since", "grace", "policy", "gpus",
"preempted_for", "preempted_at", "pods"}`; a pod is `{"name", "phase", "node", "gpus", "nodes",
"seen", "asks"}` where `asks` is what it requests beside GPUs, and `seen` is the list of instants at
which its GPUs were last polled (None: never by this process). Times are whole seconds.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

Case = dict[str, Any]
Row = dict[str, Any]


def fresh(workload: Row, case: Case) -> bool:
    """Every running pod with GPUs has samples, all polled within the window."""
    measured = [p for p in workload["pods"] if p["phase"] == "Running" and p["gpus"]]
    return bool(measured) and all(
        pod["seen"]
        and all(s is not None and 0 <= case["now"] - s <= case["window"] for s in pod["seen"])
        for pod in measured
    )


def eligible(workload: Row, case: Case) -> bool:
    return (
        workload["phase"] == "Idle"
        and workload["idle_since"] is not None
        and case["now"] - min(workload["idle_since"], case["now"]) >= workload["grace"]
        and workload["root"] not in case["claims"]
        and fresh(workload, case)
    )


def on_its_way(workload: Row, case: Case) -> str | None:
    """For whom its GPUs are being freed: a key, a name, "" for nobody in particular, or None."""
    claimed = workload["root"] in case["claims"]
    if workload["phase"] == "Deleted":
        return None
    if workload["phase"] == "Preempted":
        lately = case["now"] - workload["preempted_at"]
        if not workload["pods"] and not 0 <= lately < case["settling"]:
            return None
    elif workload["phase"] != "Preempting" and not claimed:
        return None
    if claimed:
        return case["claims"][workload["root"]] or ""
    return str(workload["preempted_for"])


def whose(workload: Row, case: Case) -> str | None:
    """For whom it is in the end: what was made for one that waits no longer is nobody's.

    A demand that runs has the room of pods that have ended, and shares it with nobody.
    """
    whom = on_its_way(workload, case)
    waiting = {w["key"] for w in case["workloads"] if w["phase"] == "PendingGpu"}
    if not whom or whom in waiting | names_of(waiting):
        return whom
    served = set(case.get("served", ()))
    taken = not workload["pods"] and whom in served | names_of(served)
    return None if taken else ""


def names_of(keys: set[str]) -> set[str]:
    return {key.split("/")[1] for key in keys}


def over(workload: Row) -> bool:
    """It was preempted and its pods are gone: its GPUs are free, for whoever came first."""
    return workload["phase"] == "Preempted" and not workload["pods"]


def always_victims(case: Case) -> list[Row]:
    chosen = [w for w in case["workloads"] if w["policy"] == "Always" and eligible(w, case)]
    return sorted(chosen, key=lambda w: (w["idle_since"], w["key"]))


def idle_pool(case: Case) -> list[Row]:
    chosen = [w for w in case["workloads"] if w["policy"] == "OnPressure" and eligible(w, case)]
    return sorted(chosen, key=lambda w: (w["idle_since"], w["key"]))


def demands(case: Case) -> list[Row]:
    waiting = [w for w in case["workloads"] if w["phase"] == "PendingGpu"]
    return sorted(waiting, key=lambda w: (w["created"], w["key"]))


def decide(case: Case, trim: bool = False) -> list[tuple[str, list[str]]]:
    """Return (key of the demand or "", keys of its victims in order), in order, by the sum."""
    always = always_victims(case)
    plans = [("", [w["key"]]) for w in always]
    unowned = [*always, *(w for w in case["workloads"] if whose(w, case) == "")]
    names = {name for w in case["workloads"] for name in w["gpus"]}
    bank = {name: total(unowned, name) for name in names}
    gone: set[str] = set()
    for demand in demands(case):
        offered = [w for w in unowned if not (over(w) and w["preempted_at"] <= demand["created"])]
        bank = {name: min(bank[name], total(offered, name)) for name in names}
        flying = in_flight_for(demand, case)
        credit = {
            name: min(bank[name], max(0, count - total(flying, name)))
            for name, count in demand["gpus"].items()
        }

        def enough(
            rows: list[Row],
            demand: Row = demand,
            flying: list[Row] = flying,
            credit: dict[str, int] = credit,
        ) -> bool:
            return all(
                total([*flying, *rows], name) + credit[name] >= count
                for name, count in demand["gpus"].items()
            )

        chosen: list[Row] = []
        if not enough(chosen):
            for candidate in idle_pool(case):
                if candidate["key"] in gone or not helps(candidate, demand, chosen, flying, credit):
                    continue
                chosen.append(candidate)
                if enough(chosen):
                    break
            if not enough(chosen):
                continue
        if trim:
            for candidate in sorted(chosen, key=lambda w: (w["idle_since"], w["key"]))[::-1]:
                rest = [w for w in chosen if w is not candidate]
                if enough(rest):
                    chosen = rest
        for name, count in credit.items():
            bank[name] -= count
        gone.update(w["key"] for w in chosen)
        if chosen:
            plans.append((demand["key"], [w["key"] for w in chosen]))
    return plans


def in_flight_for(demand: Row, case: Case) -> list[Row]:
    names = (demand["key"], demand["key"].split("/")[1])
    return [w for w in case["workloads"] if whose(w, case) in names]


def leaving_anyway(demand: Row, case: Case) -> list[Row]:
    """Whose room the demand may use although nobody goes for it now."""
    unowned = [w for w in case["workloads"] if whose(w, case) == ""]
    return [*always_victims(case), *unowned, *in_flight_for(demand, case)]


def helps(
    candidate: Row,
    demand: Row,
    chosen: list[Row],
    flying: list[Row],
    credit: dict[str, int],
) -> bool:
    return any(
        candidate["gpus"].get(name, 0) > 0
        and total([*flying, *chosen], name) + credit[name] < count
        for name, count in demand["gpus"].items()
    )


def total(rows: list[Row], name: str) -> int:
    return sum(row["gpus"].get(name, 0) for row in rows)


def waiting_pods(demand: Row) -> list[Row]:
    return [p for p in demand["pods"] if p["phase"] == "Pending" and p["gpus"]]


def can_place(demand: Row, case: Case, leaving: list[Row]) -> bool:
    """Try every assignment of every waiting pod to every node."""
    pods = waiting_pods(demand)
    nodes = sorted(case["nodes"])
    return any(
        fits_together(list(zip(pods, places, strict=True)), case, leaving)
        for places in itertools.product(nodes, repeat=len(pods))
    )


def fits_together(places: list[tuple[Row, str]], case: Case, leaving: list[Row]) -> bool:
    """Whether these pods fit on these nodes at once, after the pods of `leaving` have left."""
    once = {row["key"]: row for row in leaving}.values()
    for node, free in case["nodes"].items():
        here = [pod for pod, place in places if place == node]
        if any(pod["nodes"] is not None and node not in pod["nodes"] for pod in here):
            return False
        for name in {name for pod in here for name in asks(pod)}:
            freed = sum(
                asks(pod).get(name, 0)
                for row in once
                for pod in row["pods"]
                if pod["node"] == node and pod["phase"] not in ("Succeeded", "Failed")
            )
            if sum(asks(pod).get(name, 0) for pod in here) > free.get(name, 0) + freed:
                return False
    return True


def asks(pod: Row) -> dict[str, int]:
    return {**pod["gpus"], **pod.get("asks", {})}


def aggregate(pods: list[list[float]], how: str) -> Fraction | None:
    """Exact Min, Max or Avg over the pods' exact means; None without samples."""
    means = [sum(map(Fraction, pod), Fraction(0)) / len(pod) for pod in pods if pod]
    if not means:
        return None
    if how == "Min":
        return min(means)
    if how == "Max":
        return max(means)
    return sum(means, Fraction(0)) / len(means)


def hundredths(value: Fraction) -> int:
    """Return the value in hundredths, halves rounded up."""
    return int(value * 100 + Fraction(1, 2))


def phase(workload: Row, case: Case, threshold: float, how: str) -> tuple[str, bool]:
    """Return the next phase of a living workload with a root, and whether an idle timer runs.

    `workload["pods"]` also carry `demand`, `terminating` and `values` (percent, as `seen`).
    """
    before, now = workload["phase"], case["now"]
    running_timer = workload["idle_since"] is not None
    live = [
        p
        for p in workload["pods"]
        if not p["terminating"] and p["phase"] not in ("Succeeded", "Failed")
    ]
    if any(p["phase"] == "Pending" and p["demand"] for p in live):
        return "PendingGpu", False
    if not any(p["phase"] == "Running" for p in live):
        return "PendingOther", False
    known = [
        [
            value
            for value, seen in zip(p["values"], p["seen"], strict=True)
            if seen is not None and 0 <= now - seen <= case["window"]
        ]
        for p in workload["pods"]
    ]
    utilization = aggregate(known, how)
    # More samples than GPUs: those of GPUs that the pod does not have cannot make it idle.
    held = [
        sorted(values)[max(0, len(values) - sum(p["gpus"].values())) :]
        for values, p in zip(known, workload["pods"], strict=True)
    ]
    # The aggregate is a number of two decimals, and that is what is compared.
    for value in (utilization, aggregate(held, how)):
        if value is not None and hundredths(value) >= 100 * Fraction(threshold):
            return "Active", False
    measured = [p for p in live if p["phase"] == "Running" and p["gpus"]]
    if measured and fresh({"pods": measured}, case):
        return "Idle", True
    if before in ("", "PendingOther", "PendingGpu"):
        return "Active", False
    heard = [max((s for s in p["seen"] if s is not None), default=None) for p in measured]
    heard = [h if h is not None else p["heard"] for h, p in zip(heard, measured, strict=True)]
    long_silent = not heard or any(h is None or now - h > 2 * case["window"] for h in heard)
    return before, running_timer and not long_silent
