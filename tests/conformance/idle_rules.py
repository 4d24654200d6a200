"""Vectors of the idle plane that ask for one rule: settings, names, owners, samples, leases."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from kubeworld.units.durations import SECOND, InvalidDuration, format_duration, parse_duration
from kubeworld.units.instants import parse_instant
from reprieve.api.core import KueueWorkload, Pod
from reprieve.api.kaiwo import GpuWorkload, GpuWorkloadStatus
from reprieve.api.kaiwo import TrackedPod as ApiTrackedPod
from reprieve.engine.idle.discovery import (
    Lookup,
    Owner,
    ResolutionError,
    Root,
    controller_of,
    gpu_workload_name,
    group_version,
    resolve_root,
)
from reprieve.engine.idle.evaluation_lease import DURATION_SECONDS, LeaseState, may_acquire
from reprieve.engine.idle.literal import LiteralSwitches
from reprieve.engine.idle.model import Aggregation, Phase, Policy, Status, TrackedPod
from reprieve.engine.idle.resources import add, workload_gpus
from reprieve.engine.idle.samples import aggregate, merge
from reprieve.engine.idle.vendors import AMD
from reprieve.intake.exposition import MalformedExposition, parse_exposition
from reprieve.intake.gpuworkloads import (
    initial_status,
    new_gpu_workload,
    status_from_api,
    status_to_api,
)
from reprieve.intake.pods import gpus_of, is_demand
from reprieve.intake.readings import impossible_by_namespace, readings_by_namespace
from reprieve.settings.idle import (
    FALLBACK,
    derive,
    environment_tier,
    kaiwo_config_tier,
    resolve,
    with_overrides,
)
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from reprieve.wording.kaiwo import resolution_error_text
from tests.conformance.world import Json, World, as_found


def run_pending_gpu(given: Json, literal: LiteralSwitches) -> bool:
    kueue = [msgspec.convert(each, KueueWorkload) for each in given.get("kueueWorkloads") or []]
    return is_demand(msgspec.convert(given["pod"], Pod), given["gpuResources"], kueue)


def run_resources(given: Json, literal: LiteralSwitches) -> dict[str, int]:
    return workload_gpus([gpus_of(msgspec.convert(pod, Pod)) for pod in given["pods"] or []], {})


def run_has_gpu(given: Json, literal: LiteralSwitches) -> bool:
    return bool(gpus_of(msgspec.convert(given["pod"], Pod)))


def run_resources_equal(given: Json, literal: LiteralSwitches) -> bool:
    return add(given["a"] or {}) == add(given["b"] or {})


def run_aggregation(given: Json, literal: LiteralSwitches) -> float | None:
    how = Aggregation(given["policy"]) if given.get("policy") else FALLBACK.aggregation
    return aggregate(_status(given["trackedPods"] or []).tracked_pods, how)


def run_config_resolution(given: Json, literal: LiteralSwitches) -> Json:
    derived = derive(given.get("workloadAnnotations"), given.get("namespaceAnnotations"), literal)
    if not derived.tracked:
        return {"tracked": False}
    settings = resolve(
        derived.overrides,
        (kaiwo_config_tier(given.get("kaiwoConfig")), environment_tier(given.get("env") or {})),
    )
    return {
        "tracked": True,
        "threshold": settings.threshold,
        "gracePeriodSeconds": settings.grace_period / SECOND,
        "policy": settings.policy.value,
        "aggregation": settings.aggregation.value,
        "ttlSeconds": settings.ttl / SECOND,
    }


def run_metrics_scrape(given: Json, literal: LiteralSwitches) -> Json:
    """One poll -> samples, and the tracked pods and aggregates of the workloads after it."""
    workloads = [msgspec.convert(each, GpuWorkload) for each in given.get("workloads") or []]
    failed = not 200 <= given.get("http_status", 200) <= 299
    try:
        exposition = parse_exposition(given["text"].encode(), (AMD,))
    except MalformedExposition:
        failed = True
    readings = {} if failed else readings_by_namespace(exposition.samples)
    impossible = {} if failed else impossible_by_namespace(exposition.invalid)
    now, policy = parse_instant(given["now"]), Policy(literal=literal)
    tracked, aggregates = {}, {}
    for each in workloads:
        namespace = each.metadata.namespace
        status = _status(each.status.tracked_pods or [], each.status.phase)
        if status.phase not in (Phase.PREEMPTED, Phase.DELETED) and not failed:
            status = merge(
                status,
                readings.get(namespace, {}),
                now,
                policy,
                impossible.get(namespace, ()),
            ).status
        key = f"{namespace}/{each.metadata.name}"
        written = msgspec.to_builtins(status_to_api(status))
        tracked[key] = written.get("trackedPods", [])
        aggregates[key] = {how.value: aggregate(status.tracked_pods, how) for how in Aggregation}
    return {
        "error": failed,
        "samples": []
        if failed
        else [
            {
                "namespace": sample.namespace,
                "pod": sample.pod,
                "gpuId": sample.gpu_id,
                "utilization": sample.utilization,
            }
            for sample in exposition.samples
        ],
        "trackedPods": tracked,
        "aggregate": aggregates,
    }


def run_owner_resolution(given: Json, literal: LiteralSwitches) -> Json:
    world = World(given.get("objects") or [], given.get("forbidden") or [])
    start = given["start"]
    lookup = Lookup(start["apiVersion"], start["kind"], start["namespace"], start["name"])
    try:
        root = world.walk(resolve_root(lookup, literal))
    except ResolutionError as error:
        return {"error": resolution_error_text(error)}
    ref = root.ref
    return {
        "root": {
            "apiVersion": ref.api_version,
            "kind": ref.kind,
            "name": ref.name,
            "uid": ref.uid,
        },
        "chain": root.chain,
    }


def run_naming(given: Json, literal: LiteralSwitches) -> str:
    return gpu_workload_name(given["kind"], given["workload"], given["uid"])


def run_pod_ownership(given: Json, literal: LiteralSwitches) -> bool:
    pod = msgspec.convert(given["pod"], Pod)
    ref = given["workloadRef"]
    root = Reference(
        ref["apiVersion"], ref["kind"], pod.metadata.namespace, ref["name"], Uid(ref["uid"])
    )
    return World(given.get("objects") or []).owned(root, pod, literal)


def run_controller_ref(given: Json, literal: LiteralSwitches) -> str | None:
    owner = controller_of(
        Owner(
            each["apiVersion"],
            each["kind"],
            each["name"],
            Uid(each["uid"]),
            each.get("controller") is True,
        )
        for each in given["ownerReferences"] or []
    )
    return None if owner is None else owner.name


def run_api_version(given: Json, literal: LiteralSwitches) -> Json:
    group, version = group_version(given["apiVersion"])
    return {"group": group, "version": version, "kind": given["kind"]}


def run_discovery(given: Json, literal: LiteralSwitches) -> Json:
    """The event of one pod -> the GpuWorkload that is made, or brought up to date."""
    pod = msgspec.convert(given["pod"], Pod)
    world = World([*(given.get("objects") or []), given["pod"]], given.get("forbidden") or [])
    gpus = gpus_of(pod)
    root = _root(world, given["pod"], literal) if gpus else None
    if root is None:
        return {"gpuworkload": None}
    namespace = pod.metadata.namespace
    derived = derive(
        world.annotations(root.ref.kind, namespace, root.ref.name),
        world.annotations("Namespace", namespace, namespace),
        literal,
    )
    if not derived.tracked:
        return {"gpuworkload": None}
    made = new_gpu_workload(root, namespace, gpus)
    existing = world.get("GpuWorkload", namespace, made.metadata.name)
    if existing is None:
        spec, status = with_overrides(made.spec, derived.overrides), initial_status(root)
    else:
        known = msgspec.convert(existing, GpuWorkload)
        spec = msgspec.structs.replace(
            known.spec, gpu_resources=_raised(known.spec.gpu_resources, gpus)
        )
        status = status_from_api(known.status)
    return {
        "gpuworkload": {
            "name": made.metadata.name,
            "namespace": namespace,
            "spec": msgspec.to_builtins(spec),
            "status": msgspec.to_builtins(status_to_api(status)),
        }
    }


def run_lease(given: Json, literal: LiteralSwitches) -> Json:
    lease, holder = given.get("lease") or {}, given["holder"]
    state = lease and LeaseState(
        lease.get("holderIdentity") or "",
        parse_instant(lease["renewTime"]) if lease.get("renewTime") else None,
        lease.get("leaseDurationSeconds") or 0,
    )
    if may_acquire(state or None, holder, parse_instant(given["now"])):
        return {"acquired": True, "holder": holder, "leaseDurationSeconds": DURATION_SECONDS}
    return {
        "acquired": False,
        "holder": lease["holderIdentity"],
        "leaseDurationSeconds": lease.get("leaseDurationSeconds"),
    }


def run_durations(given: Json, literal: LiteralSwitches) -> float | None:
    try:
        return parse_duration(given["text"]) / SECOND
    except InvalidDuration:
        return None


def run_duration_format(given: Json, literal: LiteralSwitches) -> str:
    return format_duration(round(given["seconds"] * SECOND))


def _root(world: World, pod: Json, literal: LiteralSwitches) -> Root | None:
    known = as_found(pod)
    ref = known.ref
    start = Lookup(ref.api_version, ref.kind, ref.namespace, ref.name)
    try:
        return world.walk(resolve_root(start, literal, known))
    except ResolutionError:
        return None


def _status(tracked_pods: list[Json] | list[ApiTrackedPod], phase: str = "Active") -> Status:
    """A stored status whose samples count as polled at their `lastUpdate`."""
    pods = [msgspec.convert(each, ApiTrackedPod) for each in tracked_pods]
    status = status_from_api(GpuWorkloadStatus(phase=phase, tracked_pods=pods))
    polled = tuple(
        TrackedPod(pod.name, tuple(replace(s, seen=s.updated) for s in pod.samples))
        for pod in status.tracked_pods
    )
    return replace(status, tracked_pods=polled)


def _raised(recorded: Json, pod: Json) -> dict[str, int]:
    """What the reference writes at discovery; here the sum over the pods replaces it at once."""
    return {name: max(recorded.get(name, 0), pod.get(name, 0)) for name in {*recorded, *pod}}
