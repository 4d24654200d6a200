"""What the schema of Kueue's kinds cannot state: the webhooks' rules, in the reference's words.

Objects are plain JSON of v1beta2, as an AdmissionReview carries them, with the schema's defaults in
place; each function yields one text for each field that is wrong. Deleting is never refused.

Source: specification of the quota plane, sections 1.1 to 1.4 and 12.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import Any, Final

from kubeworld.units.quantities import InvalidQuantity, parse_milli
from kubeworld.units.untrusted import Form, integer_or_none
from reprieve.api import field_errors as wrong

__all__ = [
    "cluster_queue_errors",
    "cohort_errors",
    "resource_flavor_errors",
    "slice_errors",
    "workload_errors",
    "workload_update_errors",
]

Json = Mapping[str, Any]

NEGATIVE: Final = "must be greater than or equal to 0"
BOOST: Final = "kueue.x-k8s.io/priority-boost"
_MOST_FLAVORS: Final = 256
_MOST_RESOURCES: Final = 256
_MOST_PAIRS: Final = 512
# An exponent that no amount of anything has: still a quantity.
_LONG: Final = Form(r"[+-]?+([0-9]++\.?+[0-9]*+|\.[0-9]++)[eE][+-]?+[0-9]++")
_EXACT: Final = Form(r"([+-]?+(?:[0-9]++\.?+[0-9]*+|\.[0-9]++))(?:([nu])|[eE][+-]?+[0-9]{1,3}+)?+")


def cluster_queue_errors(queue: Json) -> Iterator[str]:
    """Yield what is wrong with a ClusterQueue."""
    spec = queue.get("spec") or {}
    cohort = spec.get("cohortName") or ""
    if cohort:
        yield from (wrong.invalid("spec.cohortName", cohort, w) for w in wrong.subdomain(cohort))
    missing = "" if cohort else "must be nil when cohort is empty"
    yield from _groups(spec, missing, lends_own=True)
    yield from wrong.label_selector(spec.get("namespaceSelector"), "spec.namespaceSelector")
    preemption = spec.get("preemption") or {}
    within = (preemption.get("borrowWithinCohort") or {}).get("policy", "Never")
    if preemption.get("reclaimWithinCohort", "Never") == "Never" and within != "Never":
        why = "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never"
        yield wrong.invalid("spec.preemption", preemption, why)
    fungibility = spec.get("flavorFungibility") or {}
    preference = fungibility.get("preference")
    ways = (fungibility.get("whenCanBorrow"), fungibility.get("whenCanPreempt"))
    if preference and ways != ("TryNextFlavor", "TryNextFlavor"):
        why = (
            f'preference "{preference}" requires both whenCanBorrow and whenCanPreempt to be '
            "TryNextFlavor"
        )
        yield wrong.invalid("spec.flavorFungibility", preference, why)
    yield from _weight(spec)


def cohort_errors(cohort: Json) -> Iterator[str]:
    """Yield what is wrong with a Cohort."""
    spec = cohort.get("spec") or {}
    missing = "" if spec.get("parentName") else "must be nil when parent is empty"
    yield from _groups(spec, missing, lends_own=False)
    yield from _weight(spec)


def resource_flavor_errors(flavor: Json) -> Iterator[str]:
    """Yield what is wrong with a ResourceFlavor."""
    spec = flavor.get("spec") or {}
    yield from wrong.labels(spec.get("nodeLabels"), "spec.nodeLabels")
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(spec.get("nodeTaints") or ()):
        at, key = f"spec.nodeTaints[{index}]", taint.get("key", "")
        yield from (wrong.invalid(f"{at}.key", key, why) for why in wrong.qualified_name(key))
        yield from wrong.labels({"key": taint.get("value", "")}, f"{at}.value")
        if (key, taint.get("effect", "")) in seen:
            text = wrong.duplicate(at, taint)
            yield f"{text}: taints must be unique by key and effect pair"
        seen.add((key, taint.get("effect", "")))
    yield from _tolerations(spec.get("tolerations"), "spec.tolerations")


def workload_errors(workload: Json) -> Iterator[str]:
    """Yield what is wrong with a Workload by itself."""
    annotations = (workload.get("metadata") or {}).get("annotations") or {}
    boost = annotations.get(BOOST)
    if boost is not None and integer_or_none(boost) is None:
        at = f"metadata.annotations[{BOOST}]"
        yield wrong.invalid(at, boost, "must be a valid signed integer")
    spec, status = workload.get("spec") or {}, workload.get("status") or {}
    pod_sets: Sequence[Json] = spec.get("podSets") or ()
    for index, pod_set in enumerate(pod_sets):
        at = f"spec.podSets[{index}].template.spec"
        pod = (pod_set.get("template") or {}).get("spec") or {}
        for kind in ("initContainers", "containers"):
            for place, container in enumerate(pod.get(kind) or ()):
                yield from _container(container, f"{at}.{kind}[{place}].resources")
    variable = sum(pod_set.get("minCount") is not None for pod_set in pod_sets)
    if variable > 1:
        yield wrong.invalid("spec.podSets", variable, "at most one podSet can use minCount")
    counts = {pod_set.get("name", "main"): pod_set.get("count", 1) for pod_set in pod_sets}
    if _holds_quota(workload):
        yield from _admission(status.get("admission"), counts)
    for each in status.get("reclaimablePods") or ():
        at, name = f"status.reclaimablePods[{each['name']}]", each["name"]
        if name not in counts:
            yield wrong.unsupported(f"{at}.name", name, list(counts))
        elif each["count"] > counts[name]:
            why = f"should be less or equal to {counts[name]}"
            yield wrong.invalid(f"{at}.count", each["count"], why)
    for index, check in enumerate(status.get("admissionChecks") or ()):
        for place, update in enumerate(check.get("podSetUpdates") or ()):
            at = f"status.admissionChecks[{index}].podSetUpdates[{place}]"
            if update.get("name") not in counts:
                yield wrong.unsupported(f"{at}.name", update.get("name"), sorted(counts))
            yield from _tolerations(update.get("tolerations"), f"{at}.tolerations")
            yield from wrong.labels(update.get("nodeSelector"), f"{at}.nodeSelector")
            yield from wrong.labels(update.get("labels"), f"{at}.labels")


def slice_errors(workload: Json) -> Iterator[str]:
    """Yield what is wrong with the sizes of slices in a Workload's pod sets."""
    level = "podSetSliceRequiredTopology"
    for index, pod_set in enumerate((workload.get("spec") or {}).get("podSets") or ()):
        request = pod_set.get("topologyRequest") or {}
        at, size = f"spec.podSets[{index}].topologyRequest.podSetSliceSize", "podSetSliceSize"
        if request.get(size) is None:
            if request.get(level) is not None:
                yield wrong.required(at, f"must be set when {level} is specified")
        elif request.get(level) is None:
            yield wrong.forbidden(at, f"may not be set when {level} is not specified")
        elif request[size] <= 0:
            yield wrong.invalid(at, request[size], "must be greater than 0")


def workload_update_errors(workload: Json, old: Json, *, slice_sizes: bool = True) -> Iterator[str]:
    """Yield what is wrong with a Workload after a change, `slice_sizes`: of slices, too."""
    yield from workload_errors(workload)
    pod_sets = (workload.get("spec") or {}).get("podSets")
    if slice_sizes and pod_sets != (old.get("spec") or {}).get("podSets"):
        # What was there before is no reason to refuse a change of its status.
        yield from slice_errors(workload)
    spec, before = workload.get("spec") or {}, old.get("spec") or {}
    status, was = workload.get("status") or {}, old.get("status") or {}
    if _holds_quota(old) and spec.get("podSets") != before.get("podSets"):
        yield wrong.immutable("spec.podSets", spec.get("podSets"))
    held, kept = status.get("admission"), was.get("admission")
    if held is not None and kept is not None and _without_places(held) != _without_places(kept):
        yield wrong.immutable("status.admission", held)
    checks = {each["name"]: each for each in status.get("admissionChecks") or ()}
    for index, check in enumerate(was.get("admissionChecks") or ()):
        now = checks.get(check["name"], {})
        updates = now.get("podSetUpdates")
        ready = check.get("state") == now.get("state") == "Ready"
        if ready and updates != check.get("podSetUpdates"):
            yield wrong.immutable(f"status.admissionChecks[{index}].podSetUpdates", updates)
    cluster, nominated = status.get("clusterName"), was.get("nominatedClusterNames") or []
    if cluster and not was.get("clusterName") and cluster not in nominated:
        why = "when setting clusterName it must be one of the nominatedClusterNames"
        yield wrong.invalid("status.clusterName", cluster, why)


def _without_places(admission: Json) -> Json:
    """Return an admission without its topology assignments, which may change while it is held."""
    places = ("topologyAssignment", "delayedTopologyRequest")
    pod_sets = [
        {name: value for name, value in each.items() if name not in places}
        for each in admission.get("podSetAssignments") or ()
    ]
    return {**admission, "podSetAssignments": pod_sets}


def _groups(spec: Json, missing: str, *, lends_own: bool) -> Iterator[str]:
    """Yield what is wrong with quotas.

    `missing`: what is stated of a limit where nothing can be borrowed from or lent to. `lends_own`:
    no more can be lent than the nominal quota.
    """
    resources: set[str] = set()
    flavors: set[str] = set()
    flavor_count = resource_count = 0
    groups: Sequence[Json] = spec.get("resourceGroups") or ()
    for index, group in enumerate(groups):
        at = f"spec.resourceGroups[{index}]"
        covered: Sequence[str] = group.get("coveredResources") or ()
        listed: Sequence[Json] = group.get("flavors") or ()
        flavor_count, resource_count = flavor_count + len(listed), resource_count + len(covered)
        for place, name in enumerate(covered):
            here = f"{at}.coveredResources[{place}]"
            yield from (wrong.invalid(here, name, why) for why in wrong.qualified_name(name))
            if name in resources:
                yield wrong.duplicate(here, name)
            resources.add(name)
        for place, flavor in enumerate(listed):
            here = f"{at}.flavors[{place}]"
            quotas: Sequence[Json] = flavor.get("resources") or ()
            if len(quotas) != len(covered):
                why = "must have the same number of resources as the coveredResources"
                yield f"{here}.resources: Invalid value: {why}"
            for position, (quota, name) in enumerate(zip(quotas, covered, strict=False)):
                where = f"{here}.resources[{position}]"
                if quota["name"] != name:
                    why = "must match the name in coveredResources"
                    yield wrong.invalid(f"{where}.name", quota["name"], why)
                yield from _quota(quota, where, missing, lends_own=lends_own)
            if flavor["name"] in flavors:
                yield wrong.duplicate(f"{here}.name", flavor["name"])
            flavors.add(flavor["name"])
        pairs = len(covered) * len(listed)
        if pairs > _MOST_PAIRS:
            why = (
                "number of flavor-resource combinations in a resourceGroup must be "
                f"≤ {_MOST_PAIRS}, got {pairs}"
            )
            yield wrong.invalid(at, pairs, why)
    totals = (
        (flavor_count, _MOST_FLAVORS, "flavors"),
        (resource_count, _MOST_RESOURCES, "covered resources"),
    )
    for count, most, what in totals:
        if count > most:
            why = f"total number of {what} across all resourceGroups must be ≤ {most}, got {count}"
            yield wrong.invalid("spec.resourceGroups", count, why)


def _quota(quota: Json, at: str, missing: str, *, lends_own: bool) -> Iterator[str]:
    nominal = _amount(quota.get("nominalQuota", 0))
    if nominal < 0:
        yield wrong.invalid(f"{at}.nominalQuota", str(quota["nominalQuota"]), NEGATIVE)
    for name in ("borrowingLimit", "lendingLimit"):
        limit = quota.get(name)
        if limit is None:
            continue
        amount = _amount(limit)
        if amount < 0:
            yield wrong.invalid(f"{at}.{name}", str(limit), NEGATIVE)
        if missing:
            yield wrong.invalid(f"{at}.{name}", str(limit), missing)
        if name == "lendingLimit" and lends_own and amount > nominal:
            why = "must be less than or equal to the nominalQuota"
            yield wrong.invalid(f"{at}.{name}", str(limit), why)


def _weight(spec: Json) -> Iterator[str]:
    weight = (spec.get("fairSharing") or {}).get("weight")
    if weight is None:
        return
    amount, at = _amount(weight), "spec.fairSharing.weight"
    if amount < 0:
        yield wrong.invalid(at, str(weight), NEGATIVE)
    elif 0 < amount <= Fraction(1, 10**9):
        yield wrong.invalid(at, str(weight), "When not 0, weight must be > 10e-9")


def _container(container: Json, at: str) -> Iterator[str]:
    resources = container.get("resources") or {}
    for part in ("requests", "limits"):
        for name, quantity in (resources.get(part) or {}).items():
            here = f"{at}.{part}[{name}]"
            if name == "pods" and part == "requests":
                yield wrong.invalid(here, name, "the key is reserved for internal kueue use")
            try:
                parse_milli(quantity)
            except InvalidQuantity as error:
                if not _LONG.fullmatch(str(quantity)):
                    yield wrong.invalid(here, quantity, str(error))
                    continue
            if _amount(quantity) < 0:
                yield wrong.invalid(here, str(quantity), NEGATIVE)


def _admission(admission: Json | None, counts: Mapping[str, int]) -> Iterator[str]:
    if admission is None:
        why = "must be set while the QuotaReserved condition is true"
        yield wrong.required("status.admission", why)
        return
    for index, each in enumerate(admission.get("podSetAssignments") or ()):
        at, name = f"status.admission.podSetAssignments[{index}]", each.get("name", "main")
        if name not in counts:
            yield wrong.not_found(f"{at}.name", name)
        count = each.get("count") or 0
        for resource, quantity in (each.get("resourceUsage") or {}).items():
            units = ceil(_amount(quantity) * (1_000 if resource == "cpu" else 1))
            if count > 0 and units % count:
                here, why = f"{at}.resourceUsage[{resource}]", f"is not a multiple of {count}"
                yield wrong.invalid(here, str(quantity), why)


def _tolerations(given: Sequence[Json] | None, path: str) -> Iterator[str]:
    for index, each in enumerate(given or ()):
        key = each.get("key")
        if key:
            at = f"{path}[{index}].key"
            yield from (wrong.invalid(at, key, why) for why in wrong.qualified_name(key))


def _holds_quota(workload: Json) -> bool:
    return any(
        each.get("type") == "QuotaReserved" and each.get("status") == "True"
        for each in (workload.get("status") or {}).get("conditions") or ()
    )


def _amount(quantity: str | int | float) -> Fraction:
    """Return an amount exactly as far as signs, limits and the smallest weight need it."""
    text = str(quantity)
    try:
        exact = _EXACT.fullmatch(text)
        if exact is None:
            return Fraction(parse_milli(text), 1_000)
        number, suffix = exact.groups()
        return Fraction(number) / (10**9 if suffix == "n" else 10**6) if suffix else Fraction(text)
    except InvalidQuantity:
        # Beyond any limit: the schema has seen that it is a quantity.
        return Fraction(-(10**40) if text.startswith("-") else 10**40)
