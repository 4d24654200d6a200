"""A naive second opinion on flavor assignment and on one scheduling cycle of the quota plane.

Written from the specification alone (sections 5, 8.2 and 8.3); imports nothing of the engine. To
the case of `quota` come

    case["flavors"]   {name: {"labels", "taints": [(key, value, effect)], "tolerations": [...]}}
    case["settings"]  {"ignore_undeclared", "fungible", "prioritize_non_borrowing",
                       "priority_sorting", "recompute"}: bools
    queue["groups"]   [{"covered": [resource], "flavors": [flavor]}]
    queue["fungibility"]  (whenCanBorrow, whenCanPreempt, preference or "")
    case["heads"]     [{"key", "uid", "queue", "priority", "created", "reclaimable", "pod_sets"}]
    pod set           {"name", "count", "least" or None, "requests", "selector", "affinity",
                       "tolerations", "group"}

Tolerations are (key, operator, value, effect), affinity None or a list of lists of (key, operator,
values). What the reference leaves open is decided by the names of queues and cohorts.
"""

from __future__ import annotations

from typing import Any

from tests.oracle.quota import Case, Node, Pair, World, targets


class Historical(Exception):
    """A reservation below zero lowers a queue's usage but not its parents': order decides then."""


MODES = ["noFit", "noPreemptionCandidates", "preempt", "reclaim", "fit"]
SEVERITY = ["", "TopologyPlacementFailed", "WaitingForQuota", "ExceedsMaxQuota", "NoMatchingFlavor"]
Worth = tuple[str, int]


def quantity(resource: str, amount: int) -> str:
    if resource == "cpu":
        if amount % 1000:
            return f"{amount}m"
        amount //= 1000
    binary = resource == "memory"
    step, names = (1024, "KMGTPE") if binary else (1000, "kMGTPE")
    suffix = ""
    for name in names:
        if not amount or amount % step:
            break
        amount, suffix = amount // step, name + ("i" if binary else "")
    return f"{amount}{suffix}"


def height(world: World, node: Node) -> int:
    if node[0] == "queue":
        return 0
    below = world.children(node[1])
    return max([1 if below else 0] + [height(world, c) + 1 for c in below if c[0] == "cohort"])


def level_of(world: World, queue: str, pair: Pair, amount: int) -> tuple[int, bool]:
    node: Node = ("queue", queue)
    path = world.path(node)
    if len(path) == 1 or world.quota(node, pair)[0] >= world.used(node, pair) + amount:
        return 0, len(path) > 1
    rest = amount - world.local_left(node, pair)
    for above in path[1:]:
        if world.subtree(above, pair) >= world.used(above, pair) + rest:
            return height(world, above), world.parent(above) is not None
        rest -= world.local_left(above, pair)
    return height(world, path[-1]), False


def preferred(a: Worth, b: Worth, preference: str) -> bool:
    if a[0] == "noFit":
        return False
    if b[0] == "noFit":
        return True
    if (a[0] == "noPreemptionCandidates") != (b[0] == "noPreemptionCandidates"):
        return b[0] == "noPreemptionCandidates"
    mode = MODES.index(a[0]) - MODES.index(b[0])
    nearer = b[1] - a[1]
    if preference == "PreemptionOverBorrowing":
        return nearer > 0 or (nearer == 0 and mode > 0)
    return mode > 0 or (mode == 0 and nearer > 0)


def tolerated(taint: tuple[str, str, str], tolerations: list[Any]) -> bool:
    for key, operator, value, effect in tolerations:
        if effect not in ("", taint[2]) or key not in ("", taint[0]):
            continue
        if operator == "Exists" or (key and value == taint[1]):
            return True
    return False


def mismatch(flavor: Case, name: str, pod_set: Case) -> str:
    for taint in flavor["taints"]:
        if taint[2] not in ("NoSchedule", "NoExecute"):
            continue
        if not tolerated(taint, pod_set["tolerations"] + flavor["tolerations"]):
            return f"untolerated taint {{{taint[0]} {taint[1]} {taint[2]} <nil>}} in flavor {name}"
    labels = flavor["labels"]
    fits = all(labels[k] == v for k, v in pod_set["selector"].items() if k in labels)
    terms = [[e for e in term if e[0] in labels] for term in pod_set["affinity"] or []]
    if terms and all(terms):
        fits = fits and any(
            all((labels[k] in values) == (operator == "In") for k, operator, values in term)
            for term in terms
        )
    return "" if fits else f"flavor {name} doesn't match node affinity"


class Attempt:
    """One assignment of a head, on a case that may differ from that of the nomination."""

    def __init__(self, case: Case, head: Case, counts: list[int] | None, only: Any = None) -> None:
        self.case, self.head, self.only = case, head, only
        self.world = World(case)
        self.queue = case["queues"][head["queue"]]
        self.usage: dict[Pair, int] = {}
        self.need: set[Pair] = set()
        self.pod_sets: list[Case] = []
        self.level = 0
        self.reason = ""
        self._assign(counts)

    @property
    def mode(self) -> str:
        if any(not each["fits"] for each in self.pod_sets):
            return "NoFit"
        chosen = [c for each in self.pod_sets for c in each["flavors"].values()]
        return "Preempt" if any(c["mode"] != "fit" for c in chosen) else "Fit"

    @property
    def message(self) -> str:
        return "; ".join(
            f"couldn't assign flavors to pod set {p['name']}: {', '.join(sorted(p['reasons']))}"
            for p in self.pod_sets
            if p["reasons"]
        )

    def search(self) -> list[tuple[str, str]]:
        asked = {pair: amount for pair, amount in self.usage.items() if amount}
        return self._targets(asked, self.need)

    def _targets(self, requests: dict[Pair, int], need: set[Pair]) -> list[tuple[str, str]]:
        who = {name: self.head[name] for name in ("queue", "priority", "created")}
        return targets({**self.case, "incoming": {**who, "requests": requests, "need": need}})

    def _assign(self, counts: list[int] | None) -> None:
        asked = []
        for position, pod_set in enumerate(self.head["pod_sets"]):
            count = pod_set["count"]
            count -= min(count, self.head["reclaimable"].get(pod_set["name"], 0))
            if counts is not None:
                count = min(count, counts[position])
            requests = {r: max(0, v) * count for r, v in pod_set["requests"].items()}
            if any("pods" in group["covered"] for group in self.queue["groups"]):
                requests["pods"] = count
            asked.append((pod_set, count, requests))
        groups: list[list[Any]] = []
        for one in asked:
            name = one[0]["group"]
            known = next((g for g in groups if name and g[0][0]["group"] == name), None)
            if known is None:
                groups.append([one])
            else:
                known.append(one)
        for group in groups:
            flavors, reasons, severities = self._group(group)
            for pod_set, count, requests in group:
                mine = {r: c for r, c in (flavors or {}).items() if r in requests}
                self.pod_sets.append(
                    {
                        "name": pod_set["name"],
                        "count": count,
                        "requests": requests,
                        "flavors": mine,
                        "reasons": reasons,
                        "fits": flavors is not None,
                    }
                )
                for resource, choice in mine.items():
                    pair = (choice["flavor"], resource)
                    self.usage[pair] = self.usage.get(pair, 0) + requests[resource]
                    self.level = max(self.level, choice["level"])
                    if choice["mode"] != "fit":
                        self.need.add(pair)
            if flavors is None:
                self.reason = max(severities, key=SEVERITY.index)
                return

    def _group(self, members: list[Any]) -> tuple[dict[str, Case] | None, list[str], list[str]]:
        requests: dict[str, int] = {}
        for _, _, asked in members:
            for resource, amount in asked.items():
                requests[resource] = requests.get(resource, 0) + amount
        flavors: dict[str, Case] = {}
        reasons: list[str] = []
        severities: list[str] = []
        for resource in sorted(requests):
            if resource in flavors:
                continue
            group = next((g for g in self.queue["groups"] if resource in g["covered"]), None)
            if group is None:
                if requests[resource] and not self.case["settings"]["ignore_undeclared"]:
                    why = f"resource {resource} unavailable in ClusterQueue"
                    return None, [why], [*severities, "NoMatchingFlavor"]
                continue
            found, why_not, severity = self._scan(members, requests, resource, group)
            severities.append(severity)
            if not found:
                return None, why_not, severities
            flavors |= found
            reasons += why_not
        return flavors, reasons, severities

    def _scan(
        self, members: list[Any], requests: dict[str, int], resource: str, group: Case
    ) -> tuple[dict[str, Case], list[str], str]:
        fungible = self.case["settings"]["fungible"]
        borrow, preempt, preference = self.queue["fungibility"]
        best: Worth = ("noFit", 0)
        chosen: dict[str, Case] = {}
        reasons: list[str] = []
        severities: list[str] = []
        name, last = members[0][0]["name"], -1
        start = self.head.get("bookmark", {}).get((name, resource), -1) + 1
        if self.only is not None:
            start = 0
        for index in range(start if fungible else 0, len(group["flavors"])):
            flavor, last = group["flavors"][index], index
            if self.only is not None and self.only[name, resource] != flavor:
                reasons.append(
                    f"skipping flavor {flavor} as it is not found in the nomination mapping for "
                    f"resource {resource}"
                )
                continue
            worst, found, why, severity = self._flavor(members, requests, group, flavor)
            reasons += why
            if worst[0] == "noFit":
                severities.append(severity)
                continue
            if not fungible:
                if MODES.index(worst[0]) > MODES.index(best[0]):
                    best, chosen = worst, found
                if worst[0] == "fit":
                    break
                continue
            go_on = (
                worst[0] == "noPreemptionCandidates"
                or (worst[0] in ("preempt", "reclaim") and preempt == "TryNextFlavor")
                or (worst[1] > 0 and borrow == "TryNextFlavor")
            )
            if not go_on:
                best, chosen = worst, found
                break
            if preferred(worst, best, preference):
                best, chosen = worst, found
        tried = -1 if last == len(group["flavors"]) - 1 else last
        for choice in chosen.values():
            choice["tried"] = tried if fungible else 0
        severity = min(severities, key=SEVERITY.index, default="")
        return chosen, [] if best[0] == "fit" else reasons, severity

    def _flavor(
        self, members: list[Any], requests: dict[str, int], group: Case, name: str
    ) -> tuple[Worth, dict[str, Case], list[str], str]:
        flavor = self.case["flavors"].get(name)
        if flavor is None:
            return ("noFit", 0), {}, [f"flavor {name} not found"], "NoMatchingFlavor"
        for pod_set, _, _ in members:
            why = mismatch(flavor, name, pod_set)
            if why:
                return ("noFit", 0), {}, [why], "NoMatchingFlavor"
        preference = self.queue["fungibility"][2]
        worst: Worth = ("fit", 0)
        found, reasons, severity = {}, [], ""
        for resource in sorted(r for r in requests if r in group["covered"]):
            worth, why, bad = self._pair((name, resource), requests[resource])
            reasons += [why] if why else []
            severity = max(severity, bad, key=SEVERITY.index)
            if preferred(worst, worth, preference):
                worst = worth
            found[resource] = {"flavor": name, "mode": worth[0], "level": worth[1]}
        return worst, found, reasons, severity

    def _pair(self, pair: Pair, amount: int) -> tuple[Worth, str, str]:
        world, queue = self.world, self.head["queue"]
        node: Node = ("queue", queue)
        before = self.usage.get(pair, 0)
        wanted, most = before + amount, world.potential(node, pair)
        left = max(0, world.available(node, pair))
        if wanted > most:
            why = (
                f"insufficient quota for {pair[1]} in flavor {pair[0]}, previously considered "
                f"podsets requests ({quantity(pair[1], before)}) + current podset request "
                f"({quantity(pair[1], amount)}) > maximum capacity ({quantity(pair[1], most)})"
            )
            return ("noFit", 0), why, "ExceedsMaxQuota"
        level, reclaims = level_of(world, queue, pair, wanted)
        if wanted <= left:
            return ("fit", level), "", ""
        why = (
            f"insufficient unused quota for {pair[1]} in flavor {pair[0]}, "
            f"{quantity(pair[1], wanted - left)} more needed"
        )
        while_borrowing = self.queue["borrow"] not in (None, "", "Never") or (
            self.case["fair"] is not None and self.queue["reclaim"] != "Never"
        )
        if world.quota(node, pair)[0] < wanted and not reclaims and not while_borrowing:
            return ("noFit", level), why, "WaitingForQuota"
        gone = {key for key, _ in self._targets({pair: wanted}, {pair})}
        if not gone:
            return ("noPreemptionCandidates", level), why, ""
        victims = [w for w in self.case["admitted"] if w["key"] in gone]
        after = World(
            {**self.case, "admitted": [w for w in self.case["admitted"] if w["key"] not in gone]}
        )
        own = any(w["queue"] == queue for w in victims)
        return ("preempt" if own else "reclaim", level_of(after, queue, pair, wanted)[0]), why, ""


def nominate(
    case: Case, head: Case, chosen: dict[tuple[str, str], str] | None = None
) -> tuple[Attempt, list[tuple[str, str]]]:
    """Return the assignment and the targets; a reduced one where only that helps.

    `chosen`: the only flavors, by pod set and resource, where it is decided again.
    """
    full = Attempt(case, head, None, chosen)
    found = full.search() if full.mode == "Preempt" else []
    if full.mode == "Fit" or found:
        return full, found
    deltas = [0 if p["least"] is None else p["count"] - p["least"] for p in head["pod_sets"]]
    total = sum(deltas)
    if not total:
        return full, found
    good: dict[int, tuple[Attempt, list[tuple[str, str]]]] = {}

    def accepted(step: int) -> bool:
        counts = [
            p["count"] - delta * step // total
            for p, delta in zip(head["pod_sets"], deltas, strict=True)
        ]
        one = Attempt(case, head, counts, chosen)
        whom = one.search() if one.mode == "Preempt" else []
        if one.mode == "Fit" or whom:
            good[step] = (one, whom)
            return True
        return False

    low, high = 0, total + 1
    while low < high:
        middle = (low + high) // 2
        if accepted(middle):
            high = middle
        else:
            low = middle + 1
    return good.get(low, (full, found))


def take_heads(case: Case) -> list[Case]:
    """Return one head of each ClusterQueue."""
    found: dict[str, Case] = {}
    for head in sorted(case["heads"], key=lambda h: (-h["priority"], h["created"], h["uid"])):
        found.setdefault(head["queue"], head)
    return [found[name] for name in sorted(found)]


def cycle(case: Case) -> dict[str, Case]:
    """Run one cycle; return by key of the head what became of it."""
    entries = []
    for head in take_heads(case):
        attempt, found = nominate(case, head)
        entries.append({"head": head, "attempt": attempt, "targets": found})
    state = {"extra": {name: {} for name in case["queues"]}, "designated": []}
    results: dict[str, Case] = {}
    remaining = list(entries)
    while remaining:
        entry = _next(_now(case, state), remaining)
        remaining.remove(entry)
        results[entry["head"]["key"]] = _process(case, state, entry)
    return results


def _now(case: Case, state: Case, without: set[str] | None = None) -> Case:
    admitted = [w for w in case["admitted"] if w["key"] not in (without or set())]
    return {**case, "admitted": admitted, "extra": state["extra"]}


def _add(state: Case, queue: str, usage: dict[Pair, int]) -> None:
    mine = state["extra"][queue]
    for pair, amount in usage.items():
        mine[pair] = mine.get(pair, 0) + amount


def _process(case: Case, state: Case, entry: Case) -> Case:
    head, attempt, found = entry["head"], entry["attempt"], entry["targets"]
    queue, overlap = head["queue"], False
    if {key for key, _ in found} & set(state["designated"]) and case["settings"]["recompute"]:
        overlap = True
        chosen = {}
        for one in attempt.pod_sets:
            group = next(p["group"] for p in head["pod_sets"] if p["name"] == one["name"])
            for each in head["pod_sets"]:
                if each["name"] == one["name"] or (group and each["group"] == group):
                    for resource, choice in one["flavors"].items():
                        chosen[each["name"], resource] = choice["flavor"]
        later = _now(case, state, set(state["designated"]))
        attempt, found = nominate(later, head, chosen)
    result = {
        "pod_sets": attempt.pod_sets,
        "level": attempt.level,
        "message": attempt.message,
        "targets": found,
        "reason": attempt.reason,
        "overlap": overlap,
    }
    if attempt.mode == "NoFit":
        return {**result, "outcome": "no fit"}
    if attempt.mode == "Preempt" and not found:
        if case["queues"][queue]["reclaim"] != "Any":
            world = World(_now(case, state))
            kept = {}
            for pair, amount in attempt.usage.items():
                nominal, limit, _ = world.quota(("queue", queue), pair)
                used = world.used(("queue", queue), pair)
                if attempt.level > 0:
                    kept[pair] = amount if limit is None else min(amount, nominal + limit - used)
                else:
                    kept[pair] = max(0, min(amount, nominal - used))
            if min(kept.values(), default=0) < 0:
                raise Historical(queue)
            _add(state, queue, kept)
        return {**result, "outcome": "no candidates"}
    if overlap and attempt.mode == "Fit":
        _add(state, queue, attempt.usage)
        return {**result, "outcome": "deferred"}
    if {key for key, _ in found} & set(state["designated"]):
        return {**result, "outcome": "skipped"}
    gone = set(state["designated"]) | {key for key, _ in found}
    world = World(_now(case, state, gone))
    node: Node = ("queue", queue)
    if any(amount > max(0, world.available(node, p)) for p, amount in attempt.usage.items()):
        return {**result, "outcome": "skipped"}
    state["designated"] += [key for key, _ in found]
    _add(state, queue, attempt.usage)
    return {**result, "outcome": "preempting" if attempt.mode == "Preempt" else "admitted"}


def _next(now: Case, remaining: list[Case]) -> Case:
    sorting = now["settings"]["priority_sorting"]

    def seniority(entry: Case) -> tuple[Any, ...]:
        head = entry["head"]
        return (-head["priority"] if sorting else 0, head["created"])

    if now["fair"] is None:
        return min(
            remaining,
            key=lambda e: (e["attempt"].level, *seniority(e), e["head"]["queue"]),
        )
    world = World(now)
    root = world.path(("queue", remaining[0]["head"]["queue"]))[-1]
    notes: dict[tuple[str, Node], tuple[Any, ...]] = {}
    inside: dict[str, Case] = {}
    for entry in remaining:
        queue = entry["head"]["queue"]
        path = world.path(("queue", queue))
        if path[-1] != root:
            continue
        inside[queue] = entry
        world.change({"queue": queue, "usage": entry["attempt"].usage}, 1)
        for node in path[:-1]:
            borrows = now["settings"]["prioritize_non_borrowing"] and any(
                world.used(node, pair) > world.subtree(node, pair)
                for pair in entry["attempt"].usage
            )
            notes[queue, node] = (borrows, world.share(node), seniority(entry))
        world.change({"queue": queue, "usage": entry["attempt"].usage}, -1)
    if root[0] == "queue":
        return inside[root[1]]

    def better(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
        if a[0] != b[0]:
            return not a[0]
        order = world.compare(a[1], b[1])
        return order < 0 if order else bool(a[2] < b[2])

    def winner(cohort: Node) -> Case | None:
        best: tuple[Case, tuple[Any, ...]] | None = None
        for child in world.children(cohort[1]):
            entry = inside.get(child[1]) if child[0] == "queue" else winner(child)
            if entry is None:
                continue
            note = notes[entry["head"]["queue"], child]
            if best is None or better(note, best[1]):
                best = (entry, note)
        return None if best is None else best[0]

    found = winner(root)
    assert found is not None
    return found
