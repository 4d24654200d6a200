"""Requests of pods by hand, per rule of specification 21.4 and 17.2."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reprieve.api.scheduling import PodObject
from reprieve.intake.cluster.pod_classes import PodClasses, PodGates
from tests.intake.cluster.objects import class_of, container, pod

MIB = 2**20


def requests(manifest: dict[str, Any]) -> dict[str, int]:
    return dict(class_of(manifest).requests)


def scored(manifest: dict[str, Any]) -> tuple[int, int]:
    found = class_of(manifest)
    return found.scored_cpu, found.scored_memory


def test_containers_add_up() -> None:
    found = requests(
        pod(container("a", cpu="500m", memory="1Gi"), container("b", cpu="1", gpu="2"))
    )
    assert found == {"cpu": 1500, "memory": 2**30, "nvidia.com/gpu": 2}


def test_limits_are_not_requests() -> None:
    assert requests(pod({"name": "a", "resources": {"limits": {"cpu": "1"}}})) == {}


def test_an_init_container_raises_only_what_it_needs_more_of() -> None:
    found = requests(
        pod(
            container("a", cpu="1", memory="100Mi"),
            init=[container("i", cpu="500m", memory="300Mi"), container("j", cpu="2")],
        )
    )
    assert found == {"cpu": 2000, "memory": 300 * MIB}


def test_sidecars_count_from_their_place_on() -> None:
    """R = 1000 + 300 + 200 = 1500; M: i 700, s1 300, j 900 + 300 = 1200, s2 500, k 1000 + 500."""
    init = [
        container("i", cpu="700m"),
        container("s1", "Always", cpu="300m"),
        container("j", cpu="900m"),
        container("s2", "Always", cpu="200m"),
        container("k", cpu="1100m"),
    ]
    assert requests(pod(container("a", cpu="1"), init=init)) == {"cpu": 1600}


def test_sidecars_add_to_the_containers_when_no_init_container_is_larger() -> None:
    init = [container("s", "Always", cpu="300m", gpu="1"), container("i", cpu="100m")]
    found = requests(pod(container("a", cpu="1", gpu="1"), init=init))
    assert found == {"cpu": 1300, "nvidia.com/gpu": 2}


def test_pod_level_requests_replace_cpu_memory_and_huge_pages_only() -> None:
    found = requests(
        pod(
            container("a", **{"cpu": "4", "memory": "1Gi", "hugepages-2Mi": "4Mi", "gpu": "1"}),
            resources={"requests": {"cpu": "1", "hugepages-2Mi": "8Mi", "nvidia.com/gpu": "5"}},
        )
    )
    assert found == {"cpu": 1000, "memory": 2**30, "hugepages-2Mi": 8 * MIB, "nvidia.com/gpu": 1}


def test_overhead_is_added_in_every_case() -> None:
    overhead = {"cpu": "250m", "memory": "64Mi"}
    assert requests(pod(container("a", cpu="1"), overhead=overhead)) == {
        "cpu": 1250,
        "memory": 64 * MIB,
    }
    level = {"requests": {"cpu": "2"}}
    assert requests(pod(container("a", cpu="1"), overhead=overhead, resources=level)) == {
        "cpu": 2250,
        "memory": 64 * MIB,
    }


@pytest.mark.parametrize(
    ("first", "second", "cpu", "memory"),
    [
        ("100m", "100m", 200, 1),
        ("0.0001", "0", 1, 1),  # a tenth of a milli-CPU rounds up
        (1, 0.5, 1500, 1),
    ],
)
def test_amounts_round_up(first: Any, second: Any, cpu: int, memory: int) -> None:
    found = requests(
        pod(container("a", cpu=first, memory="500m"), container("b", cpu=second, memory="500m"))
    )
    assert found == {"cpu": cpu, "memory": memory}


def test_names_that_no_node_is_asked_for_are_left_out() -> None:
    found = requests(pod(container("a", pods="3", storage="1", cpu="0")))
    assert found == {}


def test_a_quantity_that_cannot_be_read_is_left_out() -> None:
    assert requests(pod(container("a", cpu="much", memory="1Ki"))) == {"memory": 1024}


def status(
    name: str, allocated: dict[str, str] | None = None, actuated: dict[str, str] | None = None
) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name}
    if allocated is not None:
        made["allocatedResources"] = allocated
    if actuated is not None:
        made["resources"] = {"requests": actuated}
    return made


def test_while_a_pod_is_resized_each_container_counts_the_most() -> None:
    """a: max(1, 3, 2) = 3 cpu; b: max(2, 1, 1) = 2 cpu, memory from the allocation alone."""
    found = requests(
        pod(
            container("a", cpu="1"),
            container("b", cpu="2"),
            nodeName="n",
            status={
                "containerStatuses": [
                    status("a", {"cpu": "3"}, {"cpu": "2"}),
                    status("b", {"cpu": "1", "memory": "1Ki"}, {"cpu": "1"}),
                ]
            },
        )
    )
    assert found == {"cpu": 5000, "memory": 1024}


def test_an_infeasible_resize_leaves_out_the_spec() -> None:
    resizing = {
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
        "containerStatuses": [status("a", {"cpu": "2"}, {"cpu": "1"})],
    }
    assert requests(pod(container("a", cpu="64"), nodeName="n", status=resizing)) == {"cpu": 2000}
    resizing["conditions"][0]["reason"] = "Deferred"
    assert requests(pod(container("a", cpu="64"), nodeName="n", status=resizing)) == {"cpu": 64000}


def test_a_sidecar_is_resized_too() -> None:
    found = requests(
        pod(
            container("a", cpu="1"),
            init=[container("s", "Always", cpu="1")],
            nodeName="n",
            status={"initContainerStatuses": [status("s", {"cpu": "4"})]},
        )
    )
    assert found == {"cpu": 5000}


def test_scores_count_a_default_per_container_and_resource() -> None:
    assert scored(pod(container("a"), container("b", cpu="1"))) == (1100, 400 * MIB)


def test_an_explicit_zero_stays_zero_in_scores() -> None:
    assert scored(pod(container("a", cpu="0", memory="0"))) == (0, 0)


def test_init_containers_get_the_defaults_too() -> None:
    """Containers 50m; the init container counts 100m and 200 MiB, more than the container's."""
    found = scored(pod(container("a", cpu="50m", memory="1Mi"), init=[container("i")]))
    assert found == (100, 200 * MIB)


def test_overhead_adds_to_scores() -> None:
    assert scored(pod(container("a"), overhead={"cpu": "10m"})) == (110, 200 * MIB)


def test_with_pod_level_requests_a_placed_pod_gets_defaults_for_what_nobody_names() -> None:
    """cpu is named by the pod; memory by one container, so the other counts none once placed."""
    found = class_of(
        pod(
            container("a", memory="100Mi"),
            container("b"),
            resources={"requests": {"cpu": "2"}},
        )
    )
    assert (found.scored_cpu, found.scored_memory) == (2000, 100 * MIB)
    assert found.scored_incoming == (2000, 300 * MIB)


def test_with_pod_level_requests_a_resource_that_nobody_names_has_the_default() -> None:
    found = class_of(pod(container("a"), container("b"), resources={"requests": {"memory": "1Gi"}}))
    assert (found.scored_cpu, found.scored_memory) == (200, 2**30)
    assert found.scored_incoming is None


def test_pod_level_requests_that_are_resized_count_the_most() -> None:
    found = requests(
        pod(
            container("a", cpu="1"),
            nodeName="n",
            resources={"requests": {"cpu": "2"}},
            status={"allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "1"}}},
        )
    )
    assert found == {"cpu": 3000}


def test_what_claims_take_of_the_node_counts_behind_its_gate_alone() -> None:
    manifest = pod(container("a", cpu="1", memory="1Gi"))
    manifest["status"] = {
        "nodeAllocatableResourceClaimStatuses": [
            {"resourceClaimName": "c", "mapping": [{"name": "cpu", "quantity": "2"}]},
            {"resourceClaimName": "d", "mapping": [{"name": "cpu", "quantity": "500m"}]},
            {"resourceClaimName": "e", "mapping": [{"name": "memory", "quantity": "lots"}]},
        ]
    }
    given = msgspec.convert(manifest, PodObject)
    behind = PodClasses(PodGates(claims=True)).of(given)
    assert dict(behind.requests) == {"cpu": 3500, "memory": 2**30}
    assert dict(PodClasses().of(given).requests) == {"cpu": 1000, "memory": 2**30}
